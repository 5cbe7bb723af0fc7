"""A vector store in FAISS: an index file for each channel, and an SQLite file that describes them.

An index file is always written as a whole, which is expensive, so new vectors wait in SQLite until there are enough.
Then the index gets a new file with a new name; one transaction records that name and clears the waiting vectors (P3). A
kill before it leaves a file that is not recorded, a kill after it an old file: both are removed by the next sweep.
Numbers are stored as floats: a coarser datatype rounds them and saves no space.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast import durable
from holdfast.digest import digest_bytes
from holdfast.durable.sqlite import Database, connect
from holdfast.errors import Damaged, Extra, Remedy
from holdfast.indexing import vectors
from holdfast.indexing.sqlite_store import (
    COLLECTION_COLUMNS,
    POINT_TABLE,
    PUT_POINT,
    SQLiteCollections,
    store_layout,
)
from holdfast.indexing.validation import MEMORY, resolve_path
from holdfast.indexing.vector_store import Hit, Point, no_collection, nothing_to_search
from holdfast.indexing.vectors import Query, Shape

with Extra("faiss"):
    import faiss
    import numpy as np

_VERSION = 1
_APPLICATION = 0x486F4661  # "HoFa"
_MIN_WAITING = 1000
_SCHEMA = f"""
CREATE TABLE collection ({COLLECTION_COLUMNS}
);
CREATE TABLE file (
    collection INTEGER NOT NULL, channel TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL,
    held INTEGER NOT NULL, PRIMARY KEY (collection, channel)
);
{POINT_TABLE}CREATE TABLE vector (
    collection INTEGER NOT NULL, channel TEXT NOT NULL, key INTEGER NOT NULL, waiting BLOB,
    PRIMARY KEY (collection, channel, key)
) WITHOUT ROWID;
CREATE INDEX vector_waiting ON vector (collection, channel) WHERE waiting IS NOT NULL;
"""
_OWN = "FROM vector v JOIN point p ON p.key = v.key WHERE v.collection = ? AND v.channel = ?"
"""Vectors that have a point: another program may have deleted points."""


class FaissStore(SQLiteCollections):
    """A store in a folder. Many may read it while one writes."""

    keeps_sparse = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a FaissStore")
        self._indexes: dict[tuple[int, str], Any] = {}
        self._fresh: set[tuple[int, str]] = set()
        """Indexes that contain all waiting vectors."""
        self._stamps: dict[tuple[int, str], tuple[str, int, int, int] | None] = {}
        """Of the files that the indexes were read from."""
        self._seen = 0
        layout = store_layout(self.identity, _VERSION, _SCHEMA, _APPLICATION)
        errors = (sqlite3.Error, RuntimeError)
        self._db = Database(self._path / "points.db", layout, connect=self._connect, errors=errors)

    def _connect(self, path: str) -> sqlite3.Connection:
        if path != MEMORY:
            durable.make_folder(self._path)
        return connect(path)

    @property
    def identity(self) -> str:
        return f"faiss:{self._path.resolve()}"

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        number, shapes = self._found(collection)
        if number is None:
            raise no_collection(self.identity, collection)
        with self._db.writing():
            for point in points:
                (key,) = self._db.one(
                    PUT_POINT,
                    number, point.id, point.document, point.ordinal, point.text,
                )  # fmt: skip
                self._db.executemany(
                    "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?)",
                    [
                        (number, name, key, vectors.to_float32(data, shapes[name]))
                        for name, data in point.vectors.items()
                    ],
                )
                self._db.executemany(
                    "DELETE FROM vector WHERE collection = ? AND channel = ? AND key = ?",
                    [(number, name, key) for name in shapes if name not in point.vectors],
                )
        self._fresh.clear()
        for name, shape in shapes.items():
            self._flush(number, name, shape)

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        number, shapes = self._found(collection)
        with self._db.writing():
            for each in ids:
                found = self._db.one("DELETE FROM point WHERE collection = ? AND id = ? RETURNING key", number, each)
                if found:
                    self._db.executemany(
                        "DELETE FROM vector WHERE collection = ? AND channel = ? AND key = ?",
                        [(number, name, found[0]) for name in shapes],
                    )
        self._fresh.clear()

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        number, shapes = self._found(collection)
        sizes: dict[int, dict[str, int]] = {}
        for name, shape in shapes.items():
            for key in _keys(self._index(number or 0, name, shape)):
                sizes.setdefault(key, {})[name] = shape.size_bytes
        with self._db.translated():
            rows = self._db.execute("SELECT key, id, document FROM point WHERE collection = ?", (number,)).fetchall()
        for key, each, document in rows:
            yield each, document, sizes.get(key, {})

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        number, shapes = self._found(collection)
        indexes = {name: self._index(number or 0, name, shape) for name, shape in shapes.items()}
        there = {name: _keys(index) for name, index in indexes.items()}
        with self._db.translated():
            rows = self._db.execute(
                "SELECT key, id, document, ordinal, text FROM point WHERE collection = ?"
                f" AND id IN ({','.join('?' * len(ids))})",
                (number, *ids),
            ).fetchall()
        points = {}
        for key, each, document, ordinal, text in rows:
            found = {
                name: vectors.derive(vectors.pack_floats(index.reconstruct(key)), shapes[name])
                for name, index in indexes.items()
                if key in there[name]
            }
            points[each] = Point(each, document, ordinal, text, found)
        return points

    def count(self, collection: str) -> int:
        """Count the points that really have a vector."""
        return sum(1 for _, _, sizes in self.scan(collection) if sizes)

    def drop(self, collection: str) -> None:
        number, _ = self._found(collection)
        with self._db.writing():
            for table, column in (("vector", "collection"), ("point", "collection"), ("file", "collection"),
                                  ("collection", "number")):  # fmt: skip
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
        self._sweep()

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        number, shapes = self._found(self.live() or "")
        shape = shapes.get(channel)
        if number is None or shape is None:
            raise nothing_to_search(self.identity, channel)
        vector = np.asarray([vectors.normalise_query(query, shape)], dtype="f4")
        index = self._index(number, channel, shape)
        (expected,) = self._db.one(f"SELECT count(*) {_OWN}", number, channel)
        if index.ntotal != expected:
            raise Damaged(f"{self.identity} has lost {expected - index.ntotal} vectors", remedy=Remedy("repair_index"))
        if not index.ntotal:
            return []
        scores, keys = index.search(vector, min(limit, index.ntotal))
        return [self._hit(int(key), float(score)) for key, score in zip(keys[0], scores[0], strict=True)]

    def _hit(self, key: int, score: float) -> Hit:
        found = self._db.one("SELECT document, ordinal, text FROM point WHERE key = ?", key)
        if found is None:
            raise Damaged(f"{self.identity} has lost points", remedy=Remedy("repair_index"))
        document, ordinal, text = found
        return Hit(document, ordinal, text, score)

    def close(self) -> None:
        """Close the files."""
        super().close()
        self._indexes.clear()

    # the index of a channel

    def _index(self, number: int, channel: str, shape: Shape) -> Any:
        """Return the index with all waiting vectors, as SQLite lists them; without those that its file has lost."""
        version = self._db.pragma("data_version")
        if version != self._seen:  # another process wrote
            self._indexes.clear()
            self._seen = version
        place = (number, channel)
        found = self._db.one("SELECT name, digest FROM file WHERE collection = ? AND channel = ?", number, channel)
        stamp = self._stamp(found[0]) if found else None
        if self._stamps.get(place) != stamp:  # another program changed or removed the file: read it again
            self._indexes.pop(place, None)
        if place not in self._indexes or place not in self._fresh:
            with self._reading():
                index = self._indexes.pop(place, None) or self._read(found, shape)
                self._catch_up(index, number, channel)
            self._indexes[place] = index
            self._fresh.add(place)
            self._stamps[place] = stamp
        return self._indexes[place]

    def _stamp(self, name: str) -> tuple[str, int, int, int] | None:
        """Return a value that changes when the file does; None if it does not exist."""
        try:
            seen = os.stat(self._path / name)
        except FileNotFoundError:
            return None
        return name, seen.st_ino, seen.st_size, seen.st_mtime_ns

    def _read(self, found: tuple[str, str] | None, shape: Shape) -> Any:
        if found:
            try:
                data = (self._path / found[0]).read_bytes()
            except FileNotFoundError:
                data = b""
            if digest_bytes(data) == found[1]:  # P7: no parser sees bytes that we did not write
                return faiss.deserialize_index(np.frombuffer(data, dtype="u1"))
        return faiss.IndexIDMap2(faiss.IndexFlatIP(shape.dimension))

    def _catch_up(self, index: Any, number: int, channel: str) -> None:
        rows = self._db.execute(f"SELECT v.key, v.waiting {_OWN}", (number, channel)).fetchall()
        waiting = {key: data for key, data in rows if data is not None}
        there = _keys(index)
        gone = (there - {key for key, _ in rows}) | (there & waiting.keys())
        if gone:
            index.remove_ids(np.fromiter(gone, dtype="i8"))
        if waiting:
            units = np.stack([np.frombuffer(data, dtype="<f4") for data in waiting.values()])
            faiss.normalize_L2(units)
            index.add_with_ids(units, np.fromiter(waiting, dtype="i8"))

    def _flush(self, number: int, channel: str, shape: Shape) -> None:
        """Write a new file if enough vectors wait: a fraction of all, so that the cost per vector stays low (P8)."""
        (waiting,) = self._db.one(
            "SELECT count(*) FROM vector WHERE collection = ? AND channel = ? AND waiting IS NOT NULL", number, channel
        )
        held = self._db.one("SELECT held FROM file WHERE collection = ? AND channel = ?", number, channel)
        if waiting < max(_MIN_WAITING, (held or (0,))[0] // 4):
            return
        with self._db.writing():
            index = self._index(number, channel, shape)
            data = faiss.serialize_index(index).tobytes()
            digest = digest_bytes(data)
            name = f"{number}-{digest_bytes(channel.encode())[-8:]}-{digest[-16:]}.faiss"
            durable.write_atomically(self._path / name, data)
            row = (number, channel, name, digest, index.ntotal)
            self._db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)", row)
            self._db.execute(
                "UPDATE vector SET waiting = NULL WHERE collection = ? AND channel = ? AND waiting IS NOT NULL",
                (number, channel),
            )
        self._sweep()

    def _sweep(self) -> None:
        """Remove files that are not recorded, under the lock in which they are recorded."""
        with self._db.writing():
            kept = {row[0] for row in self._db.execute("SELECT name FROM file")}
            for each in self._path.glob("*.faiss*"):
                if each.name not in kept:
                    durable.disk().unlink(str(each))

    # the file of points

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Read SQLite and the file that it names as of one moment."""
        with self._db.translated():
            if self._db.in_transaction:
                yield
                return
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("COMMIT")


def _keys(index: Any) -> set[int]:
    return set(faiss.vector_to_array(index.id_map).tolist())
