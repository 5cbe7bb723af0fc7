"""What callers ask for, looked at before anything is done: what makes no sense is Refused, and named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import Refused
from holdfast.flow.model import Checkpoint, CheckpointMetadata, Write
from holdfast.flow.names import check_name
from holdfast.flow.store import Anything, Place

_INDEX_BITS = 63


def check_options(ttl: Any, max_state_bytes: Any, memory_bytes: Any) -> None:
    """How long states live and how large they may be; one that lives for no time is lost when it is saved."""
    if ttl is not None and (not isinstance(ttl, timedelta) or ttl <= timedelta(0)):
        raise Refused(f"ttl is {ttl!r}", hint="Give a timedelta of some length, or None.")
    for value, what in ((max_state_bytes, "max_state_bytes"), (memory_bytes, "memory_bytes")):
        if type(value) is not int or value < 0:
            raise Refused(f"{what} is {value!r}", hint="Give a whole number, 0 or more.")


def check_checkpoint(checkpoint: Any, expected_parent: Any) -> CheckpointMetadata:
    """The metadata of a checkpoint that is to be saved."""
    if not isinstance(checkpoint, Checkpoint):
        raise Refused(f"a {type(checkpoint).__name__} is not a checkpoint", hint="Give a Checkpoint.")
    if not isinstance(expected_parent, Anything) and expected_parent is not None:
        check_name(expected_parent, "expected_parent")
    return check_metadata(checkpoint.metadata)


def check_metadata(meta: Any) -> CheckpointMetadata:
    """Metadata as given; Refused, with the field, if something in it makes no sense."""
    if not isinstance(meta, CheckpointMetadata):
        raise Refused("a checkpoint's metadata is not a CheckpointMetadata", hint=f"It is a {type(meta).__name__}.")
    check_name(meta.checkpoint_id, "checkpoint_id")
    check_name(meta.session_id, "session_id")
    check_name(meta.namespace, "namespace", empty=True)
    for value, what in ((meta.parent_id, "parent_id"), (meta.run_id, "run_id")):
        if value is not None:
            check_name(value, what)
    if not isinstance(meta.timestamp, datetime):
        raise Refused("timestamp is not a datetime", hint=f"It is a {type(meta.timestamp).__name__}.")
    if type(meta.node_name) is not str or type(meta.step) is not int:
        raise Refused("node_name is text and step a whole number", hint="Give them as such.")
    check_texts(meta.tags, "tags")
    if not isinstance(meta.extra, Mapping) or not all(type(key) is str for key in meta.extra):
        raise Refused("extra is not a mapping of names to values", hint="Give a dict with str keys.")
    return meta


def check_texts(texts: Any, what: str) -> None:
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(type(text) is str for text in texts):
        raise Refused(f"{what} is not a list of texts", hint="Give a tuple or list of str.")


def check_place(session_id: Any, checkpoint_id: Any, namespace: Any) -> None:
    """The names of a checkpoint (None: of the newest)."""
    check_name(session_id, "session_id")
    check_name(namespace, "namespace", empty=True)
    if checkpoint_id is not None:
        check_name(checkpoint_id, "checkpoint_id")


def check_places(places: Any) -> None:
    if not isinstance(places, Sequence) or not all(isinstance(place, Place) for place in places):
        raise Refused("these are not places of checkpoints", hint="Give Place(session, namespace, checkpoint_id).")
    for name in (name for place in places for name in place):
        check_name(name, "a name of the checkpoint", empty=True)


def check_writes(place: Any, writes: Any) -> None:
    """Writes and where they belong; their values are looked at when they are encoded."""
    check_places([place])
    if not isinstance(writes, Sequence) or not all(isinstance(write, Write) for write in writes):
        raise Refused("these are not writes", hint="Give a list of Write.")
    for write in writes:
        check_name(write.task_id, "task_id", empty=True)
        check_texts((write.channel, write.task_path), "channel and task_path")
        if type(write.index) is not int or write.index.bit_length() > _INDEX_BITS:
            raise Refused(f"the index of a write is {write.index!r}", hint="Give a whole number of 64 bits.")


def check_query(session_id: Any, namespace: Any, before: Any, where: Any, tags: Any, run_id: Any) -> None:
    """What a listing is narrowed down by; None is anything."""
    for value, what in ((session_id, "session_id"), (namespace, "namespace"), (run_id, "run_id")):
        if value is not None:
            check_name(value, what, empty=True)
    check_before(before)
    if where is not None and not isinstance(where, Mapping):
        raise Refused("`where` is not a mapping of names to values", hint="Give a dict with str keys.")
    check_texts(tags, "tags")


def check_before(before: Any) -> None:
    if before is not None and type(before) is not int:
        raise Refused(f"before is {before!r}", hint="Give the sequence of a checkpoint, or `latest` of a session.")
