"""The nouns of a project: its checkpoints, their types, where git and the feature list stood, what a rollback did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any

from holdfast.errors import Refused
from holdfast.model import JSON, Restored
from holdfast.workspace.stored.spelling import Spelling


class CheckpointType(str, Enum):  # noqa: UP042  a text of its own value, as the predecessor's is
    """Why a checkpoint was made, which decides how long it is kept."""

    AUTOMATIC = "automatic"  # before risky operations
    MANUAL = "manual"  # somebody asked for it
    FEATURE = "feature"  # after a feature is complete
    SESSION = "session"  # at the start of a session


def type_of(value: object) -> CheckpointType:
    """A type, or its text. Refused if there is none such."""
    try:
        return CheckpointType(value)
    except ValueError:
        known = ", ".join(kind.value for kind in CheckpointType)
        raise Refused(f"there is no type {value!r}", hint=f"Choose one of CheckpointType: {known}.") from None


@dataclass(frozen=True, slots=True)
class GitState:
    """Where the user's own git stood: on a branch, detached (no branch), unborn (no commit), or nowhere (neither)."""

    commit_hash: str = ""
    branch: str = ""
    dirty_files: list[str] = field(default_factory=list)
    """What differs from the commit, from the project's folder; a folder that git does not know ends in a slash."""
    note: str = field(default="", compare=False)
    """What could not be told, and why."""

    def __bool__(self) -> bool:
        return bool(self.commit_hash or self.branch)

    def __str__(self) -> str:
        if not self:
            return "not in git"
        commit = self.commit_hash[:7] or "no commit yet"
        return f"{commit} on {self.branch}" if self.branch else f"{commit}, detached"

    def is_at(self, other: GitState) -> bool:
        """Whether HEAD is the same in both."""
        return (self.commit_hash, self.branch) == (other.commit_hash, other.branch)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the predecessor."""
        return {"commit_hash": self.commit_hash, "branch": self.branch, "dirty_files": list(self.dirty_files)}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> GitState:
        return cls(
            _text(said, "commit_hash"), _text(said, "branch"), _texts(said, "dirty_files"), note=_text(said, "note")
        )


@dataclass(frozen=True, slots=True)
class FeatureState:
    """Where the feature list stood."""

    current: str | None = None
    """What is being worked on, or comes next; None if everything is done, or nothing could be told."""
    completed: list[str] = field(default_factory=list)
    snapshot_path: str = ""
    """Where its content is, as git reads it: `git --git-dir=STORE show SNAPSHOT_PATH`. Empty if there was no list."""
    note: str = field(default="", compare=False)
    """What could not be told, and why."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the predecessor."""
        return {"current": self.current, "completed": list(self.completed), "snapshot_path": self.snapshot_path}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> FeatureState:
        current = None if said.get("current") is None else _text(said, "current")
        return cls(current, _texts(said, "completed"), _text(said, "snapshot_path"), note=_text(said, "note"))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One saved state of a project."""

    id: str
    name: str
    description: str
    timestamp: str
    """When, in ISO 8601 with its zone. The order is that of the ids, not of this (P10)."""
    checkpoint_type: CheckpointType = CheckpointType.MANUAL
    git_state: GitState = field(default_factory=GitState)
    feature_state: FeatureState = field(default_factory=FeatureState)
    context: dict[str, JSON] = field(default_factory=dict)
    complete: bool = field(default=True, compare=False)
    """False if something that should be held is not; `notes` says what."""
    pinned: bool = field(default=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be held, told or pruned."""

    @property
    def type(self) -> CheckpointType:
        return self.checkpoint_type

    @property
    def stamp(self) -> str:
        """The predecessor's form of an id: its second, in UTC. Two checkpoints may share it; `id` is what finds one."""
        return datetime.fromisoformat(self.timestamp).strftime("checkpoint-%Y%m%d-%H%M%S")

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the predecessor, and the type."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "timestamp": self.timestamp,
            "type": self.checkpoint_type.value,
            "git_state": self.git_state.to_dict(),
            "feature_state": self.feature_state.to_dict(),
            "context": self.context,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Checkpoint:
        """Read what `to_dict` gave, or the predecessor. Refused for what is neither."""
        if not isinstance(said, Mapping):
            raise Refused("a checkpoint is not a mapping", hint=f"It is of type {type(said).__name__}.")
        return cls(
            id=_text(said, "id"),
            name=_text(said, "name"),
            description=_text(said, "description"),
            timestamp=_text(said, "timestamp"),
            checkpoint_type=type_of(said.get("type") or said.get("checkpoint_type") or CheckpointType.MANUAL),
            git_state=GitState.from_dict(_mapping(said, "git_state")),
            feature_state=FeatureState.from_dict(_mapping(said, "feature_state")),
            context=dict(_mapping(said, "context")),
        )


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback, an undo or an adoption did; true if all of it was done."""

    checkpoint: Checkpoint
    restored: Restored
    """The files: what was written, removed, kept, and could not be restored."""
    recorded: GitState
    """Where git stood when the checkpoint was made."""
    found: GitState
    """Where git stood when this was asked for."""
    git_moved: bool = False
    """Whether the user's branch was set back, which only `git="reset"` does."""
    notes: tuple[str, ...] = ()
    """What else there is to know."""
    _spelling: Spelling = field(default_factory=Spelling, repr=False, compare=False)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for was done (P4)."""
        return self.restored.ok

    @property
    def undo_id(self) -> str:
        """The safety checkpoint: what was there before."""
        return self.restored.undo_id

    @property
    def state(self) -> dict[str, JSON]:
        """The named state that was saved with the files: conversation, todos, plan."""
        return self.restored.state

    @property
    def context(self) -> dict[str, JSON]:
        return self.checkpoint.context

    @property
    def head_moved(self) -> bool:
        """Whether HEAD is not where it was when the checkpoint was made."""
        return not self.git_moved and bool(self.recorded or self.found) and not self.recorded.is_at(self.found)

    @property
    def message(self) -> str:
        """All of it, for people."""
        done = self.restored
        parts = [
            f"{done.checkpoint}: {len(done.written)} written, {len(done.removed)} removed, {len(done.failed)} failed"
        ]
        if self.git_moved:
            parts.append(f"git was moved from {self.found} to {self.recorded}")
        if self.head_moved:
            parts.append(f"HEAD has moved since: it was {self.recorded}, and is {self.found}; it was left where it is")
        return "; ".join((*parts, *self.notes))

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON. States are as they are stored; those in `tagged_states` have tags (`from_tagged`)."""
        files = asdict(replace(self.restored, state={}))
        del files["state"]
        state, tagged = self._spelling.shown(self.state)
        return {
            "checkpoint": self.checkpoint.to_dict(),
            "restored": files,
            "state": state,
            "tagged_states": tagged,
            "recorded": self.recorded.to_dict(),
            "found": self.found.to_dict(),
            "head_moved": self.head_moved,
            "git_moved": self.git_moved,
            "ok": self.ok,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Forked:
    """A checkpoint in a folder of its own."""

    directory: str
    store: str
    checkpoint: Checkpoint
    """The first checkpoint of the fork."""
    source: str
    """The checkpoint that it came from."""
    written: list[str]
    failed: dict[str, str]
    missing: dict[str, str]
    """What the checkpoint does not hold, and why; dependency folders, above all."""

    @property
    def ok(self) -> bool:
        """Whether everything was written (P4)."""
        return not self.failed


@dataclass(frozen=True, slots=True)
class Adopted:
    """A fork that became the project."""

    checkpoint: Checkpoint
    """The fork, as a checkpoint of the project."""
    source: str
    """The checkpoint that was forked."""
    rolled_back: RolledBack
    """How it came into the folder; `undo` takes that back."""
    changed_since_fork: bool
    """Whether the project had gone on, so that something else than the forked state was replaced; also True where the
    checkpoint that was forked is gone, and that cannot be told."""

    @property
    def ok(self) -> bool:
        return self.rolled_back.ok


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key, "")
    if value is None or isinstance(value, str):
        return value or ""
    raise Refused(f"{key} is not text", hint=f"It is of type {type(value).__name__}.")


def _texts(said: Mapping[str, Any], key: str) -> list[str]:
    value = said.get(key, [])
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return list(value)
    raise Refused(f"{key} is not a list of texts", hint=f"It is {value!r}.")


def _mapping(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = said.get(key)
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise Refused(f"{key} is not a mapping", hint=f"It is of type {type(value).__name__}.")
