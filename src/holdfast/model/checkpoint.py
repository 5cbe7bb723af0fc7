"""One saved state of a workspace, and what it does not hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

JSON = Any
"""A JSON-like value: None, bool, int, float, str, list, or dict with str keys."""


Progress = Callable[[str, int, int], None]
"""Told (stage, done, total) while long work goes on; total is 0 when it is not known."""


class Reason(StrEnum):
    """Why a checkpoint does not hold a path."""

    EXCLUDED = "excluded"  # by exclude_patterns or a .holdfastignore
    DEPENDENCIES = "dependencies"  # a dependency or build folder
    IGNORED_LARGE = "ignored-large"  # ignored by git's rules, and above the size limit
    IGNORED_MANY = "ignored-many"  # ignored, and above the limit for all ignored files together
    GIT_DIRECTORY = "git-directory"  # a repository's own .git folder
    OTHER_FILESYSTEM = "other-filesystem"  # a mount point
    SOCKET = "socket"  # has no content that could be kept
    RULES_NOT_APPLIED = "rules-not-applied"  # an ignore file that is too large: held, but its rules are not followed
    UNREADABLE = "unreadable"
    CHANGED = "changed-while-read"
    LIVE_DATABASE = "live-database"  # held, but written to while it was read: may be torn
    NOTHING_HELD = "nothing-held"  # the rules left every file out
    PURGED = "purged"  # was held, and was taken out of every checkpoint for good

    @property
    def is_failure(self) -> bool:
        """Whether this was meant to be held and is not (rather than left out by a rule)."""
        return self in _FAILURES


_FAILURES = frozenset({Reason.UNREADABLE, Reason.CHANGED, Reason.LIVE_DATABASE, Reason.NOTHING_HELD})


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A path that a checkpoint does not hold, and why. A folder stands for everything in it."""

    path: str
    reason: Reason
    detail: str = ""


class Lazy(Protocol):
    """Where a checkpoint's larger parts are read from when they are asked for."""

    def state(self, checkpoint: Checkpoint) -> dict[str, JSON]: ...
    def files_changed(self, checkpoint: Checkpoint) -> list[str]: ...
    def uncovered(self, checkpoint: Checkpoint) -> tuple[Uncovered, ...]: ...


@dataclass(frozen=True, slots=True)
class Operation:
    """The restore, undo or redo before which a safety checkpoint was taken."""

    verb: str  # "restore" | "undo" | "redo" | "found" (what an interruption had left, before it was dealt with)
    target: str  # the checkpoint that it went to
    paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved state of a workspace."""

    id: str
    sequence: int
    message: str
    timestamp: datetime
    name: str | None = None
    session: str | None = None
    actor: str | None = None
    step: int | None = None
    parent: str | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    pinned: bool = False
    complete: bool = True
    quiet: bool = True
    """False when files changed while they were being read."""
    operation: Operation | None = None
    """Set on a safety checkpoint: what was about to happen."""
    purged: tuple[str, ...] = ()
    """The paths that were taken out of it for good since it was made."""
    commit: str = ""
    """The git commit that holds it."""
    _lazy: Lazy | None = field(default=None, repr=False, compare=False)

    @property
    def state(self) -> dict[str, JSON]:
        """The named state saved with the files; read from the store each time."""
        return self._lazy.state(self) if self._lazy else {}

    @property
    def files_changed(self) -> list[str]:
        """The paths that differ from the parent checkpoint, sorted; all of them where there is no parent."""
        return self._lazy.files_changed(self) if self._lazy else []

    @property
    def uncovered(self) -> tuple[Uncovered, ...]:
        """Everything that this checkpoint does not hold, with the reason."""
        return self._lazy.uncovered(self) if self._lazy else ()
