"""The store that comes with Holdfast: one SQLite file, every vector looked at. Exact, and quick enough for a laptop."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.indexing import sparse, vectors
from holdfast.indexing.arguments import place_of
from holdfast.indexing.database import Database, Layout, split_schema
from holdfast.indexing.store import Hit, Point, no_collection, nothing_to_search
from holdfast.indexing.vectors import Query, Shape

_VERSION = 1
_SCHEMA = """
CREATE TABLE collection (
    name TEXT PRIMARY KEY, shapes TEXT NOT NULL, fingerprint TEXT NOT NULL, live INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE point (
    collection TEXT NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL, ordinal INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE vector (
    collection TEXT NOT NULL, id TEXT NOT NULL, channel TEXT NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (collection, channel, id)
) WITHOUT ROWID;
"""


class FlatStore:
    """A store in one file. Many may read it while one writes."""

    keeps_sparse = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = place_of(path, "a FlatStore", in_memory=True)
        self._db = Database(self._path, Layout(str(self._path), _VERSION, split_schema(_SCHEMA)))

    @property
    def identity(self) -> str:
        return f"flat:{self._path.resolve()}"

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        with self._db.writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO collection (name, shapes, fingerprint) VALUES (?, ?, ?)",
                (collection, json.dumps(vectors.plain(shapes)), json.dumps(fingerprint)),
            )

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        found = self._db.one("SELECT fingerprint FROM collection WHERE name = ?", collection)
        return dict(json.loads(found[0])) if found else None

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        shapes = self._shapes(collection)
        with self._db.writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO point VALUES (?, ?, ?, ?, ?)",
                [(collection, point.id, point.document, point.ordinal, point.text) for point in points],
            )
            db.executemany(
                "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?)",
                [(collection, point.id, name, data) for point in points for name, data in point.vectors.items()],
            )
            db.executemany(
                "DELETE FROM vector WHERE collection = ? AND channel = ? AND id = ?",
                [(collection, name, point.id) for point in points for name in shapes if name not in point.vectors],
            )

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        shapes = self._shapes(collection)
        with self._db.writing() as db:
            db.executemany("DELETE FROM point WHERE collection = ? AND id = ?", [(collection, each) for each in ids])
            db.executemany(
                "DELETE FROM vector WHERE collection = ? AND channel = ? AND id = ?",
                [(collection, channel, each) for channel in shapes for each in ids],
            )

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        with self._db.translated():
            sizes: dict[str, dict[str, int]] = {}
            for each, channel, size in self._db.execute(
                "SELECT id, channel, length(data) FROM vector WHERE collection = ?", (collection,)
            ):
                sizes.setdefault(each, {})[channel] = size
            rows = self._db.execute("SELECT id, document FROM point WHERE collection = ?", (collection,)).fetchall()
        for each, document in rows:
            yield each, document, sizes.get(each, {})

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        among = f"id IN ({','.join('?' * len(ids))})"
        found: dict[str, dict[str, bytes]] = {each: {} for each in ids}
        with self._db.translated():
            for channel in self._shapes(collection):
                query = f"SELECT id, data FROM vector WHERE collection = ? AND channel = ? AND {among}"
                for each, data in self._db.execute(query, (collection, channel, *ids)):
                    found[each][channel] = data
            rows = self._db.execute(
                f"SELECT id, document, ordinal, text FROM point WHERE collection = ? AND {among}", (collection, *ids)
            ).fetchall()
        return {row[0]: Point(row[0], row[1], row[2], row[3], found[row[0]]) for row in rows}

    def count(self, collection: str) -> int:
        found = self._db.one("SELECT count(*) FROM point WHERE collection = ?", collection)
        return int(found[0]) if found else 0

    def live(self) -> str | None:
        found = self._db.one("SELECT name FROM collection WHERE live = 1")
        return str(found[0]) if found else None

    def make_live(self, collection: str) -> None:
        if self.fingerprint(collection) is None:
            raise no_collection(self.identity, collection)
        with self._db.writing() as db:
            db.execute("UPDATE collection SET live = (name = ?)", (collection,))

    def drop(self, collection: str) -> None:
        with self._db.writing() as db:
            for table, column in (("vector", "collection"), ("point", "collection"), ("collection", "name")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", (collection,))

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        collection = self.live()
        shape = self._shapes(collection or "").get(channel)
        if collection is None or shape is None:
            raise nothing_to_search(self.identity, channel)
        with self._db.translated():
            rows = self._db.execute(
                "SELECT p.document, p.ordinal, p.text, v.data FROM vector v JOIN point p USING (collection, id)"
                " WHERE v.collection = ? AND v.channel = ? ORDER BY p.document, p.ordinal",
                (collection, channel),
            ).fetchall()
        nearest = sparse.nearest if shape.is_sparse else vectors.nearest
        found = nearest(query, [row[3] for row in rows], shape, limit)
        return [Hit(rows[place][0], rows[place][1], rows[place][2], score) for place, score in found]

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _shapes(self, collection: str) -> dict[str, Shape]:
        found = self._db.one("SELECT shapes FROM collection WHERE name = ?", collection)
        return vectors.shapes_of(json.loads(found[0])) if found else {}
