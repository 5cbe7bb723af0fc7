"""Every ledger keeps the contract."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from holdfast.indexing.ledger.postgres import PostgresLedger
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.testing.ledger_contract import LedgerContract, OpenLedger

_numbers = itertools.count()


class TestSQLite(LedgerContract):
    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> OpenLedger:
        return lambda: SQLiteLedger(tmp_path / "index.db")


class TestPostgres(LedgerContract):
    @pytest.fixture
    def open_ledger(self, postgres_url: str) -> OpenLedger:
        schema = f"ledger contract {next(_numbers)}\"'"
        return lambda: PostgresLedger(postgres_url, schema=schema)
