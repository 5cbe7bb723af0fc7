"""Checks of arguments: an invalid one is Refused by name before anything is done."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import Damaged, Refused
from holdfast.flow.model import Checkpoint, CheckpointMetadata, Write
from holdfast.flow.store import Anything, Place
from holdfast.validation import check_count, check_mapping

_INDEX_BITS = 63


def check_sizes(max_state_bytes: Any, memory_bytes: Any) -> None:
    for value, what in ((max_state_bytes, "max_state_bytes"), (memory_bytes, "memory_bytes")):
        check_count(value, what)


def check_ttl(ttl: Any) -> timedelta | None:
    """A time-to-live, given as a `timedelta` or in seconds. A state that lives for no time would be lost when saved."""
    if ttl is None:
        return None
    is_seconds = isinstance(ttl, int | float) and not isinstance(ttl, bool)
    try:
        found = timedelta(seconds=ttl) if is_seconds else ttl
    except (OverflowError, ValueError):  # not a number, or more than a timedelta can be
        found = None
    if not isinstance(found, timedelta) or found <= timedelta(0):
        raise Refused(f"invalid ttl {ttl!r}", hint="Give seconds above 0, a timedelta of some length, or None.")
    return found


def as_place(session_id: Any, checkpoint: Any, namespace: Any) -> tuple[Any, Any]:
    """The id and the namespace of a checkpoint that is given by its id, or itself.

    Refused if it is of another session.
    """
    meta = checkpoint.metadata if isinstance(checkpoint, Checkpoint) else checkpoint
    if not isinstance(meta, CheckpointMetadata):
        return checkpoint, namespace
    if meta.session_id != session_id or namespace not in ("", meta.namespace):
        raise Refused(
            f"checkpoint {meta.checkpoint_id!r} belongs to session {meta.session_id!r}, not {session_id!r}",
            hint="Give the session and the namespace of the checkpoint.",
        )
    return meta.checkpoint_id, meta.namespace


def check_checkpoint(checkpoint: Any, expected_parent: Any) -> CheckpointMetadata:
    """The metadata of a checkpoint that is to be saved."""
    if not isinstance(checkpoint, Checkpoint):
        raise Refused(f"a {type(checkpoint).__name__} is not a checkpoint", hint="Give a Checkpoint.")
    if not isinstance(expected_parent, Anything) and expected_parent is not None:
        check_name(expected_parent, "expected_parent")
    return check_metadata(checkpoint.metadata)


def check_metadata(meta: Any) -> CheckpointMetadata:
    """Metadata as given; Refused, naming the field, if something in it is invalid."""
    if not isinstance(meta, CheckpointMetadata):
        raise Refused(
            "a checkpoint's metadata is not a CheckpointMetadata",
            hint=f"It is a {type(meta).__name__}: pass a CheckpointMetadata.",
        )
    check_name(meta.checkpoint_id, "checkpoint_id")
    check_name(meta.session_id, "session_id")
    check_name(meta.namespace, "namespace", empty=True)
    for value, what in ((meta.parent_id, "parent_id"), (meta.run_id, "run_id")):
        if value is not None:
            check_name(value, what)
    if not isinstance(meta.timestamp, datetime):
        raise Refused("timestamp is not a datetime", hint=f"It is a {type(meta.timestamp).__name__}: pass a datetime.")
    if type(meta.node_name) is not str or type(meta.step) is not int:
        raise Refused("node_name must be a str and step an int", hint="Pass node_name='…' and step=N.")
    check_texts(meta.tags, "tags")
    if not isinstance(meta.extra, Mapping) or not all(type(key) is str for key in meta.extra):
        raise Refused("extra is not a mapping with str keys", hint="Give a dict with str keys.")
    return meta


def check_texts(texts: Any, what: str) -> None:
    """P2: exactly `str`, unlike `holdfast.validation`: a subclass would come back as the plain text."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not all(type(text) is str for text in texts):
        raise Refused(f"{what} is not a list of str", hint="Give a tuple or list of str.")


def check_place(session_id: Any, checkpoint_id: Any, namespace: Any) -> None:
    """Check the names of a checkpoint (None: of the newest)."""
    check_name(session_id, "session_id")
    check_name(namespace, "namespace", empty=True)
    if checkpoint_id is not None:
        check_name(checkpoint_id, "checkpoint_id")


def check_places(places: Any) -> None:
    if not isinstance(places, Sequence) or not all(isinstance(place, Place) for place in places):
        raise Refused("places is not a list of Place", hint="Give Place(session, namespace, checkpoint_id).")
    for name in (name for place in places for name in place):
        check_name(name, "a name of the checkpoint", empty=True)


def check_writes(place: Any, writes: Any) -> None:
    """Check writes and their place; their values are checked when they are encoded."""
    check_places([place])
    if not isinstance(writes, Sequence) or not all(isinstance(write, Write) for write in writes):
        raise Refused("writes is not a list of Write", hint="Give a list of Write.")
    for write in writes:
        check_name(write.task_id, "task_id", empty=True)
        check_texts((write.channel, write.task_path), "channel and task_path")
        if type(write.index) is not int or write.index.bit_length() > _INDEX_BITS:
            raise Refused(f"invalid index of a write: {write.index!r}", hint="Give an int of at most 64 bits.")


def check_query(session_id: Any, namespace: Any, before: Any, where: Any, tags: Any, run_id: Any) -> None:
    """Check the filters of a listing; None matches anything."""
    for value, what in ((session_id, "session_id"), (namespace, "namespace"), (run_id, "run_id")):
        if value is not None:
            check_name(value, what, empty=True)
    check_before(before)
    if where is not None:
        check_mapping(where, "where")
    check_texts(tags, "tags")


def check_before(before: Any) -> None:
    if before is not None and type(before) is not int:
        raise Refused(
            f"invalid before: {before!r}", hint="Give the sequence of a checkpoint, or `latest` of a session."
        )


_MOST_BYTES = 500
"""PostgreSQL takes up to 2,704 in one entry of an index, and five names make up one."""
_MOST_EACH = 6
"""The most bytes that a character can become."""
_UNSAYABLE = re.compile("[\x00%\ud800-\udfff]")
_ESCAPED = re.compile("%([0-9a-f]{2}|u[0-9a-f]{4})")


def check_name(value: Any, what: str, *, empty: bool = False) -> str:
    """A name as given; Refused if it is not a valid name."""
    if type(value) is not str:
        raise Refused(f"{what} is a {type(value).__name__}, not text", hint="Give a str.")
    if not value and not empty:
        raise Refused(f"{what} is empty", hint="Give it at least one character.")
    if len(value) * _MOST_EACH > _MOST_BYTES and len(escape(value).encode()) > _MOST_BYTES:
        raise Refused(f"{what} has more than {_MOST_BYTES} bytes", hint="Give a shorter one.")
    return value


def escape(name: str) -> str:
    """Write a name without NUL and lone surrogates; most names stay as they are."""
    if name.isascii() and "%" not in name and "\0" not in name:
        return name
    return _UNSAYABLE.sub(_escaped, name)


def unescape(written: str) -> str:
    try:
        is_plain = "%" not in written
    except TypeError:  # SQLite stores bytes in a TEXT column if another program writes them there
        raise Damaged("a stored name is corrupt: not text", hint="Use another copy, or delete its session.") from None
    return written if is_plain else _ESCAPED.sub(lambda match: chr(int(match[1].removeprefix("u"), 16)), written)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%{code:02x}" if code < 256 else f"%u{code:04x}"
