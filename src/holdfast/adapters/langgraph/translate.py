"""Translates LangGraph's checkpoints to those of a flow, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.constants import START

from holdfast import flow
from holdfast.errors import Refused
from holdfast.serde import Registry

_CHANNEL = "channel:"
_REST = "checkpoint"
_BARRIER = "join:"
"""The prefix of LangGraph's channels for edges that wait for several nodes."""
_METADATA = "metadata"
COUNTERS = "counters_since_delta_snapshot"
"""The key of LangGraph's metadata that lists delta channels without a snapshot in the checkpoint."""
WORKSPACE = "workspace"
"""The key of a LangGraph checkpoint's metadata that names the checkpoint of the files."""


def thread_of(config: RunnableConfig) -> str:
    try:
        return str(config["configurable"]["thread_id"])
    except KeyError:
        raise Refused("the config has no thread_id", hint="Give {'configurable': {'thread_id': …}}.") from None


def namespace_of(config: RunnableConfig) -> str:
    return str(config["configurable"].get("checkpoint_ns") or "")


def place_of(config: RunnableConfig) -> flow.Place:
    """The place that a config names in full."""
    checkpoint_id = get_checkpoint_id(config)
    if checkpoint_id is None:
        raise Refused("the config has no checkpoint_id", hint="Give the config that `put` returned.")
    return flow.Place(thread_of(config), namespace_of(config), checkpoint_id)


def config_of(place: flow.Place) -> RunnableConfig:
    thread_id, namespace, checkpoint_id = place
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def to_flow(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    files: str | None,
    registry: Registry,
) -> flow.Checkpoint:
    """Each channel is a key of the state, so that one that grows costs only what it grew by (P8)."""
    told = cast(dict[str, Any], get_checkpoint_metadata(config, metadata))
    run_id, step = told.get("run_id"), told.get("step")
    meta = flow.CheckpointMetadata(
        checkpoint_id=checkpoint["id"],
        session_id=thread_of(config),
        timestamp=_timestamp(checkpoint.get("ts")),
        node_name=str(told.get("source", "")),
        step=step if type(step) is int else 0,
        parent_id=get_checkpoint_id(config) or None,
        namespace=namespace_of(config),
        run_id=run_id if isinstance(run_id, str) and run_id else None,
        extra={_METADATA: told} | ({WORKSPACE: files} if files else {}) | _marked(checkpoint, told),
    )
    rest = {key: _named(value) for key, value in checkpoint.items() if key != "channel_values"}
    values = {
        _CHANNEL + name: _of_channel(name, value, registry) for name, value in checkpoint["channel_values"].items()
    }
    return flow.Checkpoint(meta, {_REST: rest, **values})


def name_of(name: Any) -> Any:
    """The name of a node or a channel as a plain str: a program may use members of a str enum."""
    return str.__str__(name) if isinstance(name, str) else name


def plain_name(name: Any, registry: Registry) -> Any:
    """`name_of` where a name may be data of the user: a member of a registered enum comes back as it is (P2)."""
    return name_of(name) if isinstance(name, Enum) and registry.of_class(type(name)) is None else name


def _named(value: Any) -> Any:
    """The fields of a checkpoint other than its channels, with names as plain str."""
    if isinstance(value, dict):
        return {name_of(key): _named(item) for key, item in value.items()}
    return [name_of(item) for item in value] if isinstance(value, list) else value


def _of_channel(channel: str, value: Any, registry: Registry) -> Any:
    """The value of a channel; in those that contain names (inputs and barriers), with names as plain str."""
    if channel == START and type(value) is dict:
        return {plain_name(key, registry): item for key, item in value.items()}
    if not channel.startswith(_BARRIER):
        return value
    if type(value) is tuple:  # the names that came, and whether the run is finished
        return tuple(_of_channel(channel, each, registry) for each in value)
    return set(map(name_of, value)) if type(value) is set else name_of(value)


def _marked(checkpoint: Checkpoint, told: Mapping[str, Any]) -> dict[str, Any]:
    """Which delta channels need earlier checkpoints, and which are complete here."""
    values = checkpoint["channel_values"]
    marks = {name: False for name, value in values.items() if isinstance(value, _DeltaSnapshot)}
    marks |= {name: name not in values for name in told.get(COUNTERS) or () if name in checkpoint["channel_versions"]}
    return {flow.MADE_OF_PARENTS: marks} if marks else {}


def is_of_a_graph(meta: flow.CheckpointMetadata) -> bool:
    """Whether a saver saved it; other programs may have sessions in the same store."""
    return _METADATA in meta.extra


def to_langgraph(saved: flow.Checkpoint, writes: Sequence[flow.Write]) -> CheckpointTuple:
    meta, state = saved.metadata, saved.state
    told = metadata_of(meta)
    values = {name.removeprefix(_CHANNEL): value for name, value in state.items() if name != _REST}
    place = flow.Place(meta.session_id, meta.namespace, meta.checkpoint_id)
    return CheckpointTuple(
        config=config_of(place),
        checkpoint=cast(Checkpoint, {**state[_REST], "channel_values": values}),
        metadata=cast(CheckpointMetadata, told),
        parent_config=config_of(place._replace(checkpoint_id=meta.parent_id)) if meta.parent_id else None,
        pending_writes=[(write.task_id, write.channel, write.value) for write in writes],
    )


def metadata_of(meta: flow.CheckpointMetadata) -> Mapping[str, Any]:
    """LangGraph's metadata; Refused if no saver saved the checkpoint."""
    if not is_of_a_graph(meta):
        raise Refused(f"checkpoint {meta.checkpoint_id!r} was not saved by a graph", hint="Use another thread_id.")
    files = meta.extra.get(WORKSPACE)
    told: dict[str, Any] = meta.extra[_METADATA]
    return told | {WORKSPACE: files} if files else told


def to_writes(writes: Sequence[tuple[str, Any]], task_id: str, task_path: str, registry: Registry) -> list[flow.Write]:
    return [
        flow.Write(
            task_id,
            WRITES_IDX_MAP.get(channel, position),
            name_of(channel),
            _of_channel(channel, _storable(value), registry),
            task_path,
        )
        for position, (channel, value) in enumerate(writes)
    ]


def are_replacing(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether all are of the special kinds, of which the last one counts."""
    return all(channel in WRITES_IDX_MAP for channel, _ in writes)


def _storable(value: Any) -> Any:
    """An exception becomes its text, as in LangGraph's own savers: its class may be unknown where it is read."""
    return repr(value) if isinstance(value, BaseException) else value


def _timestamp(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return datetime.now(UTC)
