"""The ledger on the disk: what was paid for outlives a power loss."""

from __future__ import annotations

from pathlib import Path

from holdfast.indexing.ledger.sqlite import connect


def test_every_commit_reaches_the_medium_and_readers_do_not_wait(tmp_path: Path) -> None:
    """Only the setting can be looked at: SQLite does its own syncing."""
    db = connect(tmp_path / "index.db")
    try:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        db.close()
