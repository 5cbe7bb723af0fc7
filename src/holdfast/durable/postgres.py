"""PostgreSQL: connecting with timeouts, retrying, a pool of connections, creating tables once, translating errors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg

from holdfast.errors import Refused, Unavailable

T = TypeVar("T")
TRIES = 3
TRANSIENT = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
"""Errors after which the connection is replaced and the call made again."""
EXISTING_TABLES = (  # from the catalog itself: `to_regclass` may answer from what the connection has cached
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = ANY (%s)"
)
_FULL = (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)
_READING_TIMEOUT_S = 10.0
_MAX_SCHEMA_BYTES = 63  # PostgreSQL cuts longer names off, and two of them could become one


def check_schema_name(schema: Any) -> str:
    """The name as given; Refused if PostgreSQL cannot have a schema of that name."""
    is_text = isinstance(schema, str) and "\0" not in schema
    if not is_text or not 0 < len(schema.encode("utf-8", "surrogatepass")) <= _MAX_SCHEMA_BYTES:
        raise Refused(f"invalid schema name {schema!r}", hint=f"Its name has 1 to {_MAX_SCHEMA_BYTES} bytes.")
    return str(schema)


def check_url(url: str) -> str:
    """The URL as given; Refused if it cannot be parsed. The message leaves it out: it may contain a password."""
    authority, _, path = url.partition("://")[2].partition("/")
    try:
        if "@" in path.partition("?")[0] and "@" not in authority:
            raise psycopg.ProgrammingError("a slash in a password")
        ports = str(psycopg.conninfo.conninfo_to_dict(url).get("port") or "0")
        if not all(port.isdecimal() for port in ports.split(",") if port):
            raise psycopg.ProgrammingError("a colon in a password")
    except psycopg.Error:
        raise Refused(
            "cannot parse this PostgreSQL URL",
            hint="Write postgresql://user@host:5432/name; escape special characters of a password, as in %40.",
        ) from None
    return url


def connect(url: str, *, timeout_s: float, prepare_threshold: int | None = None) -> psycopg.Connection[Any]:
    """Connect in autocommit mode. Transactions are READ COMMITTED: after waiting for a lock, a statement looks again.

    `timeout_s`: after how long a network that does not answer counts as broken; what the URL says takes precedence.
    """
    given = psycopg.conninfo.conninfo_to_dict(url)
    seconds = whole_seconds(timeout_s)
    timeouts = {  # by default Linux waits hours
        "connect_timeout": seconds, "tcp_user_timeout": seconds * 1000,
        "keepalives_idle": seconds, "keepalives_interval": seconds // 2,
    }  # fmt: skip
    connection = psycopg.connect(
        psycopg.conninfo.make_conninfo(url, **{name: value for name, value in timeouts.items() if name not in given}),
        autocommit=True,
        prepare_threshold=prepare_threshold,
        client_encoding="utf8",  # a database may have no encoding, and would send names as bytes
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


@contextlib.contextmanager
def reading(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect for one transaction that sees one moment and cannot write."""
    with translated(), connect(check_url(url), timeout_s=_READING_TIMEOUT_S) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            yield connection


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise Unavailable in place of an error of PostgreSQL."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


def whole_seconds(timeout_s: float) -> int:
    """A timeout within the limits of PostgreSQL, which counts some of them in milliseconds."""
    return int(min(max(2, timeout_s), 1_000_000))


def translate(error: psycopg.Error, *, if_gone: str = "Try again when it is back.") -> Unavailable:
    """The error to raise for one of PostgreSQL."""
    reason = " ".join(str(error).split())
    if isinstance(error, _FULL):
        return Unavailable(f"PostgreSQL has no space left: {reason}", hint="Free some, and try again.")
    if is_transient(error):
        return Unavailable(f"PostgreSQL is not reachable: {reason}", hint=if_gone)
    return Unavailable(f"PostgreSQL returned an error: {reason}", hint="See the log of the PostgreSQL server.")


def is_transient(error: psycopg.Error) -> bool:
    """Whether the same call may succeed on another connection."""
    return not isinstance(error, _FULL) and (isinstance(error, TRANSIENT) or not error.sqlstate)


@contextlib.contextmanager
def creating_tables(connection: psycopg.Connection[Any], lock: int) -> Iterator[None]:
    """A transaction in which one process at a time creates tables; the caller looks first whether another one did."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        yield


class ConnectionPool:
    """Connections to one server, each used by one thread at a time and by no forked child.

    Our own rather than psycopg_pool: see docs/decisions/0024-own-postgres-pool.md.
    """

    def __init__(self, url: str, *, size: int, timeout_s: float, prepare: bool = False) -> None:
        """`timeout_s`: how long a call waits for a free connection, and for the network.

        `prepare`: use prepared statements, which a pooler in transaction mode may not support.
        """
        if size < 1:
            raise Refused(f"pool_size is {size}", hint="Give 1 or more.")
        self.timeout_s = timeout_s
        self._url = check_url(url)
        self._size = size
        self._prepare_threshold = 5 if prepare else None
        self._closed = False
        self._start()

    def run(self, act: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call `act` with a connection; again with another one if that one is broken.

        What `act` does must leave the same behind when it is done twice: the first answer may have been lost.
        """
        left = TRIES
        while True:
            left -= 1
            try:
                with self.connection() as connection:
                    return act(connection)
            except psycopg.Error as error:
                if not left or not is_transient(error):
                    raise translate(error) from error
                self._close_idle()  # a server that stopped took them all with it: the next try opens a new one

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection that was used last, or a new one; one that fails is closed."""
        if self._closed:
            raise Refused("this store is closed", hint="Open it again.")
        if self._pid != os.getpid():
            self._start()
        if not self._free.acquire(timeout=self.timeout_s):
            raise Unavailable("all connections to PostgreSQL are in use", hint="Raise pool_size, or try again.")
        try:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self._url, timeout_s=self.timeout_s, prepare_threshold=self._prepare_threshold)
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            if self._closed:  # while this one was in use
                self._close_idle()
        finally:
            self._free.release()

    @contextlib.contextmanager
    def transaction(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """A transaction of several statements. If this machine dies in it, the server frees its locks soon."""
        with connection.transaction():
            idle_ms = whole_seconds(self.timeout_s) * 1000
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {idle_ms}")
            yield

    def close(self) -> None:
        self._closed = True
        if self._pid == os.getpid():
            self._close_idle()

    def _start(self) -> None:
        """Begin without connections; also in a forked child, which leaves the parent's connections alone."""
        self._pid = os.getpid()
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[psycopg.Connection[Any]] = []

    def _close_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._idle:
                self._idle.pop().close()
