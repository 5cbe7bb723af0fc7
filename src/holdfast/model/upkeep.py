"""What upkeep takes, and where the bytes are."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class PurgePlan:
    """What a purge would take out of the checkpoints."""

    paths: list[str]
    """What some checkpoint contains. A folder stands for the files in it."""
    checkpoints: list[str]
    """The ids of those that would be rewritten, under the same ids."""
    states: dict[str, list[str]]
    """By id, the names of the states that repeat a purged file, or a word of it that looks like a key, and would have
    it cut out; also `(message)`, `(metadata)`, and `(git)`: objects of the user's git that are held."""
    partly: dict[str, list[str]]
    """By id, those that repeat a line of it and would keep that; and where else it is repeated: `(name)`, `(session)`,
    `(actor)`, `(paths)`, `(attributes)`, `(rules)`. Under `(store)`: what belongs to no checkpoint."""
    bytes_freed: int
    """The size in the packs of what is stored for these paths alone."""
    also_at: dict[str, str]
    """Other paths with the same content, or repeat all of it or a key of it, and a checkpoint that has each. They
    stay as they are."""
    in_workspace: list[str]
    """Still in the folder: the next save would store them again, unless a `.holdfastignore` says not to."""

    def __bool__(self) -> bool:
        return bool(self.checkpoints)


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge took out."""

    plan: PurgePlan
    objects: int
    """How many objects are gone; none of them is in the store any more, which was looked up after the work, as was
    what the plan says of the rest of the store."""
    bytes_freed: int
    """The size in the packs of what was stored for these paths alone: that of the plan."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a policy takes away (in a dry run: would take), and why the rest stays."""

    removed: list[Checkpoint]
    """Oldest first."""
    kept: dict[str, str]
    """By id, oldest first: why it stays."""
    bytes_freed: int
    """How much smaller the packs are; in a dry run, what nothing else needs in them."""
    is_done: bool
    """False of a dry run."""
    over_bytes: int = 0
    """By how much what must stay is above the policy's `max_bytes`; 0 if it is not."""
    unfreed_bytes: int = 0
    """What nothing needs any more and could not be freed, because the disk has no space to copy the rest of a pack."""

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
    git_bytes: int
    """What is held of the user's git, which `holdfast.workspace.git_rescue` brings back."""
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
    """Whether git made deltas; without the git program, and if they save next to nothing, packs are only merged."""
    note: str
    """Why not, if not."""
