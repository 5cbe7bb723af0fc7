"""States in PostgreSQL, shared by any number of workers on any number of machines.

Every change is one statement that calls one function (`postgres_schema`), or one transaction: whole or not there,
whatever happens to the client. A connection that breaks is replaced and the call is made again: what is there then is
as if it had been made once. (What tells how many it deleted may then say less: the first call did it, and its answer
was lost.)
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
from psycopg import sql

from holdfast.errors import NotFound, Refused, Unavailable
from holdfast.flow import conflicts
from holdfast.flow.names import check_name, escape
from holdfast.flow.postgres_reading import ONE_SESSION, PostgresReader, session_row, unescaped
from holdfast.flow.postgres_schema import ADD_ROWS, ADD_WRITES, FUNCTIONS, LOCK, LOCK_FAMILIES, TABLES, VERSION
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    Copy,
    Part,
    Place,
    Row,
    SessionRow,
    Stale,
    WriteRow,
    is_still,
)
from holdfast.patience import of_postgres, whole_seconds

T = TypeVar("T")
_TRIES = 3
_IS_MADE = (  # asked of the catalog itself: `to_regclass` may answer from what the connection remembers
    "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = 'version'"
)
_REOPEN = "DELETE FROM {schema}.sessions WHERE tenant = %s AND session = %s AND deleted RETURNING 1"
_ADD_SESSION = "INSERT INTO {schema}.sessions VALUES (%s, %s, %s, 0, 0, 0, %s) ON CONFLICT DO NOTHING RETURNING 1"
_PASSING = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.IdleInTransactionSessionTimeout)
_NO_ROOM = (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)
_MOST_SCHEMA_BYTES = 63  # of longer names PostgreSQL takes the beginning, and two of them could be one


class PostgresStore(PostgresReader):
    """One tenant of one schema."""

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "",
        schema: str = "holdfast",
        pool_size: int = 16,
        timeout: float = 30.0,
        prepare: bool = False,
        create: bool = True,
    ) -> None:
        """`create=False`: NotFound if nothing is there.

        `prepare`: prepared statements, which a pooler in transaction mode may not know.

        `timeout`: how many seconds a call waits for a connection, and for a network that does not answer; the URL may
        say otherwise (`connect_timeout`, `tcp_user_timeout`, `keepalives_idle` …).
        """
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._key = escape(tenant)
        self._url = _patient(_checked(url), timeout)
        self._schema = sql.Identifier(check_name(schema, "schema", most=_MOST_SCHEMA_BYTES))
        if "$$" in schema:  # ends the text of a function: what follows would be run
            raise Refused(f"schema is {schema!r}", hint="Give a name without $$.")
        if pool_size < 1:
            raise Refused(f"pool_size is {pool_size}", hint="Give 1 or more.")
        self._schema_name = schema
        self._queries: dict[str, bytes] = {}
        self._prepare_threshold = 5 if prepare else None
        self._size, self._timeout = pool_size, timeout
        self._closed = self._is_strict = False
        self._start()
        try:
            self._make_tables(create=create)
        except BaseException:
            self.close()
            raise

    @property
    def tenant(self) -> str:
        return self._tenant

    # committing

    def commit(
        self,
        row: Row,
        parts: Sequence[Part],
        *,
        base: Base | None = None,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
    ) -> int:
        names, refs, datas = zip(*parts, strict=True) if parts else ((), (), ())
        compare = not isinstance(expected_parent, Anything)
        expected = expected_parent if isinstance(expected_parent, str) else None
        [(status, number, newest)] = self._run(
            "SELECT * FROM {schema}.commit_row(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
            " %b::bytea[], %b::bytea[], %b::bytea[], %s, %s, %s, %s, %s)",
            self._key, *map(escape, row.place), _escaped(row.parent_id), _escaped(row.run_id), row.saved_at, row.family,
            row.digest, row.meta, row.refs, row.shape, list(names), list(refs), list(datas),
            base.sequence if base else None, base.digest if base else b"", compare, _escaped(expected), replace,
        )  # fmt: skip
        if status == "stale":
            raise Stale
        conflicts.check(
            row,
            is_deleted=status == "deleted",
            is_taken=status == "taken",
            newest=unescaped(newest),
            expected_parent=expected_parent if status == "moved" else ANYTHING,
        )
        return int(number)

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        done = self._do(lambda cursor: self._begin(cursor, escape(session), copies, reopen=reopen))
        if done is None:
            raise conflicts.exists(session)
        if any(status != "saved" for status, _ in done):
            raise Stale
        return [number for _, number in done]

    def _begin(
        self, cursor: psycopg.Cursor[Any], session: str, copies: Sequence[Copy], *, reopen: bool
    ) -> list[tuple[str, int]] | None:
        """What became of each row, and all of them are undone if one was not saved; None if there is such a session."""
        done: list[tuple[str, int]] = []
        family = copies[0].row.family
        with self._transaction(cursor.connection):
            cursor.execute(self._query("SELECT {schema}.lock_family(%s, %s, false)"), (self._key, family))
            if reopen:
                cursor.execute(self._query(_REOPEN), (self._key, session))
            if not cursor.execute(self._query(_ADD_SESSION), (self._key, session, family, False)).fetchone():
                return None
            cursor.execute(self._query(ADD_ROWS), (*_columns(copies), self._key, session, family))
            done = cursor.fetchall()
            if any(status != "saved" for status, _ in done):
                raise psycopg.Rollback
            cursor.execute(self._query(ADD_WRITES), (self._key, session, *_write_columns(copies)))
        return done

    # deleting

    def delete(self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = ()) -> int:
        columns = [[escape(name) for name in column] for column in zip(*places, strict=True)] or [[], [], []]
        gone = self._do(lambda cursor: self._delete(cursor, columns, if_are))
        if gone is None:
            raise Stale
        return gone

    def _delete(
        self, cursor: psycopg.Cursor[Any], columns: list[list[str]], if_are: Sequence[SessionRow]
    ) -> int | None:
        """None if something was saved into a session: looked at once nobody else can save."""
        with self._transaction(cursor.connection) if if_are else contextlib.nullcontext():
            if if_are:
                names = [*columns[0], *(escape(each.session) for each in if_are)]
                cursor.execute(self._query(LOCK_FAMILIES), (self._key, self._key, names))
            for each in if_are:
                found = cursor.execute(self._query(ONE_SESSION), (self._key, escape(each.session))).fetchall()
                if not is_still(next(map(session_row, found), None), each):
                    return None
            cursor.execute(self._query("SELECT {schema}.delete_rows(%s, %s, %s, %s)"), (self._key, *columns))
            return int(cursor.fetchall()[0][0])

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        text = "SELECT {schema}.delete_session(%s, %s, %s, %s, %s)"
        latest, saved_at = (if_is.latest, if_is.saved_at) if if_is else (None, None)
        [(count,)] = self._run(text, self._key, escape(session), tombstone, latest, saved_at)
        return int(count)

    def reopen(self, session: str) -> bool:
        return bool(self._run(_REOPEN, self._key, escape(session)))

    def bury(self, session: str) -> bool:
        return bool(self._run(_ADD_SESSION, self._key, escape(session), 0, True))

    def clear(self) -> None:
        self._run("SELECT {schema}.clear(%s)", self._key)

    # writes

    def add_writes(
        self, place: Place, writes: Sequence[WriteRow], *, replace: bool, patience_seconds: float = 0.0
    ) -> None:
        tasks, indexes, paths, channels, datas = zip(*writes, strict=True)
        texts = [[escape(each) for each in column] for column in (tasks, paths, channels)]
        [(added,)] = self._run(
            "SELECT {schema}.add_writes(%s, %s, %s, %s, %s, %s, %s, %s, %b, %s)",
            self._key, *map(escape, place), texts[0], list(indexes), texts[1], texts[2], list(datas), replace,
        )  # fmt: skip
        if not added:
            raise conflicts.deleted(place.session)

    # the server

    def _run(self, text: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        """Run one statement; all rows."""
        query = self._query(text)
        return self._do(lambda cursor: cursor.execute(query, named or values).fetchall())

    def _query(self, text: str) -> bytes:
        """A statement with the schema in it; there are few, and the driver knows those again that are bytes."""
        if text not in self._queries:
            schema = sql.Identifier(self._schema_name.replace("%", "%%"))  # what has parameters takes % for one
            self._queries[text] = sql.SQL(text).format(schema=schema).as_bytes(None)
        return self._queries[text]

    def _do(self, act: Callable[[psycopg.Cursor[Any]], T]) -> T:
        """Do something, once more on another connection if this one is broken."""
        error: Exception | None = None
        for _ in range(_TRIES):
            try:
                with self._connected() as db, self._seeing(db), db.cursor(binary=True) as cursor:
                    return act(cursor)
            except _NO_ROOM as full:
                raise Unavailable(f"PostgreSQL has no room: {_line(full)}", hint="Make some, and try again.") from full
            except psycopg.Error as wrong:
                if wrong.sqlstate and not isinstance(wrong, _PASSING):
                    raise Unavailable(f"PostgreSQL says: {_line(wrong)}", hint="Look at its log.") from wrong
                error = wrong
                self._drop_idle()  # a server that went away took them all: the next try makes a new one
        raise Unavailable(f"PostgreSQL is gone: {_line(error)}", hint="Try again when it is back.") from error

    def _seeing(self, connection: psycopg.Connection[Any]) -> contextlib.AbstractContextManager[object]:
        """Let each statement see what is so when it begins: who waited for a lock looks again at what it is about."""
        return self._transaction(connection) if self._is_strict else contextlib.nullcontext()

    @contextlib.contextmanager
    def _transaction(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """One of several statements. Should this machine die within it, others do not wait for its locks for hours."""
        with connection.transaction():
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {whole_seconds(self._timeout) * 1000}")
            yield

    def _start(self) -> None:
        """Begin without connections; in a forked child too, which leaves the parent's to the parent."""
        self._pid = os.getpid()
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[psycopg.Connection[Any]] = []

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while self._idle:
                self._idle.pop().close()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of one's own, the one that was used last; one that fails is not used again."""
        if self._closed:
            raise Refused("this store was closed", hint="Open it again.")
        if self._pid != os.getpid():
            self._start()
        if not self._free.acquire(timeout=self._timeout):
            raise Unavailable("all connections to PostgreSQL are in use", hint="Raise pool_size, or try again.")
        try:
            connection = self._take()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._idle.append(connection)
            if self._closed:  # while this one was in use
                self._drop_idle()
        finally:
            self._free.release()

    def _take(self) -> psycopg.Connection[Any]:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=self._prepare_threshold,
            client_encoding="utf8",  # that of a database may be none at all, and names would come as bytes
        )
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # of transactions that are begun by name
        return connection

    def _make_tables(self, *, create: bool) -> None:
        """Make what is not there, once, however many come at the same time."""
        if not self._run(_IS_MADE, self._schema_name):
            if not create:
                raise NotFound(
                    f"there are no states in schema {self._schema_name!r}",
                    hint="Nothing was saved there yet, or they are in another one: postgresql://…?schema=NAME.",
                )
            self._create()
        [(version, isolation)] = self._run(
            "SELECT number, current_setting('default_transaction_isolation') FROM {schema}.version"
        )
        self._is_strict = isolation != "read committed"
        if version != VERSION:
            raise Refused(f"the schema is of version {version}", hint="Use a newer Holdfast.")

    def _create(self) -> None:
        name = sql.SQL(_quoted(self._schema_name).replace("'", "''"))
        try:
            with self._connected() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                if not connection.execute(_IS_MADE, (self._schema_name,)).fetchone():
                    for text in (TABLES, FUNCTIONS):
                        connection.execute(sql.SQL(text).format(schema=self._schema, name=name))
        except psycopg.Error as error:
            raise Unavailable(f"no tables can be made: {_line(error)}", hint="May the user create a schema?") from error

    def close(self) -> None:
        self._closed = True
        if self._pid == os.getpid():
            self._drop_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _checked(url: str) -> str:
    """A URL that can be read; what is wrong with it is not repeated, since a password may be part of that."""
    authority, _, path = url.partition("://")[2].partition("/")
    try:
        if "@" in path.partition("?")[0] and "@" not in authority:
            raise psycopg.ProgrammingError("a slash in a password")
        ports = str(psycopg.conninfo.conninfo_to_dict(url).get("port") or "0")
        if not all(port.isdecimal() for port in ports.split(",") if port):
            raise psycopg.ProgrammingError("a colon in a password")
    except psycopg.Error:
        raise Refused(
            "this URL of PostgreSQL cannot be read",
            hint="Write postgresql://user@host:5432/name; special characters of a password are written as %40.",
        ) from None
    return url


def _patient(url: str, timeout: float) -> str:
    """A URL that says how long is waited, where it does not yet."""
    return psycopg.conninfo.make_conninfo(url, **of_postgres(timeout, psycopg.conninfo.conninfo_to_dict(url)))


def _line(error: Exception | None) -> str:
    """What the server said, on one line."""
    return " ".join(str(error).split())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(name: str | None) -> str | None:
    return None if name is None else escape(name)


def _columns(copies: Sequence[Copy]) -> list[list[Any]]:
    """The rows of copies, and their bases, column by column."""
    rows = [
        (*map(escape, row.place[1:]), _escaped(row.parent_id), _escaped(row.run_id), row.saved_at, row.digest, row.meta,
         row.refs, row.shape, *base)
        for row, base, _ in copies
    ]  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)]


def _write_columns(copies: Sequence[Copy]) -> list[list[Any]]:
    """The writes of copies, column by column."""
    rows = [
        (*map(escape, row.place[1:]), escape(write.task_id), write.idx, escape(write.task_path), escape(write.channel),
         write.data)
        for row, _, writes in copies
        for write in writes
    ]  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)] or [[]] * 7
