"""Loading: the options of a load, and a checkpoint whose state can be read."""

from __future__ import annotations

import contextlib
import fnmatch
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import Damaged, NotFound, Refused
from holdfast.training.folder import FolderRunStore
from holdfast.training.object_nodes import MISSING
from holdfast.training.resume import rng as random_states
from holdfast.training.run_store import StoredCheckpoint
from holdfast.training.shard_reader import Reader, read_manifest
from holdfast.training.state_tree import ABSENT, RESUME, Builder
from holdfast.training.stored.layout import BEST, LAST, MANIFEST, STATE, check_schema, check_step, step_of


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The options of `load_checkpoint` that say what to load, and how."""

    weights_only: bool = False
    map_location: Any = None
    mmap: bool = False
    only: Sequence[str] | None = None
    verify: bool = True
    like: Any = None

    def __post_init__(self) -> None:
        if self.like is not None and (self.weights_only or self.only is not None or self.mmap):
            raise Refused(
                "like cannot be combined with loading a part of the state",
                hint="Leave out weights_only, only and mmap.",
            )


class OpenCheckpoint:
    """A checkpoint whose parts can be read."""

    def __init__(self, found: StoredCheckpoint, reader: Reader) -> None:
        self.found = found
        self.reader = reader
        self._document: dict[str, Any] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it was removed since it was found."""
        return self.reader.is_gone

    def state(self, request: LoadRequest) -> Any:
        """Return the state, or the part of it that was asked for."""
        document, only = self.document(), request.only
        with _damage_as_damaged(self.found.path):
            builder = Builder(
                document["state"], self.reader.fetch, device=request.map_location,
                is_wanted=None if only is None else _matcher(only), plain_only=request.weights_only,
                lazy=request.mmap, like=MISSING if request.like is None else request.like,
            )  # fmt: skip
            names = builder.names()
            if not request.mmap:
                if only is None and not request.weights_only:
                    names += self._unused_names(document)
                self.reader.prepare(names)
            built = builder.build()
        if built is not ABSENT:
            return built
        if only is not None:
            raise NotFound(
                f"{self.found.path} has nothing named {', '.join(only)}",
                hint="Names are paths such as model.layer1.weight; a prefix or a pattern with * matches, too.",
            )
        return {}

    def _unused_names(self, document: dict[str, Any]) -> list[str]:
        """What a full load reads only to verify it, so that it notices damage anywhere in the checkpoint."""
        self.reader.file(self.found.manifest.index_file)
        tree = document.get("resume")
        return Builder(tree, self.reader.fetch, root=RESUME).names() if tree else []

    def resume(self) -> dict[str, Any]:
        """Return what was saved besides the state: random states, the position of the data loader."""
        tree = self.document().get("resume")
        with _damage_as_damaged(self.found.path):
            return Builder(tree, self.reader.fetch, root=RESUME).build() if tree else {}

    def restore(self, *, rng: bool, loader: Any) -> list[str]:
        """Restore random states and the position of a data loader. Return what could not be restored (P4)."""
        resume = self.resume()
        if loader is not None:
            if "loader" not in resume:
                raise Refused(f"{self.found.path} has no position of a data loader", hint="Save it with loader=….")
            loader.load_state_dict(resume["loader"])
        if not rng:
            return []
        if "rng" not in resume:
            raise Refused(f"{self.found.path} has no random states", hint="Leave restore_rng out.")
        return random_states.restore_rng(resume["rng"])

    def document(self) -> dict[str, Any]:
        """Return the content of `state.json`."""
        if self._document is None:
            path = self.found.path / STATE
            try:
                found = json.loads(self.reader.file(self.found.manifest.state_file))
            except (ValueError, RecursionError):
                raise Damaged(f"{path} is not JSON", hint="Use another checkpoint.") from None
            if not isinstance(found, dict) or "state" not in found:
                raise Damaged(f"{path} has no state", hint="Use another checkpoint.")
            check_schema(found.get("schema_version"), str(path))
            self._document = found
        return self._document


def find_in_folder(
    path: Path, step: int | str | None = None, *, verify: bool = True
) -> tuple[StoredCheckpoint, FolderRunStore]:
    """Return the checkpoint that a path names: a step's folder, `last`, `best.json`, or a run together with `step`."""
    if step is not None and step not in ("latest", "best"):
        step = check_step(step)
    parent, number = FolderRunStore(path.parent, verify=verify), step_of(path.name)
    if path.name in (LAST, BEST) and not path.is_dir():
        return parent.get("latest" if path.name == LAST else "best"), parent
    if not path.exists() and number is not None and step in (None, "latest", "best", number):
        return parent.get(number), parent  # it may be there under its temporary name
    if not path.exists():
        raise NotFound(f"{path} does not exist", hint="Give the path of a checkpoint, or a folder of them and a step.")
    if (path / MANIFEST).exists():
        found = StoredCheckpoint(path, read_manifest(path, verify=verify))
        if step not in (None, "latest", "best", found.step):
            raise NotFound(f"{path} is step {found.step}, not {step}", hint="Give the folder above it.")
        return found, parent
    folder = FolderRunStore(path, verify=verify)
    return folder.get("latest" if step is None else step), folder


@contextlib.contextmanager
def _damage_as_damaged(path: Any) -> Iterator[None]:
    """Raise Damaged in place of the errors that an invalid `state.json` causes."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
        what = f"{path / STATE} is corrupt ({type(error).__name__}: {error})"
        raise Damaged(what, hint="Use another checkpoint.") from error


def _matcher(only: Sequence[str]) -> Callable[[str], bool]:
    if isinstance(only, str) or not all(isinstance(name, str) and name for name in only):
        raise Refused(f"invalid only: {only!r}", hint='Give a list of names, such as ["model", "*.bias"].')

    def is_wanted(where: str) -> bool:
        return any(where == name or where.startswith(f"{name}.") or fnmatch.fnmatchcase(where, name) for name in only)

    return is_wanted
