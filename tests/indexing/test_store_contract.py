"""Every store that comes with Holdfast keeps the promises of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import lancedb
from qdrant_client import QdrantClient, models

from holdfast.adapters.stores.chroma import ChromaStore
from holdfast.adapters.stores.faiss import FaissStore
from holdfast.adapters.stores.lancedb import LanceStore
from holdfast.adapters.stores.qdrant import QdrantStore
from holdfast.adapters.stores.sqlite_vec import SQLiteVecStore
from holdfast.indexing import FlatStore
from holdfast.testing.store_contract import VectorStoreContract


def _without_points(file: Path, ids: Sequence[str]) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.executemany("DELETE FROM point WHERE id = ?", [(each,) for each in ids])
        db.commit()


class TestFlat(VectorStoreContract):
    store = FlatStore

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        _without_points(place, ids)


class TestQdrant(VectorStoreContract):
    store = QdrantStore

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        client = QdrantClient(path=str(place))
        client.delete(collection, models.PointIdsList(points=list(ids)))
        client.close()


class TestLance(VectorStoreContract):
    store = LanceStore
    many = 1200

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        lancedb.connect(place).open_table(collection).delete(f"id IN {tuple(ids) * 2}")


class TestSQLiteVec(VectorStoreContract):
    store = SQLiteVecStore

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        _without_points(place, ids)


class TestChroma(VectorStoreContract):
    store = ChromaStore
    many = 6000


class TestFaiss(VectorStoreContract):
    store = FaissStore
    many = 1200  # more than wait for a file

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        _without_points(place / "points.db", ids)
