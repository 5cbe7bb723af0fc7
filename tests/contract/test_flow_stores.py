"""Every back end keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable.sqlite import Pool
from holdfast.flow import StateStore
from holdfast.flow.memory import MemoryStore
from holdfast.flow.sqlite import SQLiteStore
from holdfast.testing.flow_contract import OpenStore, StateStoreContract, Work


def steps_of_sqlite(store: Any, call: Callable[[], Any]) -> int:
    """The steps of SQLite's own machine."""
    pool: Pool = store._pool
    count = 0

    def note() -> int:
        nonlocal count
        count += 1
        return 0

    with pool.reading() as db:  # the one that is taken again
        db.set_progress_handler(note, 1)
    try:
        call()
    finally:
        db.set_progress_handler(None, 0)
    assert count, "another connection was used"
    return count


class TestMemory(StateStoreContract):
    work_per_name = 3

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
    def work(self) -> Work:
        return steps_of_sqlite

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Callable[[], StateStore]:
        numbers = iter(range(100))
        return lambda: SQLiteStore(tmp_path / f"other-{next(numbers)}.db")
