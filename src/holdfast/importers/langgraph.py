"""The tables of LangGraph's own savers, in SQLite and PostgreSQL: each row becomes a checkpoint of a flow store.

`HoldfastSaver` then continues the threads: the states are those that it would have saved.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from holdfast import flow
from holdfast.errors import Damaged, Extra, HoldfastError, Refused
from holdfast.escaping import escape
from holdfast.flow import Place
from holdfast.importers import sqlite_source
from holdfast.importers.model import ImportRequest, Losses
from holdfast.importers.sql_urls import postgres_columns, postgres_url, sql_errors
from holdfast.importers.states_target import SourceState, StatesImport, check_target

_TABLES = {
    "checkpoints": {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"},
    "writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"},
}
_PG_TABLES = {
    "checkpoints": _TABLES["checkpoints"],
    "checkpoint_blobs": {"thread_id", "checkpoint_ns", "channel", "version", "type", "blob"},
    "checkpoint_writes": {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "blob"},
}
_LATEST = 4
"""The newest version of a checkpoint (its `v`) that is known."""
_TASKS = "__pregel_tasks"
_MIGRATED = 4
"""Since this version of LangGraph's format, tasks to be sent are in a channel, and no longer in the parent's writes."""


class RawCheckpoint(NamedTuple):
    """A row of the table of checkpoints."""

    place: Place
    parent_id: str | None
    type: str | None
    checkpoint: bytes
    metadata: bytes


class RawWrite(NamedTuple):
    """A row of the table of writes."""

    task_id: str
    idx: Any
    """A whole number, unless the row is damaged: SQLite stores anything."""
    channel: str
    type: str | None
    value: bytes | None
    task_path: str


class SaverTables(Protocol):
    """The tables of one saver."""

    def count(self) -> int: ...
    def rows(self) -> Iterator[RawCheckpoint]: ...
    def writes(self, place: Place) -> Sequence[RawWrite]: ...
    def blobs(self, row: RawCheckpoint) -> Sequence[tuple[str, str, bytes | None]]:
        """Channels that are stored beside the checkpoint: name, type, value."""
        ...


def recognize(source: str) -> bool:
    """Whether a database has LangGraph's tables."""
    if (url := postgres_url(source)) is not None:
        return postgres_columns(url, _PG_TABLES).keys() >= {"checkpoints", "checkpoint_blobs"}
    if not sqlite_source.is_sqlite(source):
        return False
    with sqlite_source.reading(source) as connection:
        there = [sqlite_source.columns(connection, table) for table in _TABLES]
        return all(there) and "sequence" not in there[0]  # Holdfast's own tables have these names too


def open_source(request: ImportRequest) -> StatesImport:
    """Open the tables. Refused if they are of a version that is not known."""
    check_target(request)
    with Extra("langgraph"):
        from holdfast.adapters.langgraph.classes import Classes
        from holdfast.adapters.langgraph.schemas import register_schemas
        from holdfast.importers.langgraph_values import ValueReader
    from holdfast.serde import Registry

    classes = Classes(Registry())
    register_schemas(classes, request.schemas)
    source = LangGraphSource(request.source, ValueReader(classes, request.schemas), classes)
    return StatesImport(source, request, classes)


class LangGraphSource:
    """Checkpoints of LangGraph, from whatever database."""

    kind = "langgraph"
    title = "checkpoints of LangGraph"

    def __init__(self, source: str, reader: Any, classes: Any) -> None:
        self._source = source
        self._reader = reader
        self._classes = classes
        self._stack = contextlib.ExitStack()
        try:
            with self.translated():
                self._tables = self._opened(source)
        except BaseException:
            self._stack.close()
            raise

    def _opened(self, source: str) -> SaverTables:
        if (url := postgres_url(source)) is not None:
            from holdfast.durable import postgres  # an extra, which `recognize` has asked for

            _check(postgres_columns(url, _PG_TABLES), _PG_TABLES)
            return _PostgresTables(self._stack.enter_context(postgres.reading(url)))
        connection = self._stack.enter_context(sqlite_source.reading(source))
        _check({name: sqlite_source.columns(connection, name) for name in _TABLES}, _TABLES)
        return _SqliteTables(connection)

    def translated(self) -> contextlib.AbstractContextManager[None]:
        return sql_errors(self._source)

    def count(self) -> int:
        return self._tables.count()

    def states(self) -> Iterator[SourceState]:
        for row in self._tables.rows():
            yield SourceState(row.place, partial(self._load, row), partial(self._writes, row.place))

    def close(self) -> None:
        self._stack.close()

    def _load(self, row: RawCheckpoint, losses: Losses) -> flow.Checkpoint:
        from holdfast.adapters.langgraph import translate

        checkpoint = self._reader.read(row.type or "json", row.checkpoint, losses)
        if not isinstance(checkpoint, dict) or checkpoint.get("id") != row.place.checkpoint_id:
            raise Damaged("it is not a checkpoint of LangGraph")
        version = checkpoint.get("v", 1)
        if not isinstance(version, int) or not 1 <= version <= _LATEST:
            raise Refused(f"its version v={escape(str(version))} is unknown; the known versions are 1 to {_LATEST}")
        values = checkpoint.setdefault("channel_values", {})
        versions = checkpoint.setdefault("channel_versions", {})
        seen = checkpoint.setdefault("versions_seen", {})
        are_mappings = all(isinstance(each, dict) for each in (values, versions, seen))
        if not are_mappings or not isinstance(checkpoint.get("ts"), str):
            raise Damaged("it is not a checkpoint of LangGraph")
        for channel, kind, data in self._tables.blobs(row):
            if kind != "empty":
                values[channel] = self._reader.read(kind, data, losses)
        self._move_sends(row, checkpoint, losses)
        metadata = self._reader.read_json(row.metadata or b"{}", losses)
        if not isinstance(metadata, dict):
            raise Damaged("its metadata is not an object")
        config: Any = {
            "configurable": {
                "thread_id": row.place.session,
                "checkpoint_ns": row.place.namespace,
                **({"checkpoint_id": row.parent_id} if row.parent_id else {}),
            }
        }
        try:
            return translate.to_flow(config, cast(Any, checkpoint), cast(Any, metadata), None, self._classes)
        except HoldfastError:
            raise
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise Damaged(f"it is not a checkpoint of LangGraph ({type(error).__name__}: {error})") from None

    def _move_sends(self, row: RawCheckpoint, checkpoint: dict[str, Any], losses: Losses) -> None:
        """Put tasks to be sent into their channel, as LangGraph does when it reads an old checkpoint."""
        version = checkpoint.get("v")
        if not isinstance(version, int) or version >= _MIGRATED or row.parent_id is None:
            return
        parent = row.place._replace(checkpoint_id=row.parent_id)
        sends = [each for each in self._tables.writes(parent) if each.channel == _TASKS]
        if sends:
            checkpoint["channel_values"][_TASKS] = [self._reader.read(each.type, each.value, losses) for each in sends]
            known = list(checkpoint["channel_versions"].values())
            try:
                checkpoint["channel_versions"][_TASKS] = max(known, default=1)
            except TypeError:
                raise Damaged("the versions of its channels cannot be compared") from None

    def _writes(self, place: Place, losses: Losses) -> Sequence[flow.Write]:
        found = []
        for each in self._tables.writes(place):
            try:
                if not isinstance(each.idx, int):
                    raise Damaged("its index is not a whole number")
                value = self._reader.read(each.type, each.value, losses)
            except HoldfastError as error:
                losses.add(f"session {escape(place.session)} write to {escape(each.channel)}", error.message)
                continue
            found.append(flow.Write(each.task_id, each.idx, each.channel, value, each.task_path))
        return found


class _SqliteTables:
    """The tables of `SqliteSaver`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._path = "task_path" if "task_path" in sqlite_source.columns(connection, "writes") else "''"
        self._type = "type" if "type" in sqlite_source.columns(connection, "checkpoints") else "'json'"

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0])

    def rows(self) -> Iterator[RawCheckpoint]:
        query = (
            f"SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, {self._type}, checkpoint, metadata"
            " FROM checkpoints ORDER BY checkpoint_id"
        )
        for thread, namespace, own, parent, kind, checkpoint, metadata in self._connection.execute(query):
            place = Place(_text(thread), _text(namespace), _text(own))
            yield RawCheckpoint(place, _optional(parent), _optional(kind), _bytes(checkpoint), _bytes(metadata))

    def writes(self, place: Place) -> Sequence[RawWrite]:
        query = (
            f"SELECT task_id, idx, channel, type, value, {self._path} FROM writes"
            " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY 6, task_id, idx"
        )
        return [
            RawWrite(_text(task), idx, _text(channel), _optional(kind), _bytes(value), _text(path))
            for task, idx, channel, kind, value, path in self._connection.execute(query, place)
        ]

    def blobs(self, row: RawCheckpoint) -> Sequence[tuple[str, str, bytes | None]]:
        return ()


class _PostgresTables:
    """The tables of `PostgresSaver`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        known = self._connection.execute(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema()"
            " AND table_name = 'checkpoint_writes' AND column_name = 'task_path'"
        ).fetchone()
        self._path = "task_path" if known else "''"

    def count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM checkpoints").fetchone()[0])

    def rows(self) -> Iterator[RawCheckpoint]:
        with self._connection.cursor(name="holdfast_import") as cursor:  # a named one is read piece by piece
            cursor.itersize = 100
            cursor.execute(
                "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text,"
                " metadata::text FROM checkpoints ORDER BY checkpoint_id"
            )
            for thread, namespace, own, parent, checkpoint, metadata in cursor:
                place = Place(thread, namespace, own)
                yield RawCheckpoint(place, parent or None, "json", checkpoint.encode(), metadata.encode())

    def writes(self, place: Place) -> Sequence[RawWrite]:
        query = (
            f"SELECT task_id, idx, channel, type, blob, {self._path} FROM checkpoint_writes"
            " WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY 6, task_id, idx"
        )
        return [RawWrite(*row) for row in self._connection.execute(query, place)]

    def blobs(self, row: RawCheckpoint) -> Sequence[tuple[str, str, bytes | None]]:
        query = (
            "SELECT b.channel, b.type, b.blob FROM jsonb_each_text(%s::jsonb) v JOIN checkpoint_blobs b"
            " ON b.channel = v.key AND b.version = v.value WHERE b.thread_id = %s AND b.checkpoint_ns = %s"
        )
        try:
            versions = json.loads(row.checkpoint).get("channel_versions") or {}
        except (ValueError, RecursionError, AttributeError) as error:
            raise Damaged(f"it is not a checkpoint of LangGraph ({error})") from None
        return list(self._connection.execute(query, (json.dumps(versions), row.place.session, row.place.namespace)))


def _check(there: dict[str, set[str]], needed: dict[str, set[str]]) -> None:
    for table, columns in needed.items():
        if missing := sorted(columns - there.get(table, set())):
            raise Refused(
                f"the table {table} has no column {', '.join(missing)}, which LangGraph's savers have",
                hint="The tables of SqliteSaver and PostgresSaver are known. Nothing was imported.",
            )


def _text(value: Any) -> str:
    """Text that SQLite stores as bytes; what is not UTF-8 stays different from everything else."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _optional(value: Any) -> str | None:
    return _text(value) if value else None


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value or b"")
