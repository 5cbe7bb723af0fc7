"""Connections to one SQLite file: made when needed, kept while idle, never used by two threads or by a forked child."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable

VERSION = 1
SCHEMA = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, session TEXT NOT NULL, family INTEGER NOT NULL,
    latest INTEGER NOT NULL, checkpoints INTEGER NOT NULL, saved_at INTEGER NOT NULL, deleted INTEGER NOT NULL,
    UNIQUE (tenant, session)
);
CREATE INDEX families ON sessions (family, tenant);
CREATE TABLE checkpoints (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, owner INTEGER NOT NULL, namespace TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL, parent_id TEXT, run_id TEXT, saved_at INTEGER NOT NULL, digest BLOB NOT NULL,
    meta BLOB NOT NULL, refs BLOB NOT NULL, shape BLOB NOT NULL,
    first_part INTEGER NOT NULL, last_part INTEGER NOT NULL,
    UNIQUE (owner, namespace, checkpoint_id)
);
CREATE INDEX newest ON checkpoints (owner, sequence);
CREATE INDEX runs ON checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE parts (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, family INTEGER NOT NULL, name BLOB NOT NULL, refs BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX part_names ON parts (family, name, tenant);
CREATE TABLE writes (
    tenant TEXT NOT NULL, session TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX write_places ON writes (tenant, session, namespace, checkpoint_id, task_id, idx);
"""
_APPLICATION = 0x486F6C64  # "Hold"
_RETRY_SECONDS = 0.01
_LOG_PAGES = {"NORMAL": 1000, "FULL": 64, "EXTRA": 64}
"""How long the log may get: where each commit is synced, a short one, soon written over, is several times as fast."""
_OF_PARENTS: list[list[sqlite3.Connection]] = []
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Pool:
    """The connections of one store."""

    def __init__(self, path: Path, *, synchronous: str, timeout: float, create: bool = True) -> None:
        self._path = path
        self._synchronous = synchronous
        self._timeout = timeout
        self._create = create
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._closed = False

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection; errors of SQLite become ours."""
        with _translated(self._path):
            db = self._take()
            try:
                yield db
            except BaseException:
                db.close()
                raise
            self._give(db)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction that writes, committed at the end and rolled back on any error.

        Threads of this process wait for each other here, rather than by asking the file again and again.
        """
        self._check_process()
        lock = self._lock
        if not lock.acquire(timeout=self._timeout):
            raise Unavailable(f"{self._path} is being written to", hint="Try again.")
        try:
            with self.reading() as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except HoldfastError:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
        finally:
            lock.release()

    def close(self) -> None:
        self._check_process()
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._idle:
                self._idle.pop().close()

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise Refused(f"{self._path} was closed", hint="Open it again.")
        self._check_process()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _check_process(self) -> None:
        """In a forked child, leave the parent's connections to the parent."""
        if self._pid != os.getpid():
            _OF_PARENTS.append(self._idle)  # to close one here could end the parent's log
            self._pid, self._lock, self._idle = os.getpid(), threading.Lock(), []

    def _give(self, db: sqlite3.Connection) -> None:
        self._idle.append(db)
        if self._closed:  # while this one was in use
            self._close_idle()

    def _connect(self) -> sqlite3.Connection:
        if not self._create and not os.path.exists(self._path):
            raise self._nothing()
        mode = "rwc" if self._create else "rw"
        name = f"file:{quote(os.fsencode(os.path.abspath(self._path)))}?mode={mode}"
        db = sqlite3.connect(name, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA page_size=8192")  # several messages of 1 KB to a page, with little room lost
            db.execute(f"PRAGMA synchronous={self._synchronous}")
            db.execute(f"PRAGMA mmap_size={1 << 28}")
            db.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES[self._synchronous]}")
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables, once, however many open the file at the same time. What is not ours is not changed."""
        has_tables = self._has_tables(db)  # before the version, which is set together with them
        if has_tables:
            self._check_ours(db)
            return
        if not self._create:
            raise self._nothing()
        self._patiently(db, "PRAGMA auto_vacuum=INCREMENTAL")
        self._patiently(db, "PRAGMA journal_mode=WAL")
        self._patiently(db, "BEGIN IMMEDIATE")
        try:
            if self._has_tables(db):
                self._check_ours(db)
            else:
                for statement in filter(str.strip, SCHEMA.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id={_APPLICATION}")
                db.execute(f"PRAGMA user_version={VERSION}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    @staticmethod
    def _has_tables(db: sqlite3.Connection) -> bool:
        return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    def _check_ours(self, db: sqlite3.Connection) -> None:
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise Refused(f"{self._path} is a database of another program", hint="Name another file.")
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version != VERSION:
            raise Refused(f"{self._path} is of version {version}", hint="Open it with a newer Holdfast.")

    def _nothing(self) -> NotFound:
        return NotFound(f"there are no states in {self._path}", hint="Nothing was saved there yet; look at the name.")

    def _patiently(self, db: sqlite3.Connection, statement: str) -> None:
        """Run what does not wait for others by itself: SQLite changes the mode of a journal at once, or not at all."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise Damaged(
                f"{path} is damaged, or no database at all", hint="Name another file, or restore it from a copy."
            ) from error
        if code == sqlite3.SQLITE_CORRUPT or "decode to UTF-8" in str(error):
            raise Damaged(f"{path} is damaged: {error}", hint="Restore it from a copy.") from error
        raise Unavailable(
            f"{path} cannot be used: {error}", hint="See that it can be written to, and try again."
        ) from error
