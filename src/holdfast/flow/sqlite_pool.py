"""Connections to one SQLite file: made when needed, kept while idle, never used by two threads or by a forked child."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from holdfast import durable
from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable
from holdfast.flow.sqlite_schema import VERSION, statements_from
from holdfast.flow.sqlite_sharing import Apply, Shared, Sharing

_APPLICATION = 0x486F6C64  # "Hold"
_RETRY_SECONDS = 0.01
_LOG_PAGES = {"NORMAL": 1000, "FULL": 128, "EXTRA": 128}
"""How long the log may get: where each commit is synced, a short one, soon written over, is several times as fast."""
_OF_PARENTS: list[list[sqlite3.Connection]] = []
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Pool:
    """The connections of one store."""

    def __init__(self, path: Path, *, synchronous: str, timeout: float, create: bool = True) -> None:
        self._path = path
        self._file = os.path.abspath(path)  # the same for every connection, wherever the process goes
        self._known: tuple[int, int] | None = None
        self._synchronous = synchronous
        self._timeout = timeout
        self._create = create
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._sharing = Sharing()
        self._pid = os.getpid()
        self._closed = False

    def reading(self) -> Reading:
        """A connection; errors of SQLite become ours."""
        return Reading(self)

    def transaction(self) -> Transaction:
        """A connection in a transaction that writes, committed at the end and rolled back on any error.

        Threads of this process wait for each other here, rather than by asking the file again and again. Writes that
        wait for a commit go along.
        """
        return Transaction(self)

    def lock(self) -> tuple[threading.Lock, Sharing]:
        """Wait until no other thread writes; what is to be released."""
        self._check_process()
        lock, sharing = self._lock, self._sharing
        if not lock.acquire(timeout=self._timeout):
            raise Unavailable(f"{self._path} is being written to", hint="Try again.")
        return lock, sharing

    def offer(self, apply: Apply, seconds: float) -> bool:
        """Let another thread's commit take writes along; whether one did. See `Sharing.offer`."""
        self._check_process()
        return self._sharing.offer(apply, seconds)

    def close(self) -> None:
        self._check_process()
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._idle:
                self._idle.pop().close()

    def take(self) -> sqlite3.Connection:
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
            self._pid, self._lock, self._idle, self._sharing = os.getpid(), threading.Lock(), [], Sharing()

    def give(self, db: sqlite3.Connection) -> None:
        self._idle.append(db)
        if self._closed:  # while this one was in use
            self._close_idle()

    def translated(self, error: sqlite3.Error) -> HoldfastError:
        """What is said of an error of SQLite."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return Damaged(
                f"{self._path} is damaged, or is not a database",
                hint="Name another file, or restore it from a copy.",
            )
        if code == sqlite3.SQLITE_CORRUPT or "decode to UTF-8" in str(error):
            return Damaged(f"{self._path} is damaged: {error}", hint="Restore it from a copy.")
        return Unavailable(
            f"{self._path} cannot be used: {error}", hint="See that it can be written to, and try again."
        )

    def check_in_place(self) -> None:
        """Unavailable if the file is not the one that was opened: what is saved there would be lost without a word."""
        if self._known is not None and self._identity() != self._known:
            raise Unavailable(
                f"{self._path} was removed or replaced while it was in use", hint="Close the store, and open it again."
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _connect(self) -> sqlite3.Connection:
        self.check_in_place()
        if not self._create and not os.path.exists(self._file):
            raise self._nothing()
        mode = "rwc" if self._create else "rw"
        name = f"file:{quote(os.fsencode(self._file))}?mode={mode}"
        db = sqlite3.connect(name, uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            if durable.journal_mode(self._file) != "WAL":
                self._leave_log(db)  # before anything is read
            db.execute("PRAGMA page_size=8192")  # several messages of 1 KB to a page, with little room lost
            db.execute(f"PRAGMA synchronous={self._synchronous}")
            db.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES[self._synchronous]}")
            self._prepare(db)
            self._known = self._known or self._identity()
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables, once, however many open the file at the same time. What is not ours is not changed."""
        has_tables = self._has_tables(db)  # before the version, which is set together with them
        if has_tables and self._version(db) == VERSION:
            return
        if not has_tables:
            if not self._create:
                raise self._nothing()
            self._patiently(db, "PRAGMA auto_vacuum=INCREMENTAL")
            self._patiently(db, f"PRAGMA journal_mode={durable.journal_mode(self._file)}")
        self._patiently(db, "BEGIN IMMEDIATE")
        try:
            version = self._version(db) if self._has_tables(db) else 0
            if version != VERSION:
                for statement in statements_from(version):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id={_APPLICATION}")
                db.execute(f"PRAGMA user_version={VERSION}")
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def _leave_log(self, db: sqlite3.Connection) -> None:
        """Give up the write-ahead log that a database of ours has brought from where it could afford one."""
        self._patiently(db, durable.ALONE)
        if db.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
            self._patiently(db, "PRAGMA journal_mode=DELETE")
            self._patiently(db, durable.NOT_ALONE)
            self._patiently(db, "PRAGMA schema_version")
        elif not self._has_tables(db):
            self._patiently(db, durable.NOT_ALONE)

    @staticmethod
    def _has_tables(db: sqlite3.Connection) -> bool:
        return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    def _version(self, db: sqlite3.Connection) -> int:
        """Of a file that has tables; Refused if they are not ours, or not known here."""
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise Refused(f"{self._path} is a database of another program", hint="Name another file.")
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if not 1 <= version <= VERSION:
            raise Refused(f"{self._path} is of version {version}", hint="Open it with a newer Holdfast.")
        return version

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


# generators would do for the two below, and take longer than the statements in them


class Reading:
    """A connection, for `with`."""

    __slots__ = ("_db", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._db = self._pool.take()
        except sqlite3.Error as error:
            raise self._pool.translated(error) from error
        return self._db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._pool.give(self._db)
            return
        self._db.close()
        if isinstance(error, sqlite3.Error):
            raise self._pool.translated(error) from error


class Transaction(Reading):
    """A connection in a transaction, for `with`."""

    __slots__ = ("_lock", "_sharing")

    def __enter__(self) -> sqlite3.Connection:
        self._lock, self._sharing = self._pool.lock()
        try:
            db = super().__enter__()
            try:
                self._pool.check_in_place()
                db.execute("BEGIN IMMEDIATE")
            except BaseException as error:
                super().__exit__(type(error), error, error.__traceback__)
                raise
        except BaseException:
            self._lock.release()
            raise
        return db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit(self._sharing.take())
            super().__exit__(kind, error, trace)  # to close a connection rolls back
        finally:
            self._lock.release()

    def _commit(self, shared: Shared) -> None:
        is_done = False
        try:
            shared.apply(self._db)
            self._db.execute("COMMIT")
            is_done = True
        except BaseException as error:
            super().__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            shared.settle(is_done=is_done)  # P3: not before they are on disk
