"""A ledger in PostgreSQL, on which several workers share a run. `psql` reads it (P5).

Who may work is said by locks of the session, which the server frees when a worker's connection ends, however it does:
a shared one for those who carry out a run, one alone for whoever changes generations, and one for the turn to begin
and to end a run. What each does of a run is said by leases (`sharing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.indexing.arguments import MEMORY
from holdfast.indexing.database import refuse_version
from holdfast.indexing.ledger.schema import OLD, POSTGRES, VERSION, statements
from holdfast.indexing.ledger.shares import Order, Share
from holdfast.indexing.ledger.sharing import CLAIMS, RUNS, Shared, begin, find
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.ledger.tables import Tables
from holdfast.patience import of_postgres

_MAKING = 7_364_610_012_411
"""The lock under which tables are made."""
_WORK, _TURN, _TEXTS = 1, 2, 3
_TRIES = 3
_WITHIN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)
_BROKEN = (psycopg.OperationalError, psycopg.InterfaceError)
_MADE = (  # asked of the catalog itself: `to_regclass` may answer from what the connection remembers
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = ? AND c.relname IN ('head', 'claim')"
)


class PostgresLedger(Tables):
    """The ledger of one index, in a schema of its own."""

    name_type = 'TEXT COLLATE "C"'

    def __init__(
        self, url: str, *, schema: str = "holdfast_index", lease_s: float = 60.0, timeout_s: float = 30.0
    ) -> None:
        """`lease_s`: after how long without a sign of life a worker's documents are taken over by others.

        While a model is asked it is made longer, ten times at most: a call that takes more than that hangs. A pooler
        between has to keep a session to one connection.

        `timeout_s`: how long a network that does not answer is waited for; the URL may say otherwise.
        """
        if not schema or "\0" in schema or len(schema.encode()) > 63:
            raise Refused(f"the schema is {schema!r}", hint="Its name has 1 to 63 bytes.")
        self._url, self._schema, self._timeout_s = url, schema, timeout_s
        self.lease_s = lease_s
        self._held = ""
        self._db: psycopg.Connection[Any] | None = None
        self._is_there = self._is_whole = False
        self._nothing = SQLiteLedger(MEMORY)
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._nothing.close()
        if self._db is not None:
            self._db.close()
        self._db = None

    # who works

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only one at work. Conflict if others are. A run that nobody is at is given up."""
        with self._holding("pg_try_advisory_lock", "pg_advisory_unlock"):
            with self.transaction():
                self.tell("DELETE FROM run WHERE NOT is_done")
            yield

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Be one of those who carry out a run. Conflict while somebody works alone."""
        with self._holding("pg_try_advisory_lock_shared", "pg_advisory_unlock_shared"):
            yield

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for one's turn to begin or to end a run."""
        self.ask(f"SELECT pg_advisory_lock({_key(_TURN)})", self._schema)
        try:
            yield
        finally:
            with contextlib.suppress(Unavailable):  # gone with its connection
                self.ask(f"SELECT pg_advisory_unlock({_key(_TURN)})", self._schema)

    def join(self, order: Order) -> Share | None:
        """Take part in the run that does what is asked; None if there is none. Conflict if others do something else."""
        found = find(self, order)
        return None if found is None else Shared(self, *found)

    def open(self, order: Order, generation: int) -> Share:
        """Begin a run, in one's turn."""
        share = Shared(self, begin(self, order, generation), generation)
        share.renew()
        return share

    @contextlib.contextmanager
    def _holding(self, take: str, give: str) -> Iterator[None]:
        if self._held:
            raise Conflict("this run is at work already", hint="Open a run of its own for each worker.")
        self._make()
        if not self.ask(f"SELECT {take}({_key(_WORK)})", self._schema)[0][0]:
            raise Conflict("another run is at work on this ledger", hint="Wait for it to end, or end it.")
        self._held = take
        try:
            yield
        finally:
            self._held = ""
            with contextlib.suppress(Unavailable):
                self.ask(f"SELECT {give}({_key(_WORK)})", self._schema)

    # asking

    def ask(self, query: str, *values: object) -> list[Any]:
        """All rows of an answer. As long as there are no tables it is that of empty ones, and none are made."""
        if not self._is_there:
            self._look()
        return self._patiently(query, *values) if self._is_there else self._nothing.ask(query, *values)

    def _patiently(self, query: str, *values: object) -> list[Any]:
        left = _TRIES if not (self._held or self._is_within()) else 1  # a lock, or a transaction, is gone with it
        while True:
            left -= 1
            with self._translated():
                try:
                    return self._ask(query, values)
                except _BROKEN:
                    if not left:
                        raise

    def _ask(self, query: str, values: Sequence[object]) -> list[Any]:
        with self._connected().cursor(binary=True) as cursor:
            cursor.execute(_spelt(query), values or None)
            return cursor.fetchall() if cursor.description else []

    def tell(self, query: str, *values: object) -> int:
        with self._translated(), self._connected().cursor(binary=True) as cursor:
            cursor.execute(_spelt(query), values or None)
            return max(cursor.rowcount, 0)

    def tell_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            with self._translated(), self._connected().cursor(binary=True) as cursor:
                cursor.executemany(_spelt(query), rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if self._is_within():
            yield
            return
        self._make()
        self.ask("SELECT 1")  # a connection that broke since is replaced before anything is done on it
        with self._translated(), self._connected().transaction():
            yield
            self.tell("UPDATE head SET revision = revision + 1")

    @contextlib.contextmanager
    def leasing(self, *, in_turn: bool = False) -> Iterator[None]:
        """A transaction that says who does what: it changes nothing that a plan looks at."""
        self.ask("SELECT 1")
        with self._translated(), self._connected().transaction():
            if in_turn:
                self.ask(f"SELECT pg_advisory_xact_lock({_key(_TEXTS)})", self._schema)
            yield

    def _is_within(self) -> bool:
        return self._db is not None and self._db.info.transaction_status in _WITHIN

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed or self._db.broken:
            if self._held:
                raise Unavailable("PostgreSQL was gone in the middle of a run", hint=_AGAIN)
            self._db = self._connect()
        return self._db

    def _connect(self) -> psycopg.Connection[Any]:
        patience = of_postgres(self._timeout_s, psycopg.conninfo.conninfo_to_dict(self._url))
        url = psycopg.conninfo.make_conninfo(self._url, **patience)
        connection = psycopg.connect(url, autocommit=True, client_encoding="utf8")
        stalled = max(1, int(self.lease_s * 1000))
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        connection.execute(sql.SQL("SET idle_in_transaction_session_timeout = {}").format(stalled))
        connection.execute("SET default_transaction_isolation = 'read committed'")  # who waited for a lock looks again
        return connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            raise Unavailable(f"PostgreSQL is gone: {error}", hint=_AGAIN) from error
        except psycopg.Error as error:
            raise Unavailable(f"PostgreSQL says: {error}", hint="Look at its log.") from error

    def shrink(self) -> None:
        """The server's own work."""

    # its tables

    def _look(self) -> None:
        """See which tables there are. Refused if they are of another version."""
        made = {row[0] for row in self._patiently(_MADE, self._schema)}
        if "head" in made:
            version = self._patiently("SELECT version FROM head")[0][0]
            refuse_version(f"the ledger in the schema {self._schema}", version, VERSION, if_old=OLD)
        self._is_there, self._is_whole = "head" in made, len(made) == 2

    def _make(self) -> None:
        """Make what is not there, once, however many come at the same time."""
        if self._is_whole:
            return
        with self._translated(), self._connected().transaction():
            self._patiently("SELECT pg_advisory_xact_lock(?)", _MAKING)
            self._look()  # another worker may have been quicker
            if not self._is_there:
                name = sql.Identifier(self._schema)
                self._connected().execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                for statement in statements(POSTGRES, RUNS):
                    self.tell(statement)
                self.tell("INSERT INTO head VALUES (?, ?, 0)", self._nothing.id(), VERSION)
            if not self._is_whole:  # nor do the first ledgers of this version have it
                self.tell(CLAIMS.format_map(POSTGRES))
        self._is_there = self._is_whole = True


_AGAIN = "Make a plan and apply it when it is back: what was paid for is kept."


def _key(which: int) -> str:
    return f"{which}, hashtext(?)"


def _spelt(query: str) -> Any:
    return query.replace("?", "%s")
