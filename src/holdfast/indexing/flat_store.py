"""The built-in vector store: one SQLite file, searched exhaustively. Exact, and fast enough for a laptop.

A point has a number within its collection, its place; dense vectors are at that place in the blocks of their channel.
Places of deleted points are used again. Sparse vectors, and vectors of a wrong length, are rows.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import or_

from holdfast.durable.sqlite import Database, Upgrade, split_statements
from holdfast.errors import Damaged, Remedy
from holdfast.indexing import sparse_vectors, vectors
from holdfast.indexing.sqlite_store import COLLECTION_COLUMNS, SQLiteCollections, store_layout
from holdfast.indexing.validation import resolve_path
from holdfast.indexing.vector_store import Hit, Point, no_collection, nothing_to_search
from holdfast.indexing.vectors import Query, Shape
from holdfast.validation import checked_options

_VERSION = 2
_APPLICATION = 0x486F466C  # "HoFl"
_BATCH_ROWS = 500
_SCHEMA = f"""
CREATE TABLE collection ({COLLECTION_COLUMNS}, places INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE point (
    key INTEGER PRIMARY KEY, collection INTEGER NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL,
    ordinal INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (collection, id)
);
CREATE TABLE free (key INTEGER PRIMARY KEY);
CREATE TABLE loose (
    number INTEGER PRIMARY KEY, channel TEXT NOT NULL, key INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (channel, key)
);
CREATE TABLE block (
    number INTEGER PRIMARY KEY, collection INTEGER NOT NULL, channel TEXT NOT NULL, place INTEGER NOT NULL,
    data BLOB NOT NULL, UNIQUE (collection, channel, place)
);
"""
_BLOCK_BYTES = 1 << 20
_MIN_PLACES, _MAX_PLACES = 64, 8192  # of a block
_FIRST_PLACES = 16
_PLACE_BITS = 32
"""A key is the number of a collection, with the place of a point in the lower bits."""
_FIRST_TABLES = frozenset({"collection", "point", "vector"})
"""Of files of version 1, which took four times the space: B-trees are made for short rows."""


@checked_options
class FlatStore(SQLiteCollections):
    """A store in one file. Many may read it while one writes."""

    keeps_sparse = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a FlatStore", in_memory=True)
        self._has_strays = False
        """Whether another program deleted points and left their vectors; the next write clears those."""
        upgrade = Upgrade(0, 1, _upgrade, tables=_FIRST_TABLES, rewrites_file=True)
        layout = store_layout(str(self._path), _VERSION, _SCHEMA, _APPLICATION, upgrade=upgrade)
        self._db = Database(self._path, layout)

    @property
    def identity(self) -> str:
        """Where it is; a store at another path has another identity."""
        return f"flat:{self._path.resolve()}"

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Add points, or replace those with the same ids."""
        with self._db.writing() as db:
            found = _find(db, collection)
            if found is None:
                raise no_collection(self.identity, collection)
            if self._has_strays:
                found.clear_strays()
            for at in range(0, len(points), _BATCH_ROWS):
                found.put(points[at : at + _BATCH_ROWS])

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete points; ids that do not exist are skipped."""
        with self._db.writing() as db:
            found = _find(db, collection)
            for at in range(0, len(ids) if found else 0, _BATCH_ROWS):
                found.delete(ids[at : at + _BATCH_ROWS])  # type: ignore[union-attr] # there are none to delete then

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """Yield id, document and the size in bytes of each vector, for every point."""
        with self._db.reading() as db:
            found = _find(db, collection)
            rows, sizes = (found.rows(), found.sizes()) if found else ([], {})
        self._has_strays = self._has_strays or bool(sizes.keys() - {row[0] for row in rows})
        for key, each, document in rows:
            yield each, document, sizes.get(key, {})

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        """Read points by their ids; missing ones are left out."""
        with self._db.reading() as db:
            found = _find(db, collection)
            parts = [found.read(ids[at : at + _BATCH_ROWS]) for at in range(0, len(ids), _BATCH_ROWS)] if found else []
        return {name: point for part in parts for name, point in part.items()}

    def count(self, collection: str) -> int:
        """Count the points that really have a vector."""
        with self._db.reading() as db:
            found = _find(db, collection)
            return found.count() if found else 0

    def drop(self, collection: str) -> None:
        """Delete a collection, if it exists."""
        with self._db.writing() as db:
            found = _find(db, collection)
            if found:
                found.drop()

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        """Find the points of the live collection that are nearest to a query."""
        with self._db.reading() as db:  # one transaction: another process may drop the collection
            live = db.execute("SELECT name FROM collection WHERE live = 1").fetchone()
            found = _find(db, live[0]) if live else None
            shape = found.shapes.get(channel) if found else None
            if found is None or shape is None:
                raise nothing_to_search(self.identity, channel)
            scores = found.nearest(channel, query, limit)
            rows = found.points(list(scores))
            if len(rows) < len(scores):  # another program deleted points and left their vectors
                scores = found.nearest(channel, query, limit, only={row[0] for row in found.rows()})
                rows = found.points(list(scores))
        hits = [Hit(document, ordinal, text, scores[key]) for key, document, ordinal, text in rows]
        hits.sort(key=lambda hit: (-hit.score, hit.document, hit.ordinal))
        return hits[: max(0, limit)]


class _Collection:
    """A collection, within a transaction."""

    def __init__(self, db: sqlite3.Connection, number: int, shapes: Mapping[str, Shape]) -> None:
        self._db = db
        self._number = number
        self._from, self._to = number << _PLACE_BITS, (number + 1) << _PLACE_BITS
        self.shapes = shapes
        self._blocks = {
            name: _Blocks(db, number, name, shape.size_bytes) for name, shape in shapes.items() if not shape.is_sparse
        }

    # writing

    def put(self, points: Sequence[Point]) -> None:
        """Add points, or replace them with all their vectors."""
        points = list({point.id: point for point in points}.values())
        keys = self._keys([point.id for point in points])
        before = set(keys.values())
        keys |= dict(self._new([point.id for point in points if point.id not in keys]))
        self._db.executemany(
            "INSERT OR REPLACE INTO point VALUES (?, ?, ?, ?, ?, ?)",
            [
                (keys[each.id], self._number, each.id, each.document, each.ordinal, each.text)
                for each in points
            ],
        )  # fmt: skip
        loose = [(name, key) for name in self.shapes for key in before]
        self._db.executemany("DELETE FROM loose WHERE channel = ? AND key = ?", loose)
        for name, shape in self.shapes.items():
            data_by_key = {keys[point.id]: point.vectors[name] for point in points if name in point.vectors}
            fit = {key: data for key, data in data_by_key.items() if name in self._blocks and shape.fits(len(data))}
            if name in self._blocks:
                self._blocks[name].clear(key - self._from for key in before - fit.keys())
                self._blocks[name].put({key - self._from: data for key, data in fit.items()})
            rest = [(name, key, data) for key, data in data_by_key.items() if key not in fit]
            self._db.executemany("INSERT INTO loose (channel, key, data) VALUES (?, ?, ?)", rest)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete points and free their places."""
        keys = list(self._keys(ids).values())
        for each in self._blocks.values():
            each.clear(key - self._from for key in keys)
        for name in self.shapes:
            self._db.executemany("DELETE FROM loose WHERE channel = ? AND key = ?", [(name, key) for key in keys])
        self._db.executemany("DELETE FROM point WHERE key = ?", [(key,) for key in keys])
        self._db.executemany("INSERT OR IGNORE INTO free VALUES (?)", [(key,) for key in keys])

    def clear_strays(self) -> None:
        """Clear the places of vectors that have no point."""
        strays = [(key,) for key in self.sizes().keys() - {row[0] for row in self.rows()}]
        for each in self._blocks.values():
            each.clear(key - self._from for (key,) in strays)
        self._db.executemany("DELETE FROM loose WHERE key = ?", strays)
        self._db.executemany("INSERT OR IGNORE INTO free VALUES (?)", strays)

    def drop(self) -> None:
        """Delete the collection."""
        for table in ("point", "loose", "free"):
            self._db.execute(f"DELETE FROM {table} WHERE key >= ? AND key < ?", (self._from, self._to))
        self._db.execute("DELETE FROM block WHERE collection = ?", (self._number,))
        self._db.execute("DELETE FROM collection WHERE number = ?", (self._number,))

    def _new(self, ids: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Yield a key for each id: of a free place, or behind the last."""
        query = "SELECT key FROM free WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
        free = [row[0] for row in self._db.execute(query, (self._from, self._to, len(ids)))]
        self._db.executemany("DELETE FROM free WHERE key = ?", [(key,) for key in free])
        more = len(ids) - len(free)
        update = "UPDATE collection SET places = places + ? WHERE number = ? RETURNING places"
        (end,) = self._db.execute(update, (more, self._number)).fetchone()
        yield from zip(ids, [*free, *range(self._from + end - more, self._from + end)], strict=True)

    # reading

    def _keys(self, ids: Sequence[str]) -> dict[str, int]:
        marks = ",".join("?" * len(ids))
        query = f"SELECT id, key FROM point WHERE collection = ? AND id IN ({marks})"
        return dict(self._db.execute(query, (self._number, *ids)).fetchall())

    def rows(self) -> list[tuple[int, str, str]]:
        """Return the keys, ids and documents of all points."""
        query = "SELECT key, id, document FROM point WHERE key >= ? AND key < ?"
        return self._db.execute(query, (self._from, self._to)).fetchall()

    def sizes(self) -> dict[int, dict[str, int]]:
        """Return the size in bytes of each vector, by key and channel."""
        found: dict[int, dict[str, int]] = {}
        for name, each in self._blocks.items():
            size = self.shapes[name].size_bytes
            for first, marks in each.there():
                for place in _places_of(first, marks):
                    found.setdefault(self._from + place, {})[name] = size
        query = "SELECT channel, key, length(data) FROM loose WHERE key >= ? AND key < ?"
        for name, key, size in self._db.execute(query, (self._from, self._to)):
            found.setdefault(key, {})[name] = size
        return found

    def count(self) -> int:
        """Return the number of points, or of those with a vector if that is less."""
        (places,) = self._db.execute("SELECT places FROM collection WHERE number = ?", (self._number,)).fetchone()
        there = bytearray(places // 8 + 1)
        for each in self._blocks.values():
            for first, marks in each.there():
                at = slice(first // 8, min(len(there), first // 8 + len(marks)))
                there[at] = bytes(map(or_, there[at], marks))
        for (key,) in self._db.execute("SELECT key FROM loose WHERE key >= ? AND key < ?", (self._from, self._to)):
            byte, bit = divmod(key - self._from, 8)
            there[byte] |= 1 << bit
        query = "SELECT count(*) FROM point WHERE collection = ?"
        (points,) = self._db.execute(query, (self._number,)).fetchone()
        return min(int(points), int.from_bytes(there, "little").bit_count())

    def read(self, ids: Sequence[str]) -> dict[str, Point]:
        """Return points by id, with their vectors."""
        keys = self._keys(ids)
        own: dict[int, dict[str, bytes]] = {key: {} for key in keys.values()}
        for name, each in self._blocks.items():
            for place, data in each.get(key - self._from for key in own).items():
                own[self._from + place][name] = data
        marks = ",".join("?" * len(own))
        query = f"SELECT key, channel, data FROM loose WHERE channel = ? AND key IN ({marks})"
        for name in self.shapes:
            for key, channel, data in self._db.execute(query, (name, *own)):
                own[key][channel] = data
        query = f"SELECT id, key, document, ordinal, text FROM point WHERE key IN ({marks})"
        rows = self._db.execute(query, tuple(own)).fetchall()
        return {row[0]: Point(row[0], row[2], row[3], row[4], own[row[1]]) for row in rows}

    def nearest(self, channel: str, query: Query, limit: int, only: set[int] | None = None) -> dict[int, float]:
        """Return the keys and scores of the nearest vectors, including all that tie with the last.

        With `only`, other keys do not count.
        """
        shape = self.shapes[channel]
        if shape.is_sparse:
            rows = self._db.execute(
                "SELECT v.key, v.data FROM loose v JOIN point p USING (key) WHERE v.channel = ? AND v.key >= ?"
                " AND v.key < ? ORDER BY p.document, p.ordinal",
                (channel, self._from, self._to),
            ).fetchall()
            found = sparse_vectors.nearest(query, [row[1] for row in rows], shape, limit)
            return {rows[place][0]: score for place, score in found}
        wrong = "SELECT 1 FROM loose WHERE channel = ? AND key >= ? AND key < ? LIMIT 1"
        if self._db.execute(wrong, (channel, self._from, self._to)).fetchone():
            raise Damaged("a vector has a wrong length", remedy=Remedy("repair_index"))
        every = self._blocks[channel].all()
        if only is not None:
            every = ((first, self._among(only, first, marks), data) for first, marks, data in every)
        near = vectors.nearest(query, every, shape, limit)
        return {self._from + place: score for place, score in near}

    def _among(self, only: set[int], first: int, marks: bytes) -> bytes:
        kept = sum(1 << place - first for place in _places_of(first, marks) if self._from + place in only)
        return kept.to_bytes(len(marks), "little")

    def points(self, keys: Sequence[int]) -> list[tuple[int, str, int, str]]:
        """Return keys, documents, ordinals and texts."""
        found: list[tuple[int, str, int, str]] = []
        for at in range(0, len(keys), _BATCH_ROWS):
            some = keys[at : at + _BATCH_ROWS]
            query = f"SELECT key, document, ordinal, text FROM point WHERE key IN ({','.join('?' * len(some))})"
            found += self._db.execute(query, some).fetchall()
        return found


def _find(db: sqlite3.Connection, collection: str) -> _Collection | None:
    found = db.execute("SELECT number, shapes FROM collection WHERE name = ?", (collection,)).fetchone()
    return _Collection(db, found[0], vectors.shapes_from_json(json.loads(found[1]))) if found else None


def _upgrade(db: sqlite3.Connection) -> None:
    """Convert the tables of version 1, within a transaction (P3), with a part of the points in memory."""
    for table in sorted(_FIRST_TABLES):
        db.execute(f"ALTER TABLE {table} RENAME TO first_{table}")
    for statement in split_statements(_SCHEMA):
        db.execute(statement)
    db.execute(
        "INSERT INTO collection (name, shapes, fingerprint, live)"
        " SELECT name, shapes, fingerprint, live FROM first_collection ORDER BY rowid"
    )
    for (name,) in db.execute("SELECT name FROM collection").fetchall():
        new = _find(db, name)
        rows = db.execute(
            "SELECT id, document, ordinal, text FROM first_point WHERE collection = ? ORDER BY document, ordinal",
            (name,),
        )
        while new is not None and (some := rows.fetchmany(_BATCH_ROWS)):
            own = _first_vectors(db, name, new.shapes, [row[0] for row in some])
            new.put([Point(row[0], row[1], row[2], row[3], own[row[0]]) for row in some])
    for table in sorted(_FIRST_TABLES):
        db.execute(f"DROP TABLE first_{table}")


def _first_vectors(
    db: sqlite3.Connection, name: str, channels: Mapping[str, Shape], ids: Sequence[str]
) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {each: {} for each in ids}
    marks = ",".join("?" * len(ids))
    query = f"SELECT id, data FROM first_vector WHERE collection = ? AND channel = ? AND id IN ({marks})"
    for channel in channels:
        for each, data in db.execute(query, (name, channel, *ids)):
            found[each][channel] = data
    return found


class _Blocks:
    """The vectors of one channel of a collection, by their places from 0 on, side by side in blobs of SQLite.

    A search reads a block at once; a change writes one vector. A block begins with one bit for each of its places, the
    lowest first, which says whether a vector is there. The vectors follow in the order of their places. The first block
    of a channel grows with its content; others are created at full size.
    """

    def __init__(self, db: sqlite3.Connection, collection: int, channel: str, size_bytes: int) -> None:
        self._db = db
        self._own = (collection, channel)
        self._size = size_bytes
        self._places = min(_MAX_PLACES, max(_MIN_PLACES, _BLOCK_BYTES // size_bytes // 64 * 64))
        self._header = self._places // 8

    def put(self, vectors: Mapping[int, bytes]) -> None:
        """Write vectors to their places."""
        for block, places in self._by_block(vectors):
            with closing(self._sized_block(block, places[-1] % self._places + 1)) as blob:
                for place in places:
                    blob.seek(self._header + place % self._places * self._size)
                    blob.write(vectors[place])
                self._mark(blob, places, is_there=True)

    def clear(self, places: Iterable[int]) -> None:
        """Clear places; empty ones are ignored."""
        for block, some in self._by_block(places):
            number = self._number(block)
            if number is not None:
                with closing(self._open(number)) as blob:
                    self._mark(blob, some, is_there=False)

    def get(self, places: Iterable[int]) -> dict[int, bytes]:
        """Return the vectors of those places that have one."""
        found: dict[int, bytes] = {}
        for block, some in self._by_block(places):
            number = self._number(block)
            if number is None:
                continue
            with closing(self._open(number, readonly=True)) as blob:
                marks = int.from_bytes(blob.read(self._header), "little")
                for place in some:
                    if marks >> place % self._places & 1:
                        blob.seek(self._header + place % self._places * self._size)
                        found[place] = blob.read(self._size)
        return found

    def there(self) -> Iterator[tuple[int, bytes]]:
        """Yield the first place and the bits of each block."""
        rows = self._db.execute("SELECT place, number FROM block WHERE collection = ? AND channel = ?", self._own)
        for block, number in rows.fetchall():
            with closing(self._open(number, readonly=True)) as blob:
                yield block * self._places, blob.read(self._header)

    def all(self) -> Iterator[tuple[int, bytes, memoryview]]:
        """Yield the first place, the bits and the vectors of each block."""
        rows = self._db.execute(
            "SELECT place, data FROM block WHERE collection = ? AND channel = ? ORDER BY place", self._own
        )
        for block, data in rows:
            yield block * self._places, data[: self._header], memoryview(data)[self._header :]

    # one block

    def _by_block(self, places: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        for block, some in groupby(sorted(places), lambda place: place // self._places):
            yield block, list(some)

    def _number(self, block: int) -> int | None:
        query = "SELECT number FROM block WHERE collection = ? AND channel = ? AND place = ?"
        found = self._db.execute(query, (*self._own, block)).fetchone()
        return int(found[0]) if found else None

    def _open(self, number: int, *, readonly: bool = False) -> sqlite3.Blob:
        """Open a block. P9: readers use `readonly`, because a writable blob takes the write lock."""
        return self._db.blobopen("block", "data", number, readonly=readonly)

    def _sized_block(self, block: int, least: int) -> sqlite3.Blob:
        """Open a block with space for `least` vectors; create or extend it if needed."""
        number = self._number(block)
        if number is None:
            places = self._places if block else self._grown(least)
            made = self._db.execute(
                "INSERT INTO block (collection, channel, place, data) VALUES (?, ?, ?, zeroblob(?))",
                (*self._own, block, self._header + places * self._size),
            )
            return self._open(int(made.lastrowid or 0))
        blob = self._open(number)
        if len(blob) >= self._header + least * self._size:
            return blob
        with closing(blob):
            data = blob.read()
        longer = data + bytes(self._header + self._grown(least) * self._size - len(data))
        self._db.execute("UPDATE block SET data = ? WHERE number = ?", (longer, number))
        return self._open(number)

    def _grown(self, least: int) -> int:
        places = _FIRST_PLACES
        while places < least:
            places *= 2
        return min(places, self._places)

    def _mark(self, blob: sqlite3.Blob, places: Iterable[int], *, is_there: bool) -> None:
        blob.seek(0)
        marks = bytearray(blob.read(self._header))
        for place in places:
            byte, bit = divmod(place % self._places, 8)
            marks[byte] = marks[byte] | 1 << bit if is_there else marks[byte] & ~(1 << bit)
        blob.seek(0)
        blob.write(marks)


def _places_of(first: int, marks: bytes) -> list[int]:
    """Return the places whose bits are set."""
    bits = bin(int.from_bytes(marks, "little"))[:1:-1]
    return [first + place for place, bit in enumerate(bits) if bit == "1"]
