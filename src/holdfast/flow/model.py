"""The nouns of the surface: checkpoints, their metadata, sessions, and the results of verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.errors import Damaged, Refused
from holdfast.serde import Serde, from_json, to_json

_FIRST, _LAST = (moment.replace(tzinfo=UTC) for moment in (datetime.min, datetime.max))
_FLAT = ("checkpoint_id", "session_id", "timestamp", "node_name", "step")
_EXACT = "exact_timestamp"
"""Present only if ISO 8601 cannot represent all of a timestamp."""
_MORE: dict[str, Any] = {"parent_id": None, "namespace": "", "tags": (), "run_id": None, "extra": {}}


def moment(micros: int) -> datetime:
    """Convert a stored time; one outside the calendar becomes the end of the calendar."""
    try:
        return datetime.fromtimestamp(micros / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return _FIRST if micros < 0 else _LAST
    except TypeError:
        raise Damaged("the time of a checkpoint is not a number", hint="Delete its session.") from None


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """A checkpoint without its state. The first five fields are the caller's, and come back as they were."""

    checkpoint_id: str
    session_id: str
    timestamp: datetime
    node_name: str
    step: int
    parent_id: str | None = None
    namespace: str = ""
    tags: tuple[str, ...] = ()
    run_id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    sequence: int | None = field(default=None, compare=False)
    """Given by the store: greater is newer, whatever clocks say (P10)."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of one session at one step."""

    metadata: CheckpointMetadata
    state: Any

    def to_dict(self, serde: Serde | None = None) -> dict[str, Any]:
        """A flat dict of JSON's types; `state` is a text of lossless JSON (`holdfast.serde.to_json`)."""
        meta, serde = self.metadata, serde or Serde()
        data: dict[str, Any] = {name: getattr(meta, name) for name in _FLAT}
        data["timestamp"] = meta.timestamp.isoformat()
        if repr(datetime.fromisoformat(data["timestamp"])) != repr(meta.timestamp):  # the name of a zone, or a fold
            data[_EXACT] = to_json(serde.encode(meta.timestamp, "timestamp"))
        for name, default in _MORE.items():
            if getattr(meta, name) != default:
                data[name] = getattr(meta, name)
        if "tags" in data:
            data["tags"] = list(meta.tags)
        if "extra" in data:
            data["extra"] = to_json(serde.encode(dict(meta.extra), "extra"))
        return data | {"state": to_json(serde.encode(self.state, "state"))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], serde: Serde | None = None) -> Checkpoint:
        """The checkpoint that `to_dict` encoded; `state` may also be a plain value."""
        serde = serde or Serde()
        missing = [name for name in (*_FLAT, "state") if name not in data]
        if missing:
            raise Refused(f"a checkpoint lacks {', '.join(missing)}", hint="Give the result of `to_dict`.")
        fields = {name: data[name] for name in (*_FLAT, *_MORE) if name in data}
        try:
            if isinstance(fields["timestamp"], str):
                fields["timestamp"] = _timestamp(fields["timestamp"], _read(data.get(_EXACT), serde))
            fields["tags"] = tuple(fields.get("tags", ()))
        except (ValueError, TypeError) as error:
            raise Refused(f"this is not a checkpoint: {error}", hint="Give the result of `to_dict`.") from None
        fields["extra"] = _read(fields.get("extra", {}), serde)
        return cls(CheckpointMetadata(**fields), _read(data["state"], serde))


def _timestamp(text: str, exact: Any) -> datetime:
    """Parse a timestamp; the exact value replaces it if both are the same moment."""
    is_exact = isinstance(exact, datetime) and exact.isoformat() == text
    return exact if is_exact else datetime.fromisoformat(text)


def _read(value: Any, serde: Serde) -> Any:
    return serde.decode(from_json(value)) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Encoded:
    """A checkpoint whose state is as `Serde.encode` wrote it."""

    metadata: CheckpointMetadata
    state: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """A value that a task wrote after a checkpoint and that is not yet part of the next one."""

    task_id: str
    index: int
    channel: str
    value: Any
    task_path: str = ""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session, without its states."""

    session_id: str
    checkpoints: int
    latest: int
    """The sequence of its newest checkpoint, and where a listing goes on."""
    saved_at: datetime


@dataclass(frozen=True, slots=True)
class StateChange:
    """One place in which two states differ."""

    path: str
    kind: str  # "added" | "removed" | "changed"
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class StateDiff:
    """What differs between two steps of a session."""

    before: CheckpointMetadata
    after: CheckpointMetadata
    changes: Sequence[StateChange]

    def __bool__(self) -> bool:
        return bool(self.changes)


@dataclass(frozen=True, slots=True)
class PrunedStates:
    """What a policy deletes (in a dry run: would delete), and why the rest stays."""

    removed: Sequence[CheckpointMetadata]
    kept: Mapping[int, str]
    """By sequence: why it stays."""
    bytes_freed: int
    is_done: bool

    def __bool__(self) -> bool:
        return bool(self.removed)


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy did."""

    sessions: int
    checkpoints: int
    skipped: int
    """Already there, the same."""
    tombstones: int = 0
    """Sessions that were deleted in the source and never existed in the target: now deleted there, too."""
    conflicts: Mapping[str, str] = field(default_factory=dict)
    """With `go_on`: the sessions that were not copied further, and why."""
    damaged: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """With `go_on`: the checkpoints (session, namespace, id) that could not be read, and why."""


@dataclass(frozen=True, slots=True)
class SessionSize:
    """The size of a session, in stored bytes."""

    session_id: str
    own_bytes: int
    """Of its checkpoints and writes, and of the parts that no other session needs."""
    shared_bytes: int
    """Of the parts that it shares with its forks."""


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """The size of a tenant's states. Cheap enough to call every few seconds."""

    sessions: int
    tombstones: int
    checkpoints: int
    parts: int
    part_bytes: int
    """As stored: compressed and encrypted."""
    row_bytes: int
    """Of the rows of checkpoints and writes."""
    sequence: int
    """The greatest number given: if it is unchanged, nothing was saved since."""

    @property
    def total_bytes(self) -> int:
        """Parts and rows together."""
        return self.part_bytes + self.row_bytes
