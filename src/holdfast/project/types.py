"""The types of a project: its checkpoints, their git and feature state, and the results of rollback and fork."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from holdfast.errors import Refused
from holdfast.model import JSON, Restored
from holdfast.validation import check_mapping, check_optional_text, check_texts
from holdfast.workspace.stored.state_json import Spelling


class CheckpointType(str, Enum):  # noqa: UP042  a text of its own value, as the predecessor's is
    """Why a checkpoint was saved, which decides how long it is kept."""

    AUTOMATIC = "automatic"  # before risky operations
    MANUAL = "manual"  # on request
    FEATURE = "feature"  # after a feature is complete
    SESSION = "session"  # at the start of a session


def type_of(value: object) -> CheckpointType:
    """A type from its value. Refused if there is no such type."""
    try:
        return CheckpointType(value)
    except ValueError:
        known = ", ".join(kind.value for kind in CheckpointType)
        raise Refused(f"there is no type {value!r}", hint=f"Choose one of CheckpointType: {known}.") from None


@dataclass(frozen=True, slots=True)
class GitState:
    """The state of the user's git: on a branch, detached (no branch), unborn (no commit), or not in git (neither)."""

    commit_hash: str = ""
    branch: str = ""
    dirty_files: list[str] = field(default_factory=list)
    """What differs from the commit, relative to the project's folder; an untracked folder ends in a slash."""
    note: str = field(default="", compare=False)
    """What could not be read, and why."""

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
    def from_dict(cls, data: Mapping[str, Any]) -> GitState:
        """Read what `to_dict` gave; Refused if a value has another type."""
        return cls(
            _text(data, "commit_hash"), _text(data, "branch"), _texts(data, "dirty_files"), note=_text(data, "note")
        )


@dataclass(frozen=True, slots=True)
class FeatureState:
    """The state of the feature list."""

    current: str | None = None
    """The feature in progress, or the next one; None if all are done, or the list could not be read."""
    completed: list[str] = field(default_factory=list)
    snapshot_path: str = ""
    """Where git finds its content: `git --git-dir=STORE show SNAPSHOT_PATH`. Empty if there was no list."""
    note: str = field(default="", compare=False)
    """What could not be read, and why."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the predecessor."""
        return {"current": self.current, "completed": list(self.completed), "snapshot_path": self.snapshot_path}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureState:
        """Read what `to_dict` gave; Refused if a value has another type."""
        current = None if data.get("current") is None else _text(data, "current")
        return cls(current, _texts(data, "completed"), _text(data, "snapshot_path"), note=_text(data, "note"))


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
    """False if something is missing that should be saved; `notes` says what."""
    pinned: bool = field(default=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be saved, read or pruned."""

    @property
    def type(self) -> CheckpointType:
        """The same as `checkpoint_type`."""
        return self.checkpoint_type

    @property
    def stamp(self) -> str:
        """The predecessor's form of an id: the second, in UTC. Two checkpoints may share it; use `id` to find one."""
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
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Read the result of `to_dict`, or the predecessor's JSON. Refused for anything else."""
        check_mapping(data, "a checkpoint")
        return cls(
            id=_text(data, "id"),
            name=_text(data, "name"),
            description=_text(data, "description"),
            timestamp=_text(data, "timestamp"),
            checkpoint_type=type_of(data.get("type") or data.get("checkpoint_type") or CheckpointType.MANUAL),
            git_state=GitState.from_dict(_mapping(data, "git_state")),
            feature_state=FeatureState.from_dict(_mapping(data, "feature_state")),
            context=dict(_mapping(data, "context")),
        )


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback, an undo or an adoption did; truthy if all of it was done."""

    checkpoint: Checkpoint
    restored: Restored
    """The files: what was written, removed, kept, and could not be restored."""
    recorded: GitState
    """The git state when the checkpoint was saved."""
    found: GitState
    """The git state when this was called."""
    git_moved: bool = False
    """Whether the user's branch was reset, which only `git="reset"` does."""
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
        """The context that was saved with the checkpoint."""
        return self.checkpoint.context

    @property
    def head_moved(self) -> bool:
        """Whether HEAD has moved since the checkpoint was saved."""
        return not self.git_moved and bool(self.recorded or self.found) and not self.recorded.is_at(self.found)

    @property
    def message(self) -> str:
        """What was done, for people."""
        done = self.restored
        parts = [
            f"{done.checkpoint}: {len(done.written)} written, {len(done.removed)} removed, {len(done.failed)} failed"
        ]
        if self.git_moved:
            parts.append(f"git was moved from {self.found} to {self.recorded}")
        if self.head_moved:
            parts.append(f"HEAD has moved since: it was {self.recorded}, and is {self.found}; it was not moved back")
        return "; ".join((*parts, *self.notes))

    def to_dict(self) -> dict[str, Any]:
        """As JSON. States are as they are stored; those in `tagged_states` have tags (`from_tagged`)."""
        files = self.restored._asdict()
        del files["state"]
        files["conflicts"] = {path: asdict(overlap) for path, overlap in self.restored.conflicts.items()}
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
    """A fork: a checkpoint in a separate folder."""

    directory: str
    store: str
    checkpoint: Checkpoint
    """The first checkpoint of the fork."""
    source: str
    """The checkpoint that it came from."""
    written: list[str]
    failed: dict[str, str]
    missing: dict[str, str]
    """What the checkpoint does not contain, and why; mostly dependency folders."""

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
    """How it was restored into the folder; `undo` reverts that."""
    changed_since_fork: bool
    """Whether the project had changed since it was forked; also True if the forked checkpoint no longer exists, so that
    this is unknown."""

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for was done (P4)."""
        return self.rolled_back.ok


def _text(data: Mapping[str, Any], key: str) -> str:
    return check_optional_text(data.get(key), key) or ""


def _texts(data: Mapping[str, Any], key: str) -> list[str]:
    return list(check_texts(data.get(key, []), key))


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return {} if value is None else check_mapping(value, key)
