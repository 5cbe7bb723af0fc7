"""What vector stores in an SQLite file share: the table of their collections, and which of these is live."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.durable.sqlite import Database, Layout, split_statements
from holdfast.indexing import vectors
from holdfast.indexing.validation import REBUILD_HINT
from holdfast.indexing.vector_store import no_collection
from holdfast.indexing.vectors import Shape

COLLECTION_COLUMNS = """
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, shapes TEXT NOT NULL,
    fingerprint TEXT NOT NULL, live INTEGER NOT NULL DEFAULT 0"""
POINT_TABLE = """
CREATE TABLE point (
    key INTEGER PRIMARY KEY AUTOINCREMENT, collection INTEGER NOT NULL, id TEXT NOT NULL, document TEXT NOT NULL,
    ordinal INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (collection, id)
);
"""
PUT_POINT = (
    "INSERT INTO point (collection, id, document, ordinal, text) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " document = excluded.document, ordinal = excluded.ordinal, text = excluded.text RETURNING key"
)


def store_layout(name: str, version: int, schema: str, application: int, **options: Any) -> Layout:
    """Describe the file of a store, which can always be built again."""
    statements = split_statements(schema)
    return Layout(name, version, statements, application, if_damaged=REBUILD_HINT, if_old=REBUILD_HINT, **options)


class SQLiteCollections:
    """The collections of a store. A subclass opens `_db`, and stores the points."""

    _db: Database

    @property
    def identity(self) -> str:
        """Where the store is."""
        raise NotImplementedError

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        row = (collection, json.dumps(vectors.shapes_to_json(shapes)), json.dumps(fingerprint))
        with self._db.writing() as db:
            db.execute("INSERT OR IGNORE INTO collection (name, shapes, fingerprint) VALUES (?, ?, ?)", row)

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        found = self._db.one("SELECT fingerprint FROM collection WHERE name = ?", collection)
        return dict(json.loads(found[0])) if found else None

    def live(self) -> str | None:
        found = self._db.one("SELECT name FROM collection WHERE live = 1")
        return str(found[0]) if found else None

    def make_live(self, collection: str) -> None:
        if self.fingerprint(collection) is None:
            raise no_collection(self.identity, collection)
        with self._db.writing() as db:
            db.execute("UPDATE collection SET live = (name = ?)", (collection,))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _found(self, collection: str) -> tuple[int | None, dict[str, Shape]]:
        """The number of a collection, None if it does not exist, and the shapes of its vectors."""
        found = self._db.one("SELECT number, shapes FROM collection WHERE name = ?", collection)
        return (found[0], vectors.shapes_from_json(json.loads(found[1]))) if found else (None, {})
