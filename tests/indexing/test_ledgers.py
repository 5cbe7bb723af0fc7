"""Every ledger keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.testing.ledger_contract import LedgerContract, OpenLedger


class TestSQLite(LedgerContract):
    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> OpenLedger:
        return lambda: SQLiteLedger(tmp_path / "index.db")


class TestPostgres(LedgerContract):
    @pytest.fixture
    def open_ledger(self, postgres: Callable[..., Any]) -> OpenLedger:
        return postgres
