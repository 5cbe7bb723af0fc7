"""A ledger in one SQLite file. `sqlite3` reads it: the tables are named after what they hold (P5)."""

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
from holdfast.errors import Conflict, Damaged, Unavailable
from holdfast.indexing.arguments import MEMORY, place_of
from holdfast.indexing.database import Database, Layout, connect
from holdfast.indexing.ledger.schema import OLD, SQLITE, VERSION, statements
from holdfast.indexing.ledger.shares import Alone, Order, Share
from holdfast.indexing.ledger.tables import Tables

_APPLICATION = 0x486F4C69  # "HoLi"
_HINT = "Restore it from a copy. Without one, put it away and apply a new plan: every vector is paid for again."


class SQLiteLedger(Tables):
    """The ledger of one index, for one process at a time to write to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = place_of(path, "a ledger", in_memory=True)
        self._alone = threading.Lock()
        """Of one in memory, which only this process has."""
        head = f"INSERT INTO head VALUES ('{uuid4().hex}', {VERSION}, 0)"
        layout = Layout(
            f"the ledger {self._path}", VERSION, [*statements(SQLITE), head], _APPLICATION,
            pragmas=["PRAGMA auto_vacuum=INCREMENTAL"],  # so that pruning gives room back
            if_damaged=_HINT, if_old=OLD,
        )  # fmt: skip
        self._db = Database(self._path, layout, connect=_connect)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only run. Conflict if another process is; its lock is free as soon as it ends, however it does."""
        lock = self._lock()
        try:
            is_free = lock.acquire(wait=False) if isinstance(lock, durable.Lock) else lock.acquire(blocking=False)
        except OSError as error:
            raise Unavailable(
                f"the ledger {self._path} cannot be written to: {error.strerror}", hint="Check the folder it is in."
            ) from error
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
        """A file beside the ledger, one by whatever link it is opened; none for one that has no file itself."""
        if str(self._path) == MEMORY:
            return self._alone
        return durable.Lock(Path(os.path.realpath(self._path) + ".lock"))

    def working(self) -> AbstractContextManager[None]:
        """A file is for one run."""
        return self.writing()

    def turn(self) -> AbstractContextManager[None]:
        """There is nobody to wait for."""
        return contextlib.nullcontext()

    def join(self, order: Order) -> Share | None:
        """There is no run that goes on: what one was about is planned anew."""
        return None

    def open(self, order: Order, generation: int) -> Share:
        """Everything is one's own."""
        return Alone(order, generation)

    def ask(self, query: str, *values: object) -> list[Any]:
        with self._db.translated():
            rows: list[Any] = self._db.execute(query, values).fetchall()
            return rows

    def tell(self, query: str, *values: object) -> int:
        with self._db.translated():
            return int(self._db.execute(query, values).rowcount)

    def tell_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
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

    def shrink(self) -> None:
        """Give free pages back."""
        with self._db.translated():
            self._db.connection.executescript("PRAGMA incremental_vacuum")  # to its end; `execute` would free one page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _connect(path: str) -> sqlite3.Connection:
    """A file whose last page was cut short is damaged; SQLite would read zeros there, and notices only whole pages.

    Unless there is a log: then it is being lengthened, or whoever did so was killed, and SQLite has the rest.
    The file itself is not opened: to close it would give back the locks of every connection that this process has.
    """
    db = connect(path)
    try:
        if _is_short(db, path) and not _has_log(path) and _is_short(db, path):  # again: it may be done by now
            raise Damaged(f"the ledger {path} was cut short", hint=_HINT)
    except BaseException:
        db.close()
        raise
    return db


def _is_short(db: sqlite3.Connection, path: str) -> bool:
    pages, size = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "page_size"))
    return bool(pages) and path != MEMORY and pages * size > os.stat(path).st_size


def _has_log(path: str) -> bool:
    logs = (os.path.realpath(path) + end for end in ("-wal", "-journal"))
    return any(os.path.exists(each) and os.stat(each).st_size for each in logs)
