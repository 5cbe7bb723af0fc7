"""Every back end keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.flow import StateStore
from holdfast.flow.memory import MemoryStore
from holdfast.flow.sqlite import SQLiteStore
from holdfast.testing.flow_contract import OpenStore, StateStoreContract


class TestMemory(StateStoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        memory = MemoryStore()
        return lambda tenant="": memory.for_tenant(tenant)

    @pytest.fixture
    def stores(self) -> Callable[[], StateStore]:
        return MemoryStore


class TestSQLite(StateStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda tenant="": SQLiteStore(tmp_path / "state.db", tenant=tenant, synchronous="NORMAL")

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Callable[[], StateStore]:
        numbers = iter(range(100))
        return lambda: SQLiteStore(tmp_path / f"other-{next(numbers)}.db")
