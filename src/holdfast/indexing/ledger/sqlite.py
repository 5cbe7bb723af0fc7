"""A ledger in one SQLite file, readable with `sqlite3` (P5)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast import durable
from holdfast.durable.os_errors import os_errors
from holdfast.durable.sqlite import Database, Layout
from holdfast.errors import Conflict, Damaged
from holdfast.indexing.ledger.tables import OLD, SQLITE, VERSION, Tables, create_statements
from holdfast.indexing.ledger.work_shares import Alone, Order, Share
from holdfast.indexing.validation import MEMORY, resolve_path

_APPLICATION = 0x486F4C69  # "HoLi"
_HINT = "Restore it from a backup. Without one, move it away and apply a new plan: every vector is paid for again."


class SQLiteLedger(Tables):
    """The ledger of one index, with one writing process at a time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = resolve_path(path, "a ledger", in_memory=True)
        self._alone = threading.Lock()
        """Replaces the lock file of a ledger in memory."""
        head = f"INSERT INTO head VALUES ('{uuid4().hex}', {VERSION}, 0)"
        layout = Layout(
            f"the ledger {self._path}", VERSION, [*create_statements(SQLITE), head], _APPLICATION,
            pragmas=["PRAGMA auto_vacuum=INCREMENTAL"],  # pruning frees disk space
            if_damaged=_HINT, if_old=OLD, check=_check_length,
        )  # fmt: skip
        self._db = Database(self._path, layout)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Take the ledger for one run. Conflict if another run has it; the lock ends with its process (P9)."""
        lock = self._lock()
        with os_errors(self._path, "writing to the ledger"):
            is_free = lock.acquire(wait=False) if isinstance(lock, durable.Lock) else lock.acquire(blocking=False)
        if not is_free:
            raise Conflict(
                f"another run is writing to {self._path}",
                hint="Wait for it to end, or end it. Runs that share the work need a ledger in PostgreSQL.",
            )
        try:
            yield
        finally:
            lock.release()

    def _lock(self) -> durable.Lock | threading.Lock:
        """Return the lock file next to the ledger, the same for all links to it; in memory, a thread lock."""
        if str(self._path) == MEMORY:
            return self._alone
        return durable.Lock(Path(os.path.realpath(self._path) + ".lock"))

    def working(self) -> AbstractContextManager[None]:
        """Same as `writing`: a file admits one run."""
        return self.writing()

    def turn(self) -> AbstractContextManager[None]:
        """Do nothing: there is only one worker."""
        return contextlib.nullcontext()

    def join(self, order: Order) -> Share | None:
        """Return None: a run is never continued, but planned again."""
        return None

    def open(self, order: Order, generation: int) -> Share:
        """Return a share with all the work."""
        return Alone(order, generation)

    def query(self, query: str, *values: object) -> list[Any]:
        with self._db.translated():
            rows: list[Any] = self._db.execute(query, values).fetchall()
            return rows

    def execute(self, query: str, *values: object) -> int:
        with self._db.translated():
            return int(self._db.execute(query, values).rowcount)

    def execute_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        with self._db.translated():
            self._db.executemany(query, rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        with self._db.writing() as db:
            yield
            db.execute("UPDATE head SET revision = revision + 1")

    def has_history(self) -> bool:
        return bool(self.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'history'"))

    def shrink(self) -> None:
        """Return free pages to the disk."""
        with self._db.translated():
            self._db.connection.executescript("PRAGMA incremental_vacuum")  # to its end; `execute` would free one page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _check_length(db: sqlite3.Connection, path: str) -> None:
    """Raise Damaged if the last page of a file was cut short: SQLite would read zeros there without an error.

    Unless there is a log: then the file is being extended, or the process that did so was killed, and SQLite has the
    rest. The file itself is not opened: closing it would release the locks of every connection of this process.
    """
    if _is_short(db, path) and not _has_log(path) and _is_short(db, path):  # again: the writer may be done by now
        raise Damaged(f"the ledger {path} is truncated", hint=_HINT)


def _is_short(db: sqlite3.Connection, path: str) -> bool:
    pages, size = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "page_size"))
    return bool(pages) and pages * size > os.stat(path).st_size


def _has_log(path: str) -> bool:
    logs = (os.path.realpath(path) + end for end in ("-wal", "-journal"))
    return any(os.path.exists(each) and os.stat(each).st_size for each in logs)
