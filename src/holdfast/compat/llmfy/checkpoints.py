"""llmfy's checkpoint and its metadata, in both forms that it had: five fields, and ten since version 0.11."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from holdfast import flow
from holdfast.errors import Refused
from holdfast.serde import Serde, from_json, to_json

_ALIASES = {"created_at": "timestamp", "node": "node_name"}
_SHORT = ("checkpoint_id", "session_id", "timestamp", "node_name", "step")
_LONG = (
    "checkpoint_id", "session_id", "run_id", "created_at", "node", "prev_node", "step", "updated_fields", "attempt",
    "dispatch_id",
)  # fmt: skip
_EXTRA = ("prev_node", "updated_fields", "attempt", "dispatch_id")


@dataclass(init=False)
class CheckpointMetadata:
    """A checkpoint without its state. Takes the five fields or the ten, by position or by name."""

    checkpoint_id: str
    session_id: str
    timestamp: datetime
    node_name: str
    step: int
    run_id: str | None = None
    prev_node: str | None = None
    updated_fields: list[str] | None = None
    attempt: int | None = None
    dispatch_id: str | None = None

    def __init__(self, *args: Any, **values: Any) -> None:
        names = _LONG if len(args) > 2 and isinstance(args[2], str) else _SHORT
        if len(args) > len(names):
            raise TypeError(f"CheckpointMetadata takes {len(names)} positional arguments, but {len(args)} were given")
        given: dict[str, Any] = {}
        for name, value in (*zip(names, args, strict=False), *values.items()):
            field = _ALIASES.get(name, name)
            if field in given:
                raise TypeError(f"CheckpointMetadata got two values for {field}")
            given[field] = value
        known = [each.name for each in fields(self)]
        if unknown := given.keys() - set(known):
            raise TypeError(f"CheckpointMetadata got an unexpected argument: {min(unknown)}")
        if missing := [name for name in _SHORT if name not in given]:
            raise TypeError(f"CheckpointMetadata lacks {', '.join(missing)}")
        for name in known:
            setattr(self, name, given.get(name))

    @property
    def created_at(self) -> datetime:
        """The name of `timestamp` in the form with ten fields."""
        return self.timestamp

    @created_at.setter
    def created_at(self, value: datetime) -> None:
        self.timestamp = value

    @property
    def node(self) -> str:
        """The name of `node_name` in the form with ten fields."""
        return self.node_name

    @node.setter
    def node(self, value: str) -> None:
        self.node_name = value


@dataclass
class Checkpoint:
    """The state of one session at one step."""

    metadata: CheckpointMetadata
    state: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return a flat dict. With five fields, `state` is a text of lossless JSON; with ten, it is the state."""
        meta = self.metadata
        if meta.run_id is None:
            told = {name: getattr(meta, name) for name in _SHORT} | {"timestamp": meta.timestamp.isoformat()}
            return told | {"state": self._serialize_state(self.state)}
        told = {name: getattr(meta, name) for name in _LONG} | {"created_at": meta.timestamp.isoformat()}
        return told | {"state": self.state}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """Return the checkpoint of a dict in either form. No class or function that it names is used (P7)."""
        values = {name: data[name] for name in (*_SHORT, *_LONG) if name in data}
        for name in ("timestamp", "created_at"):
            if isinstance(values.get(name), str):
                values[name] = datetime.fromisoformat(values[name])
        state = data["state"]
        return cls(CheckpointMetadata(**values), cls._deserialize_state(state) if isinstance(state, str) else state)

    @staticmethod
    def _serialize_state(state: dict[str, Any]) -> str:
        return to_json(Serde().encode(state, "state"))

    @staticmethod
    def _deserialize_state(text: str) -> Any:
        return Serde().decode(from_json(text))


def to_flow(checkpoint: Any) -> flow.Checkpoint:
    """Return our checkpoint for one of llmfy's own class, or of the class above."""
    try:
        meta, state = checkpoint.metadata, checkpoint.state
        values = {name: _read(meta, name) for name in _SHORT}
    except AttributeError as error:
        raise Refused(
            f"a {type(checkpoint).__name__} is not a checkpoint: {error}", hint="Pass a Checkpoint."
        ) from None
    extra = {name: getattr(meta, name, None) for name in _EXTRA}
    return flow.Checkpoint(
        flow.CheckpointMetadata(
            **values,
            run_id=getattr(meta, "run_id", None),
            extra={name: value for name, value in extra.items() if value is not None},
        ),
        state,
    )


def from_flow(checkpoint: flow.Checkpoint) -> Checkpoint:
    """Return the checkpoint that `to_flow` was given; its metadata has both forms' names."""
    meta = checkpoint.metadata
    values = {name: getattr(meta, name) for name in _SHORT} | {name: meta.extra.get(name) for name in _EXTRA}
    return Checkpoint(CheckpointMetadata(**values, run_id=meta.run_id), checkpoint.state)


def _read(meta: Any, name: str) -> Any:
    other = next((alias for alias, field in _ALIASES.items() if field == name), name)
    return getattr(meta, name) if hasattr(meta, name) else getattr(meta, other)
