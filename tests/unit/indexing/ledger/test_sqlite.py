"""The ledger on the disk: what was paid for outlives a power loss."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import Damaged
from holdfast.indexing.ledger import Batch
from holdfast.indexing.ledger.sqlite import SQLiteLedger


def test_every_commit_reaches_the_medium_and_readers_do_not_wait(tmp_path: Path) -> None:
    """Only the setting can be looked at: SQLite does its own syncing."""
    for _ in range(2):  # made, and opened again
        with SQLiteLedger(tmp_path / "index.db") as ledger:
            ledger.begin("shape", {}, "store")
            assert ledger.query("PRAGMA synchronous") == [(2,)]
            assert ledger.query("PRAGMA journal_mode") == [("wal",)]
            assert ledger.query("PRAGMA auto_vacuum") == [(2,)], "or pruning gives no room back"


def test_a_file_that_was_cut_short_is_damaged(tmp_path: Path) -> None:
    path = _filled(tmp_path / "index.db")
    data = path.read_bytes()
    for length in (len(data) - 1, len(data) // 2, 20):
        path.write_bytes(data[:length])
        with pytest.raises(Damaged) as damaged:
            SQLiteLedger(path)
        assert "Restore it from a backup" in damaged.value.hint


@pytest.mark.parametrize("by", ["name", "link"])
def test_kill_while_the_file_grows_loses_nothing(tmp_path: Path, by: str) -> None:
    """SQLite copies pages from its log into the file, the first one first, which says how long it is going to be."""
    path, killed = _filled(tmp_path / "index.db"), tmp_path / "killed.db"
    before = path.stat().st_size
    with SQLiteLedger(path) as ledger:
        ledger.query("PRAGMA wal_autocheckpoint=0")
        ledger.add_batch(Batch("space", {"more": bytes(1 << 20)}, 1, 1, 0.0, 0.0))
        revision = ledger.revision()
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{killed}{end}")
    first = _first_page(Path(f"{killed}-wal").read_bytes())
    killed.write_bytes(first + killed.read_bytes()[len(first) :])
    assert int.from_bytes(first[28:32], "big") * len(first) > killed.stat().st_size == before
    opened = killed
    if by == "link":
        opened = tmp_path / "link.db"
        opened.symlink_to(killed)
    with SQLiteLedger(opened) as ledger:
        assert ledger.revision() == revision
        assert ledger.known(["first", "more"]) == {"first", "more"}


def test_second_reader_does_not_release_the_first_ones_locks(tmp_path: Path) -> None:
    """With them gone, another process takes itself for the last one, and removes the log that the first goes on in."""
    path = tmp_path / "index.db"
    look = "import sys; from holdfast.indexing.ledger.sqlite import SQLiteLedger; ledger = SQLiteLedger(sys.argv[1]);"

    def elsewhere(ask: str) -> bytes:
        return subprocess.run([sys.executable, "-c", look + ask, path], check=True, capture_output=True).stdout

    with SQLiteLedger(path) as ledger:
        ledger.add_batch(Batch("space", {"first": b"1"}, 1, 1, 0.0, 0.0))
        SQLiteLedger(path).close()
        elsewhere("ledger.close()")
        ledger.add_batch(Batch("space", {"second": b"2"}, 1, 1, 0.0, 0.0))
        assert elsewhere("print(sorted(ledger.known(['first', 'second'])))") == b"['first', 'second']\n"


def _filled(path: Path) -> Path:
    with SQLiteLedger(path) as ledger:
        ledger.add_batch(Batch("space", {"first": bytes(10_000)}, 1, 1, 0.0, 0.0))
    return path


def _first_page(log: bytes) -> bytes:
    """The newest copy of the first page in a log, of which each page has its number before it."""
    size = int.from_bytes(log[8:12], "big")
    pages = [log[at : at + 24 + size] for at in range(32, len(log), 24 + size)]
    return next(page[24:] for page in reversed(pages) if int.from_bytes(page[:4], "big") == 1)
