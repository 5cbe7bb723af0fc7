"""The stores over other packages keep the promises of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lancedb
import pytest
from qdrant_client import QdrantClient, models

from holdfast.adapters.stores.chroma import ChromaStore
from holdfast.adapters.stores.faiss import FaissStore
from holdfast.adapters.stores.lancedb import LanceStore
from holdfast.adapters.stores.qdrant import QdrantStore
from holdfast.testing.store_contract import VectorStoreContract

from .test_vector_stores import delete_points

pytestmark = pytest.mark.extras


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


class TestChroma(VectorStoreContract):
    store = ChromaStore
    many = 6000


class TestFaiss(VectorStoreContract):
    store = FaissStore
    many = 1200  # more than wait for a file

    def lose(self, place: Path, collection: str, ids: Sequence[str]) -> None:
        delete_points(place / "points.db", ids)
