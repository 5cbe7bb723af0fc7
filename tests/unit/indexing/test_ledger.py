"""The ledger on the disk: what was paid for outlives a power loss."""

from __future__ import annotations

from pathlib import Path

from holdfast.indexing.ledger.sqlite import SQLiteLedger


def test_every_commit_reaches_the_medium_and_readers_do_not_wait(tmp_path: Path) -> None:
    """Only the setting can be looked at: SQLite does its own syncing."""
    for _ in range(2):  # made, and opened again
        with SQLiteLedger(tmp_path / "index.db") as ledger:
            ledger.begin("shape", {}, "store")
            assert ledger.ask("PRAGMA synchronous") == [(2,)]
            assert ledger.ask("PRAGMA journal_mode") == [("wal",)]
            assert ledger.ask("PRAGMA auto_vacuum") == [(2,)], "or pruning gives no room back"
