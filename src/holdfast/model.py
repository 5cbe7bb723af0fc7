"""The nouns: what a checkpoint is, what a restore would do and did, what differs, what is damaged.

Pure values: no clock, no environment, no input or output. Paths are relative to the workspace, with `/` between
folders, and are `str` as Python decodes file names (a byte that is no text becomes a lone surrogate and comes back).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

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


class Renamed(NamedTuple):
    """A file that went from one path to another."""

    old: str
    new: str


class LineCount(NamedTuple):
    """How many lines of a file came and went; None where its content is not text."""

    added: int | None
    removed: int | None


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """What differs between two states."""

    from_id: str
    to_id: str | None
    """None: the folder as it was when the diff was made."""
    added_files: list[str]
    modified_files: list[str]
    deleted_files: list[str]
    renamed_files: list[Renamed]
    touched_files: list[str]
    """Same content and mode; only times, links or extended attributes differ."""
    changed_folders: list[str]
    """Folders that have another mode, or came or went without any file."""
    uncompared: dict[str, str]
    """Held on one side, and left out or unreadable on the other, with the reason: not known to differ."""
    line_counts: dict[str, LineCount]
    diff_content: str

    def __bool__(self) -> bool:
        files = self.added_files or self.modified_files or self.deleted_files or self.renamed_files
        return bool(files or self.touched_files or self.changed_folders)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a restore would do. Nothing else is touched."""

    checkpoint: str
    paths: tuple[str, ...] | None
    keep_new: bool
    written: list[str]
    """Absent now, would be brought back."""
    replaced: list[str]
    """Different now, would become as they were (content, type or metadata)."""
    removed: list[str]
    """Made since; would be removed, after they are saved."""
    retimed: list[str]
    """Folders of which only the time would be set back."""
    kept: dict[str, str]
    """Left alone though the checkpoint does not have them, and why."""
    blocked: dict[str, str]
    """Would be restored but cannot, and why: the restore would report them as failed."""
    missing: dict[str, str]
    """Was there when the checkpoint was made, is gone now, and is not held: cannot be brought back."""
    bytes_to_write: int
    digest: str
    """Changes when the folder or the target does; hand the plan to `restore` to be held to it."""

    def __bool__(self) -> bool:
        return bool(self.written or self.replaced or self.removed or self.retimed)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    checkpoint: str
    undo_id: str
    """The safety checkpoint: what was there before."""
    written: list[str]
    """Brought back or made as they were."""
    removed: list[str]
    kept: dict[str, str]
    failed: dict[str, str]
    missing: dict[str, str]
    state: dict[str, JSON]

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for was done (P4)."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Recovery:
    """How an interrupted restore was dealt with when the workspace was next opened."""

    verb: str
    target: str
    outcome: str  # "finished" | "taken back"
    found_id: str
    """The safety checkpoint of what was found."""
    failed: dict[str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that `verify` found wrong."""

    what: str
    detail: str
    checkpoints: tuple[str, ...] = ()
    """The checkpoints that it touches; all others are sound."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` read and found."""

    problems: Sequence[Problem]
    checkpoints: int
    objects: int
    bytes_read: int

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Why:
    """What decides whether a save made now would hold a path."""

    path: str
    held: bool
    exists: bool
    """Whether it is there; if not, the rest is about what would be so."""
    reason: Reason | None
    """Of a path that is not held."""
    rule: str
    """The line that decides, as `FILE:LINE: PATTERN`; empty where none does."""
    in_checkpoint: str | None
    """The id of the last checkpoint, if that holds it."""
    sentence: str
    """All of it, for people."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    checkpoint: str
    directory: str
    written: list[str]
    failed: dict[str, str]
    """Not written, or not completely, and why."""
    missing: dict[str, str]
    """What the checkpoint does not hold, and why."""
    leftovers: list[str]
    """Folders beside it that exports which were killed have left; nothing needs them."""

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for was written (P4)."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Match:
    """A file that has a text in it, from one checkpoint to another."""

    path: str
    line: int
    """Where it is in `first`, counted from 1."""
    excerpt: str
    """That line, or some of it."""
    first: Checkpoint
    """The checkpoint in which it appears; its actor, session and message say by whom."""
    last: Checkpoint
    """The last one in a row that has it."""
    disappeared_in: Checkpoint | None
    """The one after that, in which it is gone; None if the newest checkpoint has it."""


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What a purge would take out of the checkpoints."""

    paths: list[str]
    """What some checkpoint holds, the topmost folders first named; files of a folder are not named one by one."""
    checkpoints: list[str]
    """The ids of those that would be rewritten, under the same ids."""
    states: dict[str, list[str]]
    """By id, the names of the states that repeat a purged file, or a word of it that looks like a key, and would have
    it cut out; also `(message)` and `(metadata)`."""
    partly: dict[str, list[str]]
    """By id, those that repeat a line of it and would keep that; also `(name)`, `(session)` and `(actor)`."""
    bytes_freed: int
    """What the store holds for these paths alone, before it is deflated."""
    also_at: dict[str, str]
    """Other paths that hold the same bytes, which therefore stay, and a checkpoint that has them."""
    in_workspace: list[str]
    """Still in the folder: the next save would hold them again, unless a `.holdfastignore` says not to."""

    def __bool__(self) -> bool:
        return bool(self.checkpoints)


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge took out."""

    plan: PurgePlan
    objects: int
    """How many objects are gone; none of them is in the store any more, which was looked up after the work."""
    freed_bytes: int
    """How much smaller the store is on the disk."""


@dataclass(frozen=True, slots=True)
class Bisected:
    """Between which two checkpoints something broke."""

    first_bad: Checkpoint | None
    """The first at which it fails; None if that lies among `unsure`."""
    last_good: Checkpoint
    unsure: list[Checkpoint]
    """Those that could not be tested and may be the first."""
    tried: dict[str, str]
    """By id, in order: `good`, `bad` or `skipped`."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a policy takes away (in a dry run: would take), and why the rest stays."""

    removed: list[Checkpoint]
    """Oldest first."""
    kept: dict[str, str]
    """By id, oldest first: why it stays."""
    bytes_freed: int
    """How much smaller the store is on the disk. In a dry run: what nothing else needs in its packs."""
    is_done: bool
    """False of a dry run."""

    def __bool__(self) -> bool:
        return bool(self.removed)


@dataclass(frozen=True, slots=True)
class CheckpointUsage:
    """What one checkpoint costs."""

    checkpoint: Checkpoint
    own_bytes: int
    """What would come back if only this one went."""
    shared_bytes: int
    """What it needs and others need too; none of it would come back."""


@dataclass(frozen=True, slots=True)
class PathUsage:
    """What all the contents cost that one path has had."""

    path: str
    bytes: int
    contents: int
    """How many different ones."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Where the bytes of a store are. Sizes are those of the files; what lies in packs is measured as it lies there."""

    total_bytes: int
    packs_bytes: int
    catalog_bytes: int
    """The catalog and the scan cache, which can be made again."""
    other_bytes: int
    unneeded_bytes: int
    """In the packs, and needed by no checkpoint: `merge`, `prune` and `compact` free it."""
    checkpoints: list[CheckpointUsage]
    """Newest first; without those that cannot be read."""
    paths: list[PathUsage]
    """The largest first. A content that several paths have counts for each."""
    more_paths: int
    """How many are not in the list."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compacting did."""

    before_bytes: int
    after_bytes: int
    by_git: bool
    """Whether git made deltas; without the git program packs are only merged."""
    note: str
    """Why not, if not."""
