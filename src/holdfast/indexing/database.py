"""SQLite files of ours: opened alike, made when something is first written, and their errors told alike."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.indexing.arguments import MEMORY

_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BARRED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_NO_ROOM = (*_BARRED, sqlite3.SQLITE_FULL)
_PATIENCE_S = 30
_WRITABLE = "It and its folder have to be writable, even to be read: SQLite keeps a log beside it."


@dataclass(frozen=True, slots=True)
class Upgrade:
    """How a file of an older version becomes one of this."""

    application: int
    version: int
    tables: frozenset[str]
    """All that such a file has, so that no other program's is taken for one."""
    run: Callable[[Any], None]
    """Does it, within a transaction."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file of some kind is called, and what is in it when it is new."""

    name: str
    """What an error calls it."""
    version: int
    schema: Sequence[str]
    """Statements that make its tables."""
    application: int = 0
    """Says in the file whose it is."""
    pragmas: Sequence[str] = ()
    """What has to be said before a file has anything in it."""
    if_damaged: str = "Put it away and apply a plan: the ledger has every vector."
    if_old: str = "Put it away and apply a plan: the ledger has every vector."
    upgrade: Upgrade | None = None


def connect(path: str) -> sqlite3.Connection:
    """A connection of Python's own SQLite, which begins no transaction by itself."""
    db = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE_S, check_same_thread=False)
    be_alone(db, path)
    return db


def be_alone(db: Any, path: str) -> None:
    """Where a database cannot afford a write-ahead log, do not have that of one which comes from elsewhere mapped."""
    if path != MEMORY and durable.journal_mode(path) != "WAL":
        db.execute(durable.ALONE).fetchall()


def split_schema(text: str) -> list[str]:
    """Statements one by one."""
    return [each for each in text.split(";") if each.strip()]


class Database:
    """One file. As long as there is none, it is read as if it were new, and nothing is written."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        *,
        connect: Callable[[str], Any] = connect,
        errors: tuple[type[Exception], ...] = (sqlite3.Error,),
    ) -> None:
        self._path = path if str(path) == MEMORY else Path(os.path.abspath(path))  # a program may go elsewhere
        self._layout = layout
        self._connect = connect
        self._errors: tuple[type[Exception], ...] = (OSError, *errors)
        self._connection: Any = None
        self._is_file = False
        self._is_copy = False
        """Whether what is read is a copy in memory of a file that could not be upgraded."""
        self._seen: os.stat_result | None = None
        self._turn = threading.RLock()
        """One thread at a time is in a transaction: they share a connection."""
        _ = self.connection  # a file that cannot be used is told of at once

    @property
    def connection(self) -> Any:
        """The connection: to the file, or to nothing yet."""
        if not self._is_file:
            with self.translated():
                if self._has_file():
                    self._open()
                elif self._connection is None:
                    self._connection = self._connect(MEMORY)
                    self._make(self._connection)
        return self._connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Any]:
        """All that is done in it, or nothing. The file is made if there is none."""
        with self._turn, self.translated():
            if not self._is_file:
                self._open()
            self._refuse_if_copied()
            self._refuse_if_gone()
            db = self._connection
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(*self._errors):
                    db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """All that is read in it is of one moment, whatever others write meanwhile."""
        with self._turn, self.translated():
            db = self.connection
            if db.in_transaction:
                yield db
                return
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:  # an error may have ended it
                    db.execute("COMMIT")

    @property
    def in_transaction(self) -> bool:
        """Whether something is being written, or read as of one moment."""
        return bool(self.connection.in_transaction)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """As a connection does."""
        return self.connection.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> Any:
        """As a connection does."""
        return self.connection.executemany(query, rows)

    def one(self, query: str, *values: Any) -> Any:
        """The first row of an answer; None if there is none."""
        with self.translated():
            return self.execute(query, values).fetchone()

    def pragma(self, name: str) -> int:
        """A number that SQLite says."""
        return int(self.one(f"PRAGMA {name}")[0])

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of SQLite become ours."""
        try:
            yield
        except HoldfastError:
            raise
        except self._errors as error:
            raise self._told(error, _code(error)) from error

    def _told(self, error: Exception, code: int) -> HoldfastError:
        name = self._layout.name
        if code in _DAMAGE:
            return Damaged(f"{name} is damaged: {error}", hint=self._layout.if_damaged)
        if code in _BARRED and not self._path.parent.is_dir():
            return Unavailable(f"{name} has no folder to be in", hint="Make the folder, or name another.")
        if code in _BARRED or isinstance(error, PermissionError):
            return Unavailable(f"{name} is not writable", hint=_WRITABLE)
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        return Unavailable(f"{name} cannot be used: {said}", hint="See that it can be written to, and try again.")

    def _has_file(self) -> bool:
        if str(self._path) == MEMORY:
            return False
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        return found.st_size > 0

    def _open(self) -> None:
        db = self._connect(os.fspath(self._path))
        try:
            db.execute("PRAGMA synchronous=FULL")  # what was said to be written outlives a power loss, too
            if not self._is_ours(db):
                for pragma in (*self._layout.pragmas, f"PRAGMA journal_mode={durable.journal_mode(self._path)}"):
                    db.execute(pragma)
                db.execute("BEGIN IMMEDIATE")
                if not self._is_ours(db):  # or another process was quicker
                    self._make(db)
                db.execute("COMMIT")
            elif self._is_old(db):
                db = self._upgraded(db)
            if str(self._path) != MEMORY and durable.journal_mode(self._path) != "WAL":
                for statement in ("PRAGMA journal_mode=DELETE", durable.NOT_ALONE, "PRAGMA schema_version"):
                    db.execute(statement).fetchall()  # the last reads, and lets go of the lock
        except BaseException:
            db.close()
            raise
        if self._connection is not None:
            self._connection.close()
        self._connection, self._is_file = db, True
        self._seen = None if str(self._path) == MEMORY else os.stat(self._path)

    def _upgraded(self, db: Any) -> Any:
        """A connection to what an upgrade made of a file; to a copy of it in memory, if it cannot be written to.

        P3: it is one transaction, so a kill at any point leaves the old file or the new one.
        """
        try:
            db.execute("BEGIN IMMEDIATE")
            if self._is_old(db):  # or another process was quicker
                self._upgrade(db)
            db.execute("COMMIT")
        except self._errors as error:
            if _code(error) not in _NO_ROOM:
                raise
            with contextlib.suppress(*self._errors):
                db.execute("ROLLBACK")
            return self._copied(db)
        with contextlib.suppress(*self._errors):  # it takes more room than it needs, otherwise it is as good
            for statement in ("PRAGMA busy_timeout=0", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                db.execute(statement).fetchall()
        db.execute(f"PRAGMA busy_timeout={_PATIENCE_S * 1000}")
        return db

    def _copied(self, db: Any) -> Any:
        copy = self._connect(MEMORY)
        db.backup(copy)
        db.close()
        self._upgrade(copy)
        self._is_copy = True
        return copy

    def _upgrade(self, db: Any) -> None:
        if self._layout.upgrade is not None:
            self._layout.upgrade.run(db)
        self._sign(db)

    def _is_old(self, db: Any) -> bool:
        """Whether it is a file that can be upgraded."""
        old = self._layout.upgrade
        if old is None or _signs(db) != (old.application, old.version):
            return False
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {name for name in names if not name.startswith("sqlite_")} == old.tables  # ANALYZE adds SQLite's own

    def _refuse_if_copied(self) -> None:
        if self._is_copy:
            raise Unavailable(
                f"{self._layout.name} is not writable, and of an older version",
                hint="Open it again when it and its folder are writable, and there is room for as much again.",
            )

    def _refuse_if_gone(self) -> None:
        """What is written to a file that has no name any more is lost when it is closed."""
        with contextlib.suppress(FileNotFoundError):
            if self._seen is None or os.path.samestat(os.stat(self._path), self._seen):
                return
        raise Unavailable(
            f"{self._layout.name} was taken away while it was in use",
            hint="Put it back, if it is still somewhere; then make a plan, and apply it.",
        )

    def _make(self, db: Any) -> None:
        for statement in self._layout.schema:
            db.execute(statement)
        self._sign(db)

    def _sign(self, db: Any) -> None:
        """Say in a file what it is."""
        db.execute(f"PRAGMA application_id={self._layout.application}")
        db.execute(f"PRAGMA user_version={self._layout.version}")

    def _is_ours(self, db: Any) -> bool:
        """Whether it has our tables; not, if it is empty. Refused if they are others', or of another version."""
        application, version = _signs(db)
        if (application, version) == (self._layout.application, self._layout.version) or self._is_old(db):
            return True
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return False
        name = self._layout.name
        if application != self._layout.application or not version:
            raise Refused(f"{name} is a database of another program", hint="Name another file.")
        refuse_version(name, version, self._layout.version, if_old=self._layout.if_old)
        return True


def refuse_version(name: str, version: int, ours: int, *, if_old: str) -> None:
    """Refuse what is of another version than ours, which may be newer, or too old."""
    if version > ours:
        raise Refused(f"{name} is of version {version}, newer than {ours}", hint="Open it with a newer Holdfast.")
    if version < ours:
        raise Refused(f"{name} is of version {version}, older than {ours}", hint=if_old)


def _signs(db: Any) -> tuple[int, int]:
    """What a file says that it is: whose, and of which version."""
    application, version = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version"))
    return application, version


def _code(error: Exception) -> int:
    """SQLite's own number for an error, as Python's module and apsw have it."""
    found = getattr(error, "sqlite_errorcode", None) or getattr(error, "result", None) or 0
    return int(found) & 0xFF
