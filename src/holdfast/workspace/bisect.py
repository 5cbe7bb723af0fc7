"""Bisecting: find the first checkpoint at which a test fails by binary search, each exported to a folder."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Refused, Remedy
from holdfast.model import Bisected, Checkpoint, CheckpointRef
from holdfast.model.documents import short
from holdfast.workspace.dependencies import DependencyLinks
from holdfast.workspace.stored.repository import BISECT_NOTE

if TYPE_CHECKING:
    from holdfast.workspace.workspace import Workspace

Test = Callable[[Path, Checkpoint], bool | None]
"""Called with a folder that contains the files of a checkpoint; returns whether it is good, or None to skip it."""

Tell = Callable[[Checkpoint, str, int], None]
"""Called with each checkpoint, its verdict, and how many tests are left at most."""

_NAMED_MAX = 5
_WORDS = {True: "good", False: "bad", None: "skipped"}


class Bisection:
    """One search between a good and a bad checkpoint."""

    def __init__(
        self,
        line: Sequence[Checkpoint],
        test: Callable[[Checkpoint], bool | None],
        tell: Tell,
        *,
        lacks: Sequence[str] | None = None,
    ) -> None:
        """`line`: checkpoints in order; the first must be good and the last bad. `lacks`: what the folder that is
        tested does not contain of the workspace; None if it is the workspace itself."""
        self._lacks = lacks
        self._line = line
        self._test = test
        self._tell = tell
        self._tried: dict[str, str] = {}
        self._good, self._bad = 0, len(line) - 1

    def run(self) -> Bisected:
        """Search. Refused if the first is not good or the last not bad; if both give the same result, the message says
        what that may come from, since a test that does not depend on the checkpoint finds nothing."""
        self._check_ends(self._try(self._good), self._try(self._bad))
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

    def _check_ends(self, at_good: bool | None, at_bad: bool | None) -> None:
        good, bad = (short(self._line[at].id) for at in (0, -1))
        remedy = None if self._lacks is None else Remedy("bisect_in_place")
        if at_good is not True and at_bad is False:
            some = ", ".join(self._lacks[:_NAMED_MAX]) if self._lacks else ""
            lacking = f", such as {some}" if some else ""
            why = f" Or the test needs what the scratch folder lacks{lacking}." if self._lacks is not None else ""
            how = "fails" if at_good is False else "could not be run"
            raise Refused(
                f"the test {how} at {good}, which should be good, and fails at {bad} too",
                hint=f"Give an earlier checkpoint as GOOD.{why}",
                remedy=remedy,
            )
        if at_good is not True:
            how = "fails" if at_good is False else "could not be run"
            raise Refused(f"the test {how} at {good}, which should be good", hint="Give an earlier checkpoint as GOOD.")
        if at_bad is True:
            why = (
                " Or the test looks at the workspace itself: a path in it, or a package installed in editable mode."
                if self._lacks is not None
                else ""
            )
            raise Refused(
                f"the test succeeds at {bad}, which should be bad, and at {good} too",
                hint=f"Give a later checkpoint as BAD.{why}",
                remedy=remedy,
            )
        if at_bad is None:
            raise Refused(
                f"the test could not be run at {bad}, which should be bad", hint="Give a later checkpoint as BAD."
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
    in_place: bool,
    begun: Callable[[Checkpoint], None] | None,
    uncovered: Callable[[], Set[str]],
) -> Bisected:
    """Find the first bad checkpoint; see `Workspace.bisect`. `uncovered`: what checkpoints of the folder lack."""
    saves = reversed(workspace.list(None))
    line = _line(workspace.get(good), workspace.get(bad), saves)
    if in_place:
        with _InPlace(workspace, test, begun) as there:
            found = Bisection(line, there.try_one, tell or _nothing).run()
        return replace(found, stale_outputs=there.stale_outputs)
    links = DependencyLinks(workspace.path, uncovered())
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
                links.link_into(place)
                return test(place, checkpoint)
            finally:
                with contextlib.suppress(OSError):  # removed with the temporary folder later
                    durable.remove_tree(str(place))

        found = Bisection(line, try_one, tell or _nothing, lacks=links.others).run()
    return replace(found, linked=links.paths, changed=links.changed())


class _InPlace:
    """Tests in the workspace itself. It is saved first; in the end every restore is taken back, in turn (P1).

    A kill between the note and its removal leaves the folder at some step, the note, and a checkpoint that the note
    names: `Workspace.interrupted_bisect` finds it.
    """

    def __init__(self, workspace: Workspace, test: Test, begun: Callable[[Checkpoint], None] | None) -> None:
        self._workspace = workspace
        self._test = test
        self._begun = begun
        self._note = workspace.store / "holdfast" / BISECT_NOTE
        self._protection = contextlib.ExitStack()
        self._before = ""
        self._restores: list[str] = []
        self.stale_outputs: list[str] = []

    def __enter__(self) -> _InPlace:
        saved = self._workspace.save("before bisect")
        self._before = saved.id
        with contextlib.ExitStack() as protection:
            protection.enter_context(self._workspace.hold(self._before))
            durable.write_atomically(self._note, self._before.encode())  # before the first restore
            self._protection = protection.pop_all()
        if self._begun is not None:
            self._begun(saved)
        return self

    def __exit__(self, *_: object) -> None:
        with self._protection:
            try:
                self._bring_back()
            except KeyboardInterrupt:  # Ctrl-C just then: first the folder (P1), then the end
                self._bring_back()
                raise

    def _bring_back(self) -> None:
        for restore in reversed(self._restores):
            last = self._workspace.next_undo()
            if last is not None and last.id == restore:
                stale = self._workspace.undo().stale_outputs
                self.stale_outputs = list(dict.fromkeys([*self.stale_outputs, *stale]))
        if self._workspace.preview(self._before):  # an interrupted step, or the test's own restores
            self._workspace.restore(self._before)
        durable.disk().unlink(str(self._note))

    def try_one(self, checkpoint: Checkpoint) -> bool | None:
        """Restore a checkpoint and test. What differs from the one before gets the present time: build tools, whose
        outputs stay, build it again."""
        done = self._workspace.restore(checkpoint.id, touch=True)
        self._restores.append(done.undo_id)
        return self._test(self._workspace.path, checkpoint) if done.ok else None


def _line(good: Checkpoint, bad: Checkpoint, saves: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints from a good one to a bad one, in order. Refused if the good one is not older."""
    if good.sequence >= bad.sequence:
        raise Refused(f"{short(good.id)} is not older than {short(bad.id)}", hint="Give the earlier, good one first.")
    return [good, *(each for each in saves if good.sequence < each.sequence < bad.sequence), bad]


def _nothing(checkpoint: Checkpoint, verdict: str, left: int) -> None:
    """Do nothing."""
