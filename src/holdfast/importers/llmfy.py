"""llmfy's checkpoints in SQLite, PostgreSQL and Redis: each becomes a checkpoint of a flow store.

llmfy writes states as JSON, in which an object is a dict with the name of its class. Such a dict is carried over as it
is (P7): llmfy's own flow engine, with the classes of `holdfast.compat.llmfy`, makes the object again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

from holdfast import flow
from holdfast.compat.llmfy.checkpoints import Checkpoint, CheckpointMetadata, to_flow
from holdfast.errors import Damaged, Extra, Refused, Unavailable
from holdfast.flow import Place
from holdfast.importers import sqlite_source
from holdfast.importers.model import ImportRequest, Losses
from holdfast.importers.sql_urls import postgres_columns, postgres_url, sql_errors
from holdfast.importers.states_target import SourceState, StatesImport, check_target
from holdfast.safe_pickle import read_pickle
from holdfast.serde import Registry

STATE_MAX_BYTES = 1 << 30
"""A state that is larger when it is decompressed is left behind and reported."""

_TABLE = "llmfy_checkpoint"
_SHORT = ("checkpoint_id", "session_id", "timestamp", "node_name", "step")
_LONG = (
    "checkpoint_id", "session_id", "run_id", "created_at", "node", "prev_node", "step", "updated_fields", "attempt",
    "dispatch_id",
)  # fmt: skip
_PREFIX = "llmfy_checkpoint:"
_REDIS = ("redis", "rediss", "unix")
_ENCRYPTED = b"gAAAAA"
"""What a value of Fernet begins with."""


class RawState(NamedTuple):
    """A checkpoint of llmfy, its state not decoded."""

    values: Mapping[str, Any]
    state: Any
    why: str = ""
    """Why it cannot be read at all."""


class Rows(Protocol):
    """Checkpoints of llmfy in one place."""

    def count(self) -> int: ...
    def rows(self) -> Iterator[RawState]: ...


def recognize(source: str) -> bool:
    """Whether a database or a server has checkpoints of llmfy."""
    if (url := postgres_url(source)) is not None:
        return bool(postgres_columns(url, [_TABLE]))
    if source.partition("://")[0] in _REDIS:
        with _redis(source) as (client, prefix):
            return any(True for _ in _keys(client, prefix))
    if not sqlite_source.is_sqlite(source):
        return False
    with sqlite_source.reading(source) as connection:
        return bool(sqlite_source.columns(connection, _TABLE))


def open_source(request: ImportRequest) -> StatesImport:
    """Open the table or the keys. Refused if they are of a version that is not known."""
    check_target(request)
    return StatesImport(LlmfySource(request.source), request, Registry())


class LlmfySource:
    """Checkpoints of llmfy, from wherever."""

    kind = "llmfy"
    title = "checkpoints of llmfy"

    def __init__(self, source: str) -> None:
        self._source = source
        self._stack = contextlib.ExitStack()
        try:
            with self.translated():
                self._rows = self._opened(source)
        except BaseException:
            self._stack.close()
            raise

    def _opened(self, source: str) -> Rows:
        if (url := postgres_url(source)) is not None:
            from holdfast.durable import postgres  # an extra, which `postgres_columns` asks for

            names = _names(postgres_columns(url, [_TABLE]).get(_TABLE, set()))
            return _SqlRows(self._stack.enter_context(postgres.reading(url)), names, "")
        if source.partition("://")[0] in _REDIS:
            return _RedisRows(*self._stack.enter_context(_redis(source)))
        connection = self._stack.enter_context(sqlite_source.reading(source))
        return _SqlRows(connection, _names(sqlite_source.columns(connection, _TABLE)), ", rowid")

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return _redis_errors() if self._source.partition("://")[0] in _REDIS else sql_errors(self._source)

    def count(self) -> int:
        return self._rows.count()

    def states(self) -> Iterator[SourceState]:
        for row in self._rows.rows():
            place = Place(_name(row.values.get("session_id")), "", _name(row.values.get("checkpoint_id")))
            yield SourceState(place, partial(_load, row))

    def close(self) -> None:
        self._stack.close()


def _name(value: Any) -> str:
    return "" if value is None else str(value)


def _load(row: RawState, losses: Losses) -> flow.Checkpoint:
    if row.why:
        raise Damaged(row.why)
    values = dict(row.values)
    when = "created_at" if "created_at" in values else "timestamp"
    values[when] = _time(values.get(when))
    if isinstance(values.get("updated_fields"), str | bytes):
        values["updated_fields"] = _json(values["updated_fields"])
    try:
        metadata = CheckpointMetadata(**values)
    except TypeError as error:
        raise Damaged(f"it is not a checkpoint of llmfy ({error})") from None
    state = _state(row.state)
    if not isinstance(state, dict):
        raise Damaged("its state is not an object")
    return to_flow(Checkpoint(metadata, state))


def _state(stored: Any) -> Any:
    """Decode a state: JSON, compressed or not, as bytes, text or base64."""
    if isinstance(stored, dict):
        return stored
    if isinstance(stored, str):
        try:
            return _json(stored)
        except Damaged:
            try:
                stored = base64.b64decode(stored, validate=True)
            except ValueError:  # also binascii.Error
                raise Damaged("its state is not JSON") from None
    if not isinstance(stored, bytes):
        raise Damaged(f"its state is a {type(stored).__name__}")
    if stored.startswith(_ENCRYPTED):
        raise Refused("its state is encrypted")
    if stored[:1] == b"\x80":
        return read_pickle(stored)
    return _json(_inflated(stored) if stored[:1] == b"x" else stored)


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, STATE_MAX_BYTES)
    except zlib.error as error:
        raise Damaged(f"its state cannot be decompressed ({error})") from None
    if inflater.unconsumed_tail or not inflater.eof:
        what = f"larger than {STATE_MAX_BYTES:,} bytes" if inflater.unconsumed_tail else "cut short"
        raise Damaged(f"its state is {what}")
    return found


def _json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is not JSON ({error})") from None


def _time(value: Any) -> datetime:
    """Databases of llmfy store UTC without saying so."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Damaged("it has no valid time") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


class _SqlRows:
    """The table of `SQLCheckpointer`."""

    def __init__(self, connection: Any, names: tuple[str, ...], last: str) -> None:
        self._connection = connection
        self._names = names
        self._order = f"{'created_at' if names is _LONG else 'timestamp'}, step{last}"

    def count(self) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()[0])

    def rows(self) -> Iterator[RawState]:
        # places first: reading the states in order would sort all of them in memory
        is_sqlite = ", rowid" in self._order
        name, mark = ("rowid", "?") if is_sqlite else ("checkpoint_id", "%s")  # an id in SQLite may be NULL
        keys = self._connection.execute(f"SELECT {name} FROM {_TABLE} ORDER BY {self._order}").fetchall()
        query = f"SELECT {', '.join(self._names)}, state FROM {_TABLE} WHERE {name} = {mark}"
        for key in keys:
            *values, state = self._connection.execute(query, key).fetchone()
            yield RawState(dict(zip(self._names, values, strict=True)), state)


def _names(columns: set[str]) -> tuple[str, ...]:
    for names in (_LONG, _SHORT):
        if columns >= {*names, "state"}:
            return names
    raise Refused(
        f"the table {_TABLE} has other columns than any known version of llmfy writes",
        hint="The tables of llmfy 0.9 to 0.11 are known. Nothing was imported.",
    )


class _RedisRows:
    """The keys of `RedisCheckpointer`."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def count(self) -> int:
        return sum(1 for _ in _keys(self._client, self._prefix))

    def rows(self) -> Iterator[RawState]:
        ordered = []
        for key in _keys(self._client, self._prefix):
            values = self._read(key).values
            when, step = values.get("created_at") or values.get("timestamp"), values.get("step")
            ordered.append((str(when), step if isinstance(step, int) else 0, key))
        for _, _, key in sorted(ordered):
            yield self._read(key)

    def _read(self, key: bytes) -> RawState:
        own = key.decode("utf-8", "replace").removeprefix(f"{self._prefix}checkpoint:")
        try:
            found = self._value(key)
        except Damaged as error:
            return RawState({"session_id": "", "checkpoint_id": own}, None, error.message)
        names = _LONG if "created_at" in found else _SHORT
        return RawState({name: found.get(name) for name in names}, found.get("state"))

    def _value(self, key: bytes) -> dict[str, Any]:
        if (kind := self._client.type(key)) != b"string":
            raise Damaged(f"its key has a {kind.decode('ascii', 'replace')}, not text")
        found = _json(self._client.get(key) or b"null")
        if not isinstance(found, dict):
            raise Damaged("it is not a JSON object")
        return found


def _keys(client: Any, prefix: str) -> Iterator[bytes]:
    escaped = "".join(f"\\{each}" if each in "*?[]\\^" else each for each in prefix)
    return iter(client.scan_iter(match=f"{escaped}checkpoint:*", count=1000))


@contextlib.contextmanager
def _redis(url: str) -> Iterator[tuple[Any, str]]:
    """A client, and the prefix of the keys: that of the URL (`?prefix=`), or llmfy's own."""
    with Extra("redis"):
        import redis

    from urllib.parse import parse_qsl, urlencode

    plain, mark, query = url.partition("?")
    options = dict(parse_qsl(query))
    prefix = options.pop("prefix", _PREFIX)
    try:
        client = redis.from_url(plain + (mark + urlencode(options) if options else ""), socket_connect_timeout=10)
    except ValueError as error:
        raise Refused(f"invalid Redis URL: {error}", hint="Write redis://localhost:6379/0.") from None
    with _redis_errors(), contextlib.closing(client):
        yield client, prefix


@contextlib.contextmanager
def _redis_errors() -> Iterator[None]:
    with Extra("redis"):
        import redis

    try:
        yield
    except redis.RedisError as error:
        raise Unavailable(f"Redis cannot be read: {error}", hint="Check the URL and the server.") from None
