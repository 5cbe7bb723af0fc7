"""Every store that comes with Holdfast keeps the promises of one."""

from __future__ import annotations

from holdfast.adapters.stores.chroma import ChromaStore
from holdfast.adapters.stores.faiss import FaissStore
from holdfast.adapters.stores.lancedb import LanceStore
from holdfast.adapters.stores.qdrant import QdrantStore
from holdfast.adapters.stores.sqlite_vec import SQLiteVecStore
from holdfast.indexing import FlatStore
from holdfast.testing.store_contract import VectorStoreContract


class TestFlat(VectorStoreContract):
    store = FlatStore


class TestQdrant(VectorStoreContract):
    store = QdrantStore


class TestLance(VectorStoreContract):
    store = LanceStore
    many = 1200


class TestSQLiteVec(VectorStoreContract):
    store = SQLiteVecStore


class TestChroma(VectorStoreContract):
    store = ChromaStore
    many = 6000


class TestFaiss(VectorStoreContract):
    store = FaissStore
    many = 1200  # more than wait for a file
