"""SQLite files: opening, versions, upgrades, and sharing by threads and processes, for every file of Holdfast.

Layout          what a kind of file contains: tables, version, upgrade
DatabaseFile    opens one file: pragmas, version check, creation, upgrade, translation of errors
Database        one connection to a file that is created when something is first written to it
Pool            many connections to a file, one writer at a time, with group commit
connect, error_code, is_damage, journal_mode    the pieces, for a file that is only a cache
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import contextlib
import errno
import os
import sqlite3
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from holdfast.errors import Damaged, HoldfastError, NotFound, Refused, Unavailable

MEMORY = ":memory:"
"""SQLite's name for a database without a file."""
_TIMEOUT_S = 30.0
_RETRY_SECONDS = 0.01
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_WRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_WRITABLE_HINT = "The file and its folder must be writable, even for reading: SQLite puts a log next to the file."
_EXCLUSIVE, _SHARED = "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA locking_mode=NORMAL"
_WAL_INDEX_STEP_BYTES = 4096


def journal_mode(path: str | os.PathLike[str]) -> str:
    """`WAL`, in which readers and writers do not wait for each other; `DELETE` where that could kill the process.

    SQLite maps the index of a write-ahead log (`-shm`) into memory, and extends it by one byte at the end of each
    4 KiB. On a file system with smaller blocks most of it is a hole: if the disk is full when SQLite writes there, the
    kernel kills the process (SIGBUS), where a write would have failed with an error.
    """
    folder = os.path.dirname(os.path.realpath(path))
    with contextlib.suppress(OSError):
        if sys.platform != "win32" and os.statvfs(folder).f_bsize < _WAL_INDEX_STEP_BYTES:
            return "DELETE"
    return "WAL"


def connect(path: str, *, timeout_s: float = _TIMEOUT_S, create: bool = True) -> sqlite3.Connection:
    """Connect with Python's own SQLite; transactions begin only where the caller begins one."""
    place = f"///{quote(path.replace(os.sep, '/'), safe='/:')}" if os.sep == "\\" else quote(os.fsencode(path))
    name = path if path == MEMORY else f"file:{place}?mode={'rwc' if create else 'rw'}"
    return sqlite3.connect(name, uri=path != MEMORY, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def error_code(error: BaseException) -> int:
    """SQLite's number for an error of Python's module or of apsw; 0 if it has none."""
    found = getattr(error, "sqlite_errorcode", None) or getattr(error, "result", None) or 0
    return int(found) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection has the file locked."""
    return error_code(error) == sqlite3.SQLITE_BUSY


def is_damage(error: BaseException) -> bool:
    """Whether the file is at fault, rather than a lock, a permission or the disk."""
    return error_code(error) not in (*_BUSY, *_NOT_WRITABLE, *_DISK)


def split_statements(script: str) -> list[str]:
    """The statements of a script that contains no semicolon inside a statement."""
    return [each for each in map(str.strip, script.split(";")) if each]


def refuse_version(name: str, version: int, ours: int, *, if_old: str) -> None:
    """Raise Refused if something has another version than ours."""
    if version > ours:
        raise Refused(f"{name} is of version {version}, newer than {ours}", hint="Open it with a newer Holdfast.")
    if version < ours:
        raise Refused(f"{name} is of version {version}, older than {ours}", hint=if_old)


class Upgrade(NamedTuple):  # a dataclass would cost each start of the program half a millisecond
    """How a file of an older version becomes one of the current version."""

    application: int
    version: int
    run: Callable[[Any], None]
    """Changes the tables, inside a transaction."""
    tables: frozenset[str] | None = None
    """All tables of such a file, where its application number does not tell it from other programs' files."""
    rewrites_file: bool = False
    """Whether most of the file changes: it is compacted afterwards, and a file that cannot be written (or a disk that
    is full) is read from an upgraded copy in memory."""
    later: frozenset[int] = frozenset()
    """Later versions that `run` upgrades, too; the file's `user_version` is the old one while it runs."""


class Layout(NamedTuple):
    """What a kind of file contains, and how its errors name it."""

    name: str
    """What error messages call the file."""
    version: int
    schema: Sequence[str]
    """Statements that create the tables."""
    application: int = 0
    """The file's `application_id`: tells our files from others'."""
    pragmas: Sequence[str] = ()
    """Run on an empty file, before its tables are created."""
    connection_pragmas: Sequence[str] = ("PRAGMA synchronous=FULL",)
    """Run on each new connection. FULL: a commit survives a power loss."""
    check: Callable[[Any, str], None] | None = None
    """Raises Damaged for damage that SQLite itself does not notice; called with a new connection and its path."""
    if_damaged: str = "Restore it from a copy."
    if_old: str = "Open it with an older Holdfast."
    upgrade: Upgrade | None = None


_State = Literal["new", "current", "old"]


class DatabaseFile:
    """Opens connections to one file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        *,
        connect: Callable[[str], Any] | None = None,
        errors: tuple[type[Exception], ...] = (sqlite3.Error,),
        timeout_s: float = _TIMEOUT_S,
        create: bool = True,
    ) -> None:
        """`create=False`: NotFound if the file is missing or empty.

        `connect`, `errors`: for another driver than Python's own, and the exceptions that it raises.
        """
        self.layout = layout
        self.errors = errors
        self.timeout_s = timeout_s
        self.path = MEMORY if os.fspath(path) == MEMORY else os.path.abspath(path)  # the process may change directory
        self.is_memory_copy = False
        """Whether the connection is to an upgraded copy in memory."""
        self._create = create
        self._connect = connect or self._connect_here
        self._opened: tuple[int, int] | None = None

    def _connect_here(self, path: str) -> sqlite3.Connection:
        return connect(path, timeout_s=self.timeout_s, create=self._create)

    def open(self) -> Any:
        """Connect, and create or upgrade the tables, once, however many processes open the file at the same time.

        A file of another program, or of a newer version, is Refused and not changed.
        """
        self.check_in_place()
        if not self._create and not os.path.exists(self.path):
            raise self._missing()
        db = self._connect(self.path)
        try:
            db = self._prepare(db)
            self._opened = self._opened or self._identity()
        except BaseException:
            db.close()
            raise
        return db

    def open_in_memory(self) -> Any:
        """An empty database with the same tables, in memory."""
        db = self._connect(MEMORY)
        self._make(db)
        return db

    def check_in_place(self) -> None:
        """Raise Unavailable if the file is not the one that was opened: what is saved there would be lost (P1)."""
        if self._opened is not None and self._identity() != self._opened:
            raise Unavailable(
                f"{self.layout.name} was removed or replaced while it was in use", hint="Close it, and open it again."
            )

    def check_writable(self) -> None:
        """Raise Unavailable if a copy in memory is open instead of the file."""
        if self.is_memory_copy:
            raise Unavailable(
                f"{self.layout.name} is not writable, and of an older version",
                hint="Open it again when it and its folder are writable, and the disk has space for as much again.",
            )

    def translate(self, error: Exception) -> HoldfastError:
        """The error to raise for one of SQLite or of the operating system."""
        name, code = self.layout.name, error_code(error)
        if isinstance(error, HoldfastError):
            return error
        if code == sqlite3.SQLITE_NOTADB:
            return Damaged(f"{name} is damaged, or is not a database: {error}", hint=self.layout.if_damaged)
        if code == sqlite3.SQLITE_CORRUPT or "decode to UTF-8" in str(error):
            return Damaged(f"{name} is damaged: {error}", hint=self.layout.if_damaged)
        if code in _NOT_WRITABLE and not os.path.isdir(os.path.dirname(self.path)):
            return Unavailable(f"the folder of {name} does not exist", hint="Create the folder, or name another file.")
        if code in _NOT_WRITABLE or isinstance(error, PermissionError):
            return Unavailable(f"{name} is not writable", hint=_WRITABLE_HINT)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return Unavailable(f"{name} cannot be used: {reason}", hint="Check that it can be written to, and try again.")

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _missing(self) -> NotFound:
        return NotFound(f"{self.layout.name} does not exist, or is empty", hint="Check the name.")

    def _prepare(self, db: Any) -> Any:
        has_wal = self.path == MEMORY or journal_mode(self.path) == "WAL"
        if not has_wal:  # before anything is read: alone with a database, SQLite does not map the index of its log
            self._run(db, _EXCLUSIVE)
        if self.layout.check is not None and self.path != MEMORY:
            self.layout.check(db, self.path)
        for pragma in self.layout.connection_pragmas:
            db.execute(pragma)
        state = self._state(db)
        upgrade = self.layout.upgrade
        try:
            if not has_wal:
                self._leave_wal(db, state)
            if state != "current":
                self._migrate(db, state)
        except self.errors as error:
            is_full = error_code(error) in (*_NOT_WRITABLE, sqlite3.SQLITE_FULL)
            if state != "old" or upgrade is None or not upgrade.rewrites_file or not is_full:
                raise
            return self._upgraded_copy(db)
        if state == "old" and upgrade is not None and upgrade.rewrites_file:
            self._compact(db)
        return db

    def _state(self, db: Any) -> _State:
        # Tables first: another process may create them right now, and sets the version in the same transaction.
        if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return "new"
        application, version = signature = _signature(db)
        if signature == (self.layout.application, self.layout.version):
            return "current"
        upgrade = self.layout.upgrade
        if (
            upgrade is not None
            and application == upgrade.application
            and version in {upgrade.version, *upgrade.later}
            and upgrade.tables in (None, _tables(db))
        ):
            return "old"
        if application != self.layout.application or not version:
            raise Refused(f"{self.layout.name} is a database of another program", hint="Name another file.")
        refuse_version(self.layout.name, version, self.layout.version, if_old=self.layout.if_old)
        return "current"

    def _leave_wal(self, db: Any, state: _State) -> None:
        """Give up the write-ahead log that a file brought along from another file system."""
        if state != "new":
            self._run(db, "PRAGMA journal_mode=DELETE")
        self._run(db, _SHARED)
        self._run(db, "PRAGMA schema_version")  # takes effect with the next statement that reads

    def _migrate(self, db: Any, state: _State) -> None:
        """Create or upgrade the tables, in one transaction: a kill leaves the file as it was, or done (P3)."""
        if state == "new":
            if not self._create:
                raise self._missing()
            for pragma in self.layout.pragmas:
                self._run(db, pragma)
            if self.path != MEMORY:
                self._run(db, f"PRAGMA journal_mode={journal_mode(self.path)}")
        self._run(db, "BEGIN IMMEDIATE")
        try:
            state = self._state(db)  # another process may have been faster
            if state == "new":
                self._make(db)
            elif state == "old":
                self._upgrade(db)
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(*self.errors):
                db.execute("ROLLBACK")
            raise

    def _make(self, db: Any) -> None:
        for statement in self.layout.schema:
            db.execute(statement)
        self._sign(db)

    def _upgrade(self, db: Any) -> None:
        if self.layout.upgrade is not None:
            self.layout.upgrade.run(db)
        self._sign(db)

    def _sign(self, db: Any) -> None:
        db.execute(f"PRAGMA application_id={self.layout.application}")
        db.execute(f"PRAGMA user_version={self.layout.version}")

    def _upgraded_copy(self, db: Any) -> Any:
        copy = self._connect(MEMORY)
        db.backup(copy)
        db.close()
        self._upgrade(copy)
        self.is_memory_copy = True
        return copy

    def _compact(self, db: Any) -> None:
        with contextlib.suppress(*self.errors):  # without it the file is larger, and as good
            for statement in ("PRAGMA busy_timeout=0", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                db.execute(statement).fetchall()
        db.execute(f"PRAGMA busy_timeout={int(self.timeout_s * 1000)}")

    def _run(self, db: Any, statement: str) -> None:
        """Run a statement for which SQLite may not wait by itself: it changes a journal's mode at once, or fails."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                db.execute(statement).fetchall()
                return
            except self.errors as error:
                if error_code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)


def _signature(db: Any) -> tuple[int, int]:
    """The application and the version that a file states."""
    application, version = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in ("application_id", "user_version"))
    return application, version


def _tables(db: Any) -> frozenset[str]:
    names = (row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    return frozenset(name for name in names if not name.startswith("sqlite_"))  # ANALYZE adds SQLite's own


class Database:
    """One connection to one file. Until there is a file, it reads as an empty one, and nothing is written."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        *,
        connect: Callable[[str], Any] | None = None,
        errors: tuple[type[Exception], ...] = (sqlite3.Error,),
    ) -> None:
        self._file = DatabaseFile(path, layout, connect=connect, errors=errors)
        self._errors: tuple[type[Exception], ...] = (OSError, *errors)
        self._connection: Any = None
        self._is_file = False
        self._lock = threading.RLock()
        """Threads share the connection: one at a time is in a transaction."""
        _ = self.connection  # raise now if the file cannot be used

    @property
    def connection(self) -> Any:
        """The connection: to the file, or to an empty database in memory until there is one."""
        if not self._is_file:
            with self.translated():
                if self._has_file():
                    self._open()
                elif self._connection is None:
                    self._connection = self._file.open_in_memory()
        return self._connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Any]:
        """A transaction: committed at the end, rolled back on any error. Creates the file if there is none."""
        with self._lock, self.translated():
            if not self._is_file:
                self._open()
            self._file.check_writable()
            self._file.check_in_place()
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
        """A transaction that reads: all of it sees one state of the file, whatever others write meanwhile."""
        with self._lock, self.translated():
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
        return bool(self.connection.in_transaction)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        return self.connection.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> Any:
        return self.connection.executemany(query, rows)

    def one(self, query: str, *values: Any) -> Any:
        """The first row of an answer; None if there is none."""
        with self.translated():
            return self.execute(query, values).fetchone()

    def pragma(self, name: str) -> int:
        """The value of a numeric pragma."""
        return int(self.one(f"PRAGMA {name}")[0])

    def close(self) -> None:
        self._connection.close()

    def __del__(self) -> None:
        # A caller who forgets `close` never saw the connection: no ResourceWarning about it (Python 3.13)
        if (connection := getattr(self, "_connection", None)) is not None:
            connection.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of SQLite as ours."""
        try:
            yield
        except HoldfastError:
            raise
        except self._errors as error:
            raise self._file.translate(error) from error

    def _has_file(self) -> bool:
        if self._file.path == MEMORY:
            return False
        try:
            found = os.stat(self._file.path)
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        return found.st_size > 0

    def _open(self) -> None:
        db = self._file.open()
        if self._connection is not None:
            self._connection.close()
        self._connection, self._is_file = db, True


Apply = Callable[[sqlite3.Connection], None]
"""Adds writes inside a transaction. If it raises a HoldfastError, it has changed nothing."""
_GROUP_COMMIT_MAX_SECONDS = 30.0
_PARENT_CONNECTIONS: list[list[sqlite3.Connection]] = []
"""Connections of parent processes; see `Pool._check_process`."""


class Pool:
    """Connections to one file: opened when needed, reused, never used by two threads or by a forked child."""

    def __init__(self, file: DatabaseFile) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._group = GroupCommit()
        self._pid = os.getpid()
        self._closed = False

    def reading(self) -> "PooledConnection":
        """A connection, for `with`; errors of SQLite are raised as ours."""
        return PooledConnection(self)

    def transaction(self) -> "WriteTransaction":
        """A connection in a write transaction, for `with`: committed at the end, rolled back on any error.

        Threads of this process wait for each other here, instead of polling the file. Writes that wait for a commit
        (`offer`) are stored in the same transaction.
        """
        return WriteTransaction(self)

    def acquire(self) -> tuple[threading.Lock, "GroupCommit"]:
        """Wait until no other thread writes. The caller releases the lock."""
        self._check_process()
        lock, group = self._lock, self._group
        if not lock.acquire(timeout=self.file.timeout_s):
            raise Unavailable(f"{self.file.layout.name} is being written to", hint="Try again.")
        return lock, group

    def offer(self, apply: Apply, seconds: float) -> bool:
        """Let another thread's commit store writes; whether one did. See `GroupCommit.offer`."""
        self._check_process()
        return self._group.offer(apply, seconds)

    def close(self) -> None:
        self._check_process()
        self._closed = True
        self._close_idle()

    def take(self) -> sqlite3.Connection:
        if self._closed:
            raise Refused(f"{self.file.layout.name} was closed", hint="Open it again.")
        self._check_process()
        try:
            return self._idle.pop()
        except IndexError:
            db: sqlite3.Connection = self.file.open()
            return db

    def give(self, db: sqlite3.Connection) -> None:
        self._idle.append(db)
        if self._closed:  # while this connection was in use
            self._close_idle()

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._idle:
                self._idle.pop().close()

    def _check_process(self) -> None:
        """In a forked child, leave the parent's connections alone, and never close them: closing could delete the log
        that the parent is using."""
        if self._pid != os.getpid():
            _PARENT_CONNECTIONS.append(self._idle)
            self._pid, self._lock, self._idle, self._group = os.getpid(), threading.Lock(), [], GroupCommit()


# The two below are classes, not generators: those would take longer than the statements in them.


class PooledConnection:
    """A connection of a pool, for `with`; one that fails is closed."""

    __slots__ = ("_db", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._db = self._pool.take()
        except sqlite3.Error as error:
            raise self._pool.file.translate(error) from error
        return self._db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._pool.give(self._db)
            return
        self._db.close()
        if isinstance(error, sqlite3.Error):
            raise self._pool.file.translate(error) from error


class WriteTransaction(PooledConnection):
    """A connection in a write transaction, for `with`."""

    __slots__ = ("_group", "_lock")

    def __enter__(self) -> sqlite3.Connection:
        self._lock, self._group = self._pool.acquire()
        try:
            db = super().__enter__()
            try:
                self._pool.file.check_in_place()
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
                self._commit(self._group.take())
            super().__exit__(kind, error, trace)  # closing a connection rolls back
        finally:
            self._lock.release()

    def _commit(self, waiting: list["PendingWrite"]) -> None:
        is_done = False
        try:
            for each in waiting:
                each.run(self._db)
            self._db.execute("COMMIT")
            is_done = True
        except BaseException as error:
            super().__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            for each in waiting:
                each.settle(is_done=is_done)  # P3: not before they are on disk


class PendingWrite:
    """Writes of one call that wait for a commit."""

    __slots__ = ("apply", "error", "is_done", "settled")

    def __init__(self, apply: Apply) -> None:
        self.apply = apply
        self.error: HoldfastError | None = None
        self.is_done = False
        self.settled = threading.Lock()
        self.settled.acquire()

    def run(self, db: sqlite3.Connection) -> None:
        """Add the writes; if they are refused, only their own caller gets the error."""
        try:
            self.apply(db)
        except HoldfastError as error:
            self.error = error

    def settle(self, *, is_done: bool) -> None:
        """Wake the caller: the writes are on disk, or were not written and it must commit them itself."""
        self.is_done = is_done
        self.settled.release()


class GroupCommit:
    """Writes that wait a moment for another thread's commit: a transaction costs one sync, whatever its size."""

    def __init__(self) -> None:
        self._waiting: deque[PendingWrite] = deque()

    def take(self) -> list[PendingWrite]:
        """The writes that wait now. The caller settles each, whatever happens."""
        taken = []
        while self._waiting:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # another thread was faster
                break
        return taken

    def offer(self, apply: Apply, seconds: float) -> bool:
        """Wait for a commit that stores these writes; False if none did, and the caller must commit them itself.

        Only one caller waits: a second one returns False at once, and its own commit stores the first one's writes.
        """
        if self._waiting:
            return False
        mine = PendingWrite(apply)
        self._waiting.append(mine)
        if not mine.settled.acquire(timeout=seconds):
            try:
                self._waiting.remove(mine)
                return False
            except ValueError:  # just taken. Bounded: adding the same writes once more would change nothing
                mine.settled.acquire(timeout=_GROUP_COMMIT_MAX_SECONDS)
        if mine.is_done and mine.error is not None:
            raise mine.error
        return mine.is_done
