"""Bisecting: find the first checkpoint at which a test fails by binary search, each exported to a folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Refused
from holdfast.model import Bisected, Checkpoint, CheckpointRef

if TYPE_CHECKING:
    from holdfast.workspace.workspace import Workspace

Test = Callable[[Path, Checkpoint], bool | None]
"""Called with a folder that contains the files of a checkpoint; returns whether it is good, or None to skip it."""

Tell = Callable[[Checkpoint, str, int], None]
"""Called with each checkpoint, its verdict, and how many tests are left at most."""

_WORDS = {True: "good", False: "bad", None: "skipped"}


class Bisection:
    """One search between a good and a bad checkpoint."""

    def __init__(self, line: Sequence[Checkpoint], test: Callable[[Checkpoint], bool | None], tell: Tell) -> None:
        """`line`: checkpoints in order; the first must be good and the last bad."""
        self._line = line
        self._test = test
        self._tell = tell
        self._tried: dict[str, str] = {}
        self._good, self._bad = 0, len(line) - 1

    def run(self) -> Bisected:
        """Search. Refused if the first is not good or the last not bad."""
        if self._try(self._good) is not True:
            raise Refused(f"{self._line[0].id} is not good itself", hint="Give an earlier checkpoint as GOOD.")
        if self._try(self._bad) is not False:
            raise Refused(f"{self._line[-1].id} is not bad itself", hint="Give a later checkpoint as BAD.")
        while open_ones := self._open_ones():
            middle = open_ones[len(open_ones) // 2]
            is_good = self._try(middle)
            if is_good is True:
                self._good = middle
            elif is_good is False:
                self._bad = middle
        between = list(self._line[self._good + 1 : self._bad + 1])
        is_sure = len(between) == 1
        return Bisected(
            first_bad=between[0] if is_sure else None,
            last_good=self._line[self._good],
            unsure=[] if is_sure else between,
            tried=self._tried,
        )

    def _open_ones(self) -> list[int]:
        return [at for at in range(self._good + 1, self._bad) if self._line[at].id not in self._tried]

    def _try(self, at: int) -> bool | None:
        checkpoint = self._line[at]
        answer = self._test(checkpoint)
        is_good = None if answer is None else bool(answer)
        self._tried[checkpoint.id] = _WORDS[is_good]
        good, bad = (at, self._bad) if is_good else (self._good, at if is_good is False else self._bad)
        left = sum(self._line[one].id not in self._tried for one in range(good + 1, bad))
        self._tell(checkpoint, _WORDS[is_good], left.bit_length())
        return is_good


def bisect(
    workspace: Workspace,
    good: CheckpointRef,
    bad: CheckpointRef,
    test: Test,
    *,
    tell: Tell | None,
    scratch: Path | None,
) -> Bisected:
    """Find the first bad checkpoint; see `Workspace.bisect`."""
    saves = reversed(workspace.list(None))
    line = _line(workspace.get(good), workspace.get(bad), saves)
    with tempfile.TemporaryDirectory(prefix="holdfast-bisect-", dir=scratch, ignore_cleanup_errors=True) as folder:

        def try_one(checkpoint: Checkpoint) -> bool | None:
            place = Path(folder, checkpoint.id)
            try:
                workspace.export(checkpoint.id, place)
            except (Damaged, NotFound):
                if checkpoint in (line[0], line[-1]):
                    raise
                return None  # deleted meanwhile, or damaged: skip it
            try:
                return test(place, checkpoint)
            finally:
                with contextlib.suppress(OSError):  # removed with the temporary folder later
                    durable.remove_tree(str(place))

        return Bisection(line, try_one, tell or _nothing).run()


def _line(good: Checkpoint, bad: Checkpoint, saves: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints from a good one to a bad one, in order. Refused if the good one is not older."""
    if good.sequence >= bad.sequence:
        raise Refused(f"{good.id} is not older than {bad.id}", hint="Give the earlier, good one first.")
    return [good, *(each for each in saves if good.sequence < each.sequence < bad.sequence), bad]


def _nothing(checkpoint: Checkpoint, verdict: str, left: int) -> None:
    """Do nothing."""
