"""A vector store in one SQLite file, searched by the extension sqlite-vec. Each call is one transaction (P3).

Many builds of Python cannot load extensions into their own SQLite, so apsw opens the file. Numbers are stored as
floats, or as bytes if the datatype is int8; other coarser datatypes round them and save no space. Each vector has one
more number, which is 0, or 1 for a vector of zeros: its distance would be NULL otherwise, and sort first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.durable.sqlite import Database
from holdfast.errors import Extra
from holdfast.indexing import vectors
from holdfast.indexing.sqlite_store import (
    COLLECTION_COLUMNS,
    POINT_TABLE,
    PUT_POINT,
    SQLiteCollections,
    store_layout,
)
from holdfast.indexing.validation import resolve_path
from holdfast.indexing.vector_store import Hit, Point, no_collection, nothing_to_search
from holdfast.indexing.vectors import Query, Shape

with Extra("sqlite-vec"):
    import apsw
    import sqlite_vec

_VERSION = 1
_APPLICATION = 0x486F5356  # "HoSV"
_MAX_HITS = 4096  # the extension's own limit
_SCHEMA = f"CREATE TABLE collection ({COLLECTION_COLUMNS}\n);{POINT_TABLE}"


class SQLiteVecStore(SQLiteCollections):
    """A store in one file. Many may read it while one writes."""

    keeps_sparse = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a SQLiteVecStore", in_memory=True)
        layout = store_layout(str(self._path), _VERSION, _SCHEMA, _APPLICATION)
        self._db = Database(self._path, layout, connect=_connect, errors=(apsw.Error,))

    @property
    def identity(self) -> str:
        return f"sqlite-vec:{self._path.resolve()}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        row = (collection, json.dumps(vectors.shapes_to_json(shapes)), json.dumps(fingerprint))
        with self._db.writing():
            if self._db.one("SELECT 1 FROM collection WHERE name = ?", collection):
                return
            self._db.execute("INSERT INTO collection (name, shapes, fingerprint) VALUES (?, ?, ?)", row)
            for table, shape in self._tables(collection).values():
                kind = "int8" if shape.datatype == "int8" else "float"
                column = f"data {kind}[{shape.dimension + 1}] distance_metric=cosine"
                self._db.execute(f"CREATE VIRTUAL TABLE {table} USING vec0(key INTEGER PRIMARY KEY, {column})")

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        with self._db.writing():
            tables, (number, _) = self._tables(collection), self._found(collection)
            if number is None:
                raise no_collection(self.identity, collection)
            for point in points:
                (key,) = self._db.one(
                    PUT_POINT,
                    number, point.id, point.document, point.ordinal, point.text,
                )  # fmt: skip
                for name, (table, shape) in tables.items():
                    self._put(table, shape, key, point.vectors.get(name))

    def _put(self, table: str, shape: Shape, key: int, data: bytes | None) -> None:
        self._db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))
        if data is not None:
            self._db.execute(
                f"INSERT INTO {table} (key, data) VALUES (?, {_value(shape)})", (key, _encode(data, shape))
            )

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        with self._db.writing():
            tables = self._tables(collection)
            for each in ids:
                key = self._db.one(
                    "DELETE FROM point WHERE id = ? AND collection = (SELECT number FROM collection WHERE name = ?)"
                    " RETURNING key",
                    each, collection,
                )  # fmt: skip
                for table, _ in tables.values() if key else ():
                    self._db.execute(f"DELETE FROM {table} WHERE key = ?", key)

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        tables = self._tables(collection)
        with self._db.translated():
            sizes: dict[int, dict[str, int]] = {}
            for name, (table, shape) in tables.items():
                for (key,) in self._db.execute(f"SELECT key FROM {table}"):  # it stores only vectors of its dimension
                    sizes.setdefault(key, {})[name] = shape.size_bytes
            rows = self._db.execute(
                "SELECT p.key, p.id, p.document FROM point p JOIN collection c ON c.number = p.collection"
                " WHERE c.name = ?",
                (collection,),
            ).fetchall()
        for key, each, document in rows:
            yield each, document, sizes.get(key, {})

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        tables = self._tables(collection)
        with self._db.translated():
            rows = self._db.execute(
                "SELECT p.key, p.id, p.document, p.ordinal, p.text FROM point p JOIN collection c"
                f" ON c.number = p.collection WHERE c.name = ? AND p.id IN ({','.join('?' * len(ids))})",
                (collection, *ids),
            ).fetchall()
            return {row[1]: Point(row[1], row[2], row[3], row[4], self._vectors(row[0], tables)) for row in rows}

    def _vectors(self, key: int, tables: Mapping[str, tuple[str, Shape]]) -> dict[str, bytes]:
        found = {}
        for name, (table, shape) in tables.items():
            row = self._db.execute(f"SELECT data FROM {table} WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[name] = _decode(row[0], shape)
        return found

    def count(self, collection: str) -> int:
        """Count the points that really have a vector."""
        return sum(1 for _, _, sizes in self.scan(collection) if sizes)

    def drop(self, collection: str) -> None:
        with self._db.writing():
            for table, _ in self._tables(collection).values():
                self._db.execute(f"DROP TABLE {table}")
            self._db.execute(
                "DELETE FROM point WHERE collection = (SELECT number FROM collection WHERE name = ?)", (collection,)
            )
            self._db.execute("DELETE FROM collection WHERE name = ?", (collection,))

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        found = self._tables(self.live() or "").get(channel)
        if found is None:
            raise nothing_to_search(self.identity, channel)
        table, shape = found
        vector = vectors.pack_floats(vectors.normalise_query(query, shape))
        sent = _encode(vectors.derive(vector, shape), shape) if shape.datatype == "int8" else vector + bytes(4)
        with self._db.translated():
            rows = self._db.execute(
                f"SELECT p.document, p.ordinal, p.text, v.distance FROM (SELECT key, distance FROM {table}"
                f" WHERE data MATCH {_value(shape)} AND k = ?) v JOIN point p USING (key) ORDER BY v.distance, p.key",
                (sent, min(limit, _MAX_HITS)),
            ).fetchall()
        return [Hit(row[0], row[1], row[2], 1 - row[3]) for row in rows]

    def _tables(self, collection: str) -> dict[str, tuple[str, Shape]]:
        """Return the table of its vectors and their shape by channel."""
        number, shapes = self._found(collection)
        return {name: (f"vector_{number}_{place}", shape) for place, (name, shape) in enumerate(shapes.items())}


def _connect(path: str) -> apsw.Connection:
    db = apsw.Connection(path)
    db.set_busy_timeout(30_000)
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    db.enable_load_extension(False)
    return db


def _value(shape: Shape) -> str:
    return "vec_int8(?)" if shape.datatype == "int8" else "?"


def _decode(data: bytes, shape: Shape) -> bytes:
    return data[:-1] if shape.datatype == "int8" else vectors.derive(data[:-4], shape)


def _encode(data: bytes, shape: Shape) -> bytes:
    is_small = shape.datatype == "int8"
    wide = data if is_small else vectors.to_float32(data, shape)
    last = b"\1" if is_small else vectors.pack_floats([1.0])
    return wide + (bytes(len(last)) if any(wide) else last)
