"""One saved state of a workspace."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.model.uncovered import Uncovered

TYPES = ("automatic", "manual", "feature", "session")
"""Why a checkpoint was saved, under `TYPE` in its metadata: before something risky, on request, after a feature was
complete, at the start of a session. `holdfast.project` keeps each type for its own time."""
TYPE = "type"

JSON = Any
"""A JSON-like value: None, bool, int, float, str, list, or dict with str keys."""


Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total) during long work; total is 0 if it is unknown.

`reading` and `writing` count bytes; with a path after it, as in `reading data/large.bin`, those of one large file.
Other stages count checkpoints or objects.
"""


def of_one_file(progress: Progress, stage: str, size: int) -> Callable[[int], None]:
    """Return a function that tells how many bytes of one file are done."""
    return lambda done: progress(stage, done, size)


class Lazy(Protocol):
    """Reads the larger parts of a checkpoint when they are first used."""

    def state(self, checkpoint: "Checkpoint") -> dict[str, JSON]:
        """Read the named state."""
        ...

    def files_changed(self, checkpoint: "Checkpoint") -> list[str]:
        """Read the paths that differ from the checkpoint before."""
        ...

    def uncovered(self, checkpoint: "Checkpoint") -> "tuple[Uncovered, ...]":
        """Read the paths that the checkpoint does not contain."""
        ...


class Operation(NamedTuple):
    """The restore, undo or redo before which a safety checkpoint was taken."""

    verb: str  # "restore" | "undo" | "redo" | "found" (what an interruption had left, before it was dealt with)
    target: str  # the checkpoint that it went to
    paths: tuple[str, ...] | None = None


class Identified(Protocol):
    """A checkpoint of any kind that has an id."""

    @property
    def id(self) -> str: ...


CheckpointRef = str | Identified
"""What names a checkpoint: the checkpoint itself, or its id, a unique prefix of it, a name, `latest` or `latest~2`."""


class GitHead(NamedTuple):
    """Where the user's own git stood: the commit and the branch of its HEAD, either empty where there is none."""

    commit: str = ""
    branch: str = ""


class LoadedParts:
    """The larger parts of a checkpoint, already read. No dataclass: each start of the program would create it."""

    def __init__(self, state: Mapping[str, JSON], changes: Sequence[str], uncovered: "tuple[Uncovered, ...]") -> None:
        self._state, self._changes, self._uncovered = state, changes, uncovered

    def state(self, checkpoint: "Checkpoint") -> dict[str, JSON]:
        """The named state."""
        return dict(self._state)

    def files_changed(self, checkpoint: "Checkpoint") -> list[str]:
        """The paths that differ from the checkpoint before."""
        return list(self._changes)

    def uncovered(self, checkpoint: "Checkpoint") -> "tuple[Uncovered, ...]":
        """The paths that the checkpoint does not contain."""
        return self._uncovered


_ATTRIBUTES = (
    "id", "message", "timestamp", "sequence", "name", "session", "actor", "step", "parent", "metadata", "pinned",
    "complete", "quiet", "operation", "purged", "commit", "git", "is_new", "_lazy",
)  # fmt: skip
_COMPARED = _ATTRIBUTES[:-2]


class Checkpoint:
    """One saved state of a workspace; immutable.

    No dataclass: loading `dataclasses` and making this class would be a quarter of what `holdfast log` costs.
    """

    __slots__ = _ATTRIBUTES

    id: str
    message: str
    timestamp: datetime
    sequence: int
    name: str | None
    session: str | None
    actor: str | None
    step: int | None
    parent: str | None
    metadata: Mapping[str, JSON]
    pinned: bool
    complete: bool
    quiet: bool
    """False when files changed while they were being read."""
    operation: Operation | None
    """Set on a safety checkpoint: what was about to happen."""
    purged: tuple[str, ...]
    """The paths that were taken out of it for good since it was made."""
    commit: str
    """The commit of the store in which it is stored; not one of the user's own repository."""
    git: GitHead | None
    """Where the user's own git stood; None outside of a repository, and in checkpoints of earlier versions."""
    is_new: bool
    """Whether the call that returned this made the checkpoint: True from a `save` that did, False from one that found
    nothing changed, and from every other call. Not stored, and not part of equality."""
    _lazy: Lazy | None

    def __init__(  # `files_changed` is given to it, but is read from the store when it is used
        self,
        id: str,  # noqa: A002  the name of the attribute
        message: str,
        timestamp: datetime,
        files_changed: Sequence[str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        *,
        sequence: int = 0,
        name: str | None = None,
        session: str | None = None,
        actor: str | None = None,
        step: int | None = None,
        parent: str | None = None,
        pinned: bool = False,
        complete: bool = True,
        quiet: bool = True,
        operation: Operation | None = None,
        purged: tuple[str, ...] = (),
        commit: str = "",
        git: GitHead | None = None,
        is_new: bool = False,
        _lazy: Lazy | None = None,
    ) -> None:
        if files_changed is not None:
            _lazy = LoadedParts({}, list(files_changed), ())
        values = (
            id, message, timestamp, sequence, name, session, actor, step, parent, {} if metadata is None else metadata,
            pinned, complete, quiet, operation, purged, commit, git, is_new, _lazy,
        )  # fmt: skip
        self.__setstate__(values)

    def replace(self, **changes: Any) -> "Checkpoint":
        """Return a copy with some attributes changed."""
        return Checkpoint(**dict(zip(_ATTRIBUTES, self.__getstate__(), strict=True)) | changes)

    def __getstate__(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each) for each in _ATTRIBUTES)

    def __setstate__(self, values: tuple[Any, ...]) -> None:
        for attribute, value in zip(_ATTRIBUTES, values, strict=True):
            object.__setattr__(self, attribute, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a checkpoint cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a checkpoint cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self.__getstate__()[: len(_COMPARED)] == other.__getstate__()[: len(_COMPARED)]

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Checkpoint({', '.join(f'{each}={getattr(self, each)!r}' for each in _COMPARED)})"

    @property
    def is_green(self) -> bool | None:
        """Whether it passed its check; None if it was not checked."""
        found = self.metadata.get("check")
        passed = found.get("passed") if isinstance(found, dict) else None
        return passed if isinstance(passed, bool) else None

    @property
    def state(self) -> dict[str, JSON]:
        """The named state saved with the files; read from the store each time."""
        return self._lazy.state(self) if self._lazy else {}

    @property
    def files_changed(self) -> list[str]:
        """The paths that differ from the parent checkpoint, sorted; all of them where there is no parent. A save is
        compared with the save before it, even if a safety checkpoint lies between."""
        return self._lazy.files_changed(self) if self._lazy else []

    @property
    def uncovered(self) -> "tuple[Uncovered, ...]":
        """Everything that this checkpoint does not contain, with the reason."""
        return self._lazy.uncovered(self) if self._lazy else ()
