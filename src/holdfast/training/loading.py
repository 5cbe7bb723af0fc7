"""The life of a load: find, verify, put together."""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.training.folder import Found, TrainingFolder
from holdfast.training.nodes import MISSING
from holdfast.training.reading import Reader, read_manifest
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, STATE, check_schema, check_step, step_of
from holdfast.training.tree import ABSENT, RESUME, Builder


def find(path: Path, step: int | str | None = None, *, verify: bool = True) -> Found:
    """The checkpoint that a path means: a step's folder, `last`, `best.json`, or a folder of steps and a step."""
    if step is not None and step not in ("latest", "best"):
        step = check_step(step)
    if path.name == LAST and not path.is_dir():
        return TrainingFolder(path.parent, verify=verify).get("latest")
    if path.name == BEST and not path.is_dir():
        return TrainingFolder(path.parent, verify=verify).get("best")
    if not path.exists() and (number := step_of(path.name)) is not None and step in (None, "latest", "best", number):
        return TrainingFolder(path.parent, verify=verify).get(number)  # it may be there under another name
    if not path.exists():
        raise NotFound(f"there is no {path}", hint="Give the path of a checkpoint, or a folder of them and a step.")
    if (path / MANIFEST).exists():
        found = Found(path, read_manifest(path, verify=verify))
        if step not in (None, "latest", "best", found.step):
            raise NotFound(f"{path} is step {found.step}, not {step}", hint="Give the folder above it.")
        return found
    return TrainingFolder(path, verify=verify).get("latest" if step is None else step)


class Opened:
    """A checkpoint whose parts can be read."""

    def __init__(self, found: Found, *, verify: bool = True, mmap: bool = False, reader: Reader | None = None) -> None:
        self.found = found
        self._lazily = mmap
        self.reader = reader or Reader(found.path, found.manifest, verify=verify)
        self._document: dict[str, Any] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it was removed since it was found."""
        return self.reader.is_gone

    def state(
        self,
        *,
        weights_only: bool = False,
        only: Sequence[str] | None = None,
        map_location: Any = None,
        like: Any = None,
    ) -> Any:
        """The state, or what is wanted of it."""
        if like is not None and (weights_only or only is not None or self._lazily):
            raise Refused("like is given for a part of the state", hint="Leave out weights_only, only and mmap.")
        document = self.document()
        wanted = None if only is None else _wanted(only)
        with _sense(self.found.path):
            builder = Builder(
                document["state"], self.reader.fetch, place=map_location, wanted=wanted, tensors_only=weights_only,
                lazily=self._lazily, like=MISSING if like is None else like,
            )  # fmt: skip
            names = builder.names()
            if not self._lazily:
                if only is None and not weights_only:
                    names += self._rest(document)
                self.reader.prepare(names)
            built = builder.build()
        if built is not ABSENT:
            return built
        if only is not None:
            raise NotFound(
                f"{self.found.path} holds nothing that is called {', '.join(only)}",
                hint="Names are paths such as model.layer1.weight; a beginning or a pattern with * will do.",
            )
        return {}

    def _rest(self, document: dict[str, Any]) -> list[str]:
        """What a full load reads only to verify it, so that not a bit of a checkpoint goes unseen."""
        self.reader.file(self.found.manifest.index_file)
        tree = document.get("resume")
        return Builder(tree, self.reader.fetch, root=RESUME).names() if tree else []

    def resume(self) -> dict[str, Any]:
        """What was kept beside the state, to go on as if the run had never stopped."""
        tree = self.document().get("resume")
        with _sense(self.found.path):
            return Builder(tree, self.reader.fetch, root=RESUME).build() if tree else {}

    def document(self) -> dict[str, Any]:
        """What `state.json` says."""
        if self._document is None:
            try:
                found = json.loads(self.reader.file(self.found.manifest.state_file))
            except (ValueError, RecursionError):
                raise Damaged(f"{self.found.path / STATE} is not JSON", hint="Use another checkpoint.") from None
            if not isinstance(found, dict) or "state" not in found:
                raise Damaged(f"{self.found.path / STATE} holds no state", hint="Use another checkpoint.")
            check_schema(found.get("schema_version"), str(self.found.path / STATE))
            self._document = found
        return self._document


@contextlib.contextmanager
def _sense(path: Path) -> Iterator[None]:
    """Damaged where what a state says of itself makes no sense."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"{path / STATE} is not as it was written ({type(error).__name__}: {error})"
        raise Damaged(what, hint="Use another checkpoint.") from error


def _wanted(only: Sequence[str]) -> Callable[[str], bool]:
    if isinstance(only, str) or not all(isinstance(name, str) and name for name in only):
        raise Refused(f"only is {only!r}", hint='Give a list of names, such as ["model", "*.bias"].')

    def wanted(where: str) -> bool:
        return any(where == name or where.startswith(f"{name}.") or fnmatch.fnmatchcase(where, name) for name in only)

    return wanted
