"""A ledger in one SQLite file. `sqlite3` reads it: the tables are named after what they hold (P5)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast import durable
from holdfast.errors import Conflict, Damaged, Refused, Unavailable
from holdfast.indexing.ledger.schema import SQLITE, VERSION, statements
from holdfast.indexing.ledger.shares import Alone, Order, Share
from holdfast.indexing.ledger.tables import Tables

_APPLICATION = 0x486F4C69  # "HoLi"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_HINT = "Restore it from a copy. Without one, put it away and apply a new plan: every vector is paid for again."


class SQLiteLedger(Tables):
    """The ledger of one index, for one process at a time to write to."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._db = connect(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only run. Conflict if another process is; its lock is free as soon as it ends, however it does."""
        lock = durable.Lock(Path(os.path.realpath(self._path) + ".lock"))  # one, by whatever link it is opened
        try:
            is_free = lock.acquire(wait=False)
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
        with translated(self._path):
            return self._db.execute(query, values).fetchall()

    def tell(self, query: str, *values: object) -> int:
        with translated(self._path):
            return self._db.execute(query, values).rowcount

    def tell_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        with translated(self._path):
            self._db.executemany(query, rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        with translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("UPDATE head SET revision = revision + 1")
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def shrink(self) -> None:
        """Give free pages back."""
        with translated(self._path):
            self._db.executescript("PRAGMA incremental_vacuum")  # to its end; `execute` would free one page
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def connect(path: Path) -> sqlite3.Connection:
    """Open a ledger, made if there is none. Damaged or Refused if the file is no ledger of this version."""
    with translated(path):
        _check_length(path)
        db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
        try:
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA synchronous=FULL")  # paid work outlives a power loss, too
    if _version(db) != VERSION:
        db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that pruning gives room back; counts for an empty file only
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            _make(db, path)
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise Refused(f"{path} is a database of another program", hint="Name another file.")


def _make(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db)
    if version == VERSION:
        return  # another process was quicker
    if version > VERSION:
        raise Refused(f"the ledger {path} is of version {version}", hint="Open it with a newer Holdfast.")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Refused(f"{path} is a database of another program", hint="Name another file.")
    for statement in statements(SQLITE):
        db.execute(statement)
    db.execute("INSERT INTO head VALUES (?, ?, 0)", (uuid4().hex, VERSION))
    db.execute(f"PRAGMA application_id={_APPLICATION}")
    db.execute(f"PRAGMA user_version={VERSION}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _check_length(path: Path) -> None:
    """A file that says it is longer than it is was cut short; SQLite would notice only where it reads."""
    try:
        with path.open("rb") as file:
            head = file.read(32)
        size = path.stat().st_size
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}", hint="See that it can be read.") from error
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    if size and (len(head) < 32 or int.from_bytes(head[28:32], "big") * page > size):
        raise Damaged(f"the ledger {path} was cut short", hint=_HINT)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite become ours."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
            raise Damaged(f"the ledger {path} is damaged: {error}", hint=_HINT) from error
        raise Unavailable(
            f"the ledger {path} cannot be used: {error}", hint="See that it can be written to, and try again."
        ) from error
