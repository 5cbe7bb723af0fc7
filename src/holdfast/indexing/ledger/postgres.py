"""A ledger in PostgreSQL, on which several workers share a run. Readable with `psql` (P5).

Session locks control who may work; the server frees them when the connection of a worker ends (P9): a shared one for
the workers of a run, an exclusive one to change generations, and one to begin and to end a run. Leases
(`PostgresShare`) say which worker does what.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from holdfast.durable.postgres import (
    EXISTING_TABLES,
    TRIES,
    check_schema_name,
    check_url,
    connect,
    creating_tables,
    is_transient,
    translate,
)
from holdfast.durable.sqlite import refuse_version
from holdfast.errors import Conflict, Unavailable
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.ledger.tables import OLD, POSTGRES, VERSION, Tables, create_statements
from holdfast.indexing.ledger.work_shares import Order, Share
from holdfast.indexing.validation import MEMORY

_CREATE_LOCK = 7_364_610_012_411
"""The lock under which tables are created."""
_WORK, _TURN, _TEXTS = 1, 2, 3
_WITHIN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)

_RUNS = """
CREATE TABLE run (
    number {number}, settings_digest TEXT NOT NULL, corpus_digest TEXT NOT NULL, retry_failed BOOLEAN NOT NULL,
    generation BIGINT NOT NULL, is_done BOOLEAN NOT NULL DEFAULT false, revision BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE worker (
    id TEXT PRIMARY KEY, run BIGINT NOT NULL REFERENCES run ON DELETE CASCADE, until TIMESTAMPTZ NOT NULL
);
CREATE TABLE task (
    run BIGINT NOT NULL REFERENCES run ON DELETE CASCADE, name {name} NOT NULL, content TEXT, owner TEXT,
    is_moved BOOLEAN NOT NULL DEFAULT false, PRIMARY KEY (run, name)
);
"""
_CLAIMS = """
CREATE TABLE claim (key {name} PRIMARY KEY, owner TEXT NOT NULL REFERENCES worker ON DELETE CASCADE);
"""
_POLL_S = 0.2
_LONGEST_CALL = 10
"""How many leases one call of a model may take. A longer one counts as hanging, and others take over."""
_FREE = (
    " FROM task t LEFT JOIN worker w ON w.id = t.owner WHERE t.run = ? AND NOT t.is_moved"
    " AND (t.owner IS NULL OR w.until IS NULL OR w.until < clock_timestamp())"
)
_AGAIN = "Make a plan and apply it when the server is back: what was paid for is kept."


class PostgresLedger(Tables):
    """The ledger of one index, in a schema of its own."""

    name_type = 'TEXT COLLATE "C"'
    words = POSTGRES

    def __init__(
        self, url: str, *, schema: str = "holdfast_index", lease_s: float = 60.0, timeout_s: float = 30.0
    ) -> None:
        """`lease_s`: other workers take over the documents of a worker that did not renew its lease for this long.

        During a call of a model it is renewed, ten times at most: a longer call counts as hanging. A connection pooler
        must use session pooling.

        `timeout_s`: how long to wait for a network that does not answer; the URL may override it.
        """
        self._url, self._schema, self._timeout_s = check_url(url), check_schema_name(schema), timeout_s
        self.lease_s = lease_s
        self._held = ""
        self._db: psycopg.Connection[Any] | None = None
        self._is_there = self._is_whole = False
        self._empty = SQLiteLedger(MEMORY)
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._empty.close()
        if self._db is not None:
            self._db.close()
        self._db = None

    # concurrency

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Take the ledger exclusively. Conflict if a run is active. Abandoned runs are deleted."""
        with self._holding("pg_try_advisory_lock", "pg_advisory_unlock"):
            with self.transaction():
                self.execute("DELETE FROM run WHERE NOT is_done")
            yield

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Join the workers of a run. Conflict while another process has the ledger exclusively."""
        with self._holding("pg_try_advisory_lock_shared", "pg_advisory_unlock_shared"):
            yield

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the lock to begin or to end a run."""
        self.query(f"SELECT pg_advisory_lock({_key(_TURN)})", self._schema)
        try:
            yield
        finally:
            with contextlib.suppress(Unavailable):  # the lock ended with its connection
                self.query(f"SELECT pg_advisory_unlock({_key(_TURN)})", self._schema)

    def join(self, order: Order) -> Share | None:
        """Join the run of this order; None if there is none. Conflict if another run is active."""
        found = _find_run(self, order)
        return None if found is None else PostgresShare(self, *found)

    def open(self, order: Order, generation: int) -> Share:
        """Begin a run; called within `turn`."""
        share = PostgresShare(self, _begin_run(self, order, generation), generation)
        share.renew()
        return share

    @contextlib.contextmanager
    def _holding(self, take: str, give: str) -> Iterator[None]:
        if self._held:
            raise Conflict("this process already uses this ledger", hint="Open one IndexRun for each worker.")
        self._make()
        if not self.query(f"SELECT {take}({_key(_WORK)})", self._schema)[0][0]:
            raise Conflict("another run is active on this ledger", hint="Wait for it to end, or end it.")
        self._held = take
        try:
            yield
        finally:
            self._held = ""
            with contextlib.suppress(Unavailable):
                self.query(f"SELECT {give}({_key(_WORK)})", self._schema)

    # queries

    def query(self, query: str, *values: object) -> list[Any]:
        """Return all rows of a query. Without tables, the result is that of empty tables, and none are created."""
        if not self._is_there:
            self._look()
        return self._query_with_retry(query, *values) if self._is_there else self._empty.query(query, *values)

    def _query_with_retry(self, query: str, *values: object) -> list[Any]:
        left = TRIES if not (self._held or self._is_within()) else 1  # the connection has a lock or a transaction
        while True:
            left -= 1
            with self._translated():
                try:
                    return self._query_once(query, values)
                except psycopg.Error as error:
                    if not left or not is_transient(error):
                        raise

    def _query_once(self, query: str, values: Sequence[object]) -> list[Any]:
        with self._connected().cursor(binary=True) as cursor:
            cursor.execute(_with_placeholders(query), values or None)
            return cursor.fetchall() if cursor.description else []

    def execute(self, query: str, *values: object) -> int:
        with self._translated(), self._connected().cursor(binary=True) as cursor:
            cursor.execute(_with_placeholders(query), values or None)
            return max(cursor.rowcount, 0)

    def execute_many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            with self._translated(), self._connected().cursor(binary=True) as cursor:
                cursor.executemany(_with_placeholders(query), rows)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        if self._is_within():
            yield
            return
        self._make()
        self.query("SELECT 1")  # reconnect first if the connection broke
        with self._translated(), self._connected().transaction():
            yield
            self.execute("UPDATE head SET revision = revision + 1")

    @contextlib.contextmanager
    def leasing(self, *, in_turn: bool = False) -> Iterator[None]:
        """Begin a transaction for leases and claims: it does not change the revision."""
        self.query("SELECT 1")
        with self._translated(), self._connected().transaction():
            if in_turn:
                self.query(f"SELECT pg_advisory_xact_lock({_key(_TEXTS)})", self._schema)
            yield

    def _is_within(self) -> bool:
        return self._db is not None and self._db.info.transaction_status in _WITHIN

    def _connected(self) -> psycopg.Connection[Any]:
        if self._db is None or self._db.closed or self._db.broken:
            if self._held:
                raise Unavailable("the connection to PostgreSQL was lost during a run", hint=_AGAIN)
            self._db = self._connect()
        return self._db

    def _connect(self) -> psycopg.Connection[Any]:
        connection = connect(self._url, timeout_s=self._timeout_s, prepare_threshold=5)
        stalled = max(1, int(self.lease_s * 1000))
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        connection.execute(sql.SQL("SET idle_in_transaction_session_timeout = {}").format(stalled))
        connection.execute(
            "SET default_transaction_isolation = 'read committed'"
        )  # after waiting for a lock, read again
        return connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate(error, if_gone=_AGAIN) from error

    def has_history(self) -> bool:
        return bool(self._query_with_retry(EXISTING_TABLES, self._schema, ["history"]))

    def shrink(self) -> None:
        """Do nothing: autovacuum does it."""

    # tables

    def _look(self) -> None:
        """Find out which tables exist. Refused if they have another version."""
        made = {row[0] for row in self._query_with_retry(EXISTING_TABLES, self._schema, ["head", "claim"])}
        if "head" in made:
            version = self._query_with_retry("SELECT version FROM head")[0][0]
            refuse_version(f"the ledger in the schema {self._schema}", version, VERSION, if_old=OLD)
        self._is_there, self._is_whole = "head" in made, len(made) == 2

    def _make(self) -> None:
        """Create missing tables, once, however many workers start at the same time."""
        if self._is_whole:
            return
        with self._translated(), creating_tables(self._connected(), _CREATE_LOCK):
            self._look()  # another worker may have created them
            if not self._is_there:
                name = sql.Identifier(self._schema)
                self._connected().execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                for statement in create_statements(POSTGRES, _RUNS):
                    self.execute(statement)
                self.execute("INSERT INTO head VALUES (?, ?, 0)", self._empty.id(), VERSION)
            if not self._is_whole:  # the first ledgers of this version lack this table, too
                self.execute(_CLAIMS.format_map(POSTGRES))
        self._is_there = self._is_whole = True


def _key(which: int) -> str:
    return f"{which}, hashtext(?)"


def _with_placeholders(query: str) -> Any:
    return query.replace("?", "%s")


def _find_run(ledger: PostgresLedger, order: Order) -> tuple[int, int] | None:
    """Return the active or just finished run of an order and its generation. Conflict if another run is active."""
    rows = ledger.query(
        "SELECT number, generation, settings_digest, corpus_digest, retry_failed, is_done, revision FROM run"
        " ORDER BY number DESC LIMIT 1"
    )
    if not rows:
        return None
    number, generation, *asked, is_done, revision = rows[0]
    is_same = asked == [order.settings_digest, order.corpus_digest, order.retry_failed]
    if is_done:
        return (number, generation) if is_same and order.revision < revision == ledger.revision() else None
    is_live = bool(ledger.query("SELECT 1 FROM worker WHERE run = ? AND until > clock_timestamp() LIMIT 1", number))
    if is_live and not is_same:
        raise Conflict("other workers apply another plan on this ledger", hint="Wait for them to end, or end them.")
    has_moved = bool(ledger.query("SELECT 1 FROM task WHERE run = ? AND is_moved LIMIT 1", number))
    return (number, generation) if is_same and (is_live or not has_moved) else None


def _begin_run(ledger: PostgresLedger, order: Order, generation: int) -> int:
    """Record the documents of a run. Finished and abandoned runs are deleted."""
    with ledger.transaction():
        ledger.execute("DELETE FROM run")
        number = ledger.query(
            "INSERT INTO run (settings_digest, corpus_digest, retry_failed, generation) VALUES (?, ?, ?, ?)"
            " RETURNING number",
            order.settings_digest, order.corpus_digest, order.retry_failed, generation,
        )[0][0]  # fmt: skip
        tasks: list[tuple[int, str, str | None]] = [(number, name, each) for name, each in order.documents.items()]
        tasks += [(number, name, None) for name in order.deleted]
        ledger.execute_many("INSERT INTO task (run, name, content) VALUES (?, ?, ?)", tasks)
    return int(number)


class PostgresShare:
    """The share of one worker in a run of several."""

    def __init__(
        self, ledger: PostgresLedger, run: int, generation: int, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.generation = generation
        self._ledger = ledger
        self._run = run
        self._sleep = sleep
        self._me = uuid4().hex

    def wanted(self) -> dict[str, str]:
        return dict(self._free("t.name, t.content", "t.content IS NOT NULL"))

    def deletions(self) -> list[str]:
        return [row[0] for row in self._free("t.name", "t.content IS NULL")]

    def claim(self, names: Sequence[str]) -> set[str]:
        self.renew()
        with self._ledger.leasing():
            query = f"SELECT t.name{_FREE} AND t.name = ANY (?) ORDER BY t.name FOR UPDATE OF t SKIP LOCKED"
            locked = [row[0] for row in self._ledger.query(query, self._run, list(names))]
            # P9: that query does not see the lease of a worker that claimed one meanwhile: query again under the locks
            free = [
                row[0] for row in self._ledger.query(f"SELECT t.name{_FREE} AND t.name = ANY (?)", self._run, locked)
            ]
            query = "UPDATE task SET owner = ? WHERE run = ? AND name = ANY (?)"
            self._ledger.execute(query, self._me, self._run, free)
        return set(free)

    def renew(self) -> None:
        with self._ledger.leasing():
            self._renew()

    def _renew(self) -> bool:
        """Renew the lease; False if the run was deleted by others."""
        renewed = self._ledger.execute(
            "INSERT INTO worker SELECT ?, number, clock_timestamp() + make_interval(secs => ?) FROM run"
            " WHERE number = ? ON CONFLICT (id) DO UPDATE SET until = excluded.until",
            self._me, self._ledger.lease_s, self._run,
        )  # fmt: skip
        return renewed > 0

    @contextlib.contextmanager
    def holding(self, names: Sequence[str]) -> Iterator[set[str]]:
        self.renew()
        with self._ledger.transaction():
            query = "SELECT name FROM task WHERE run = ? AND owner = ? AND name = ANY (?) ORDER BY name FOR UPDATE"
            yield {row[0] for row in self._ledger.query(query, self._run, self._me, list(names))}

    def done(self, names: Sequence[str]) -> None:
        self._ledger.execute("DELETE FROM task WHERE run = ? AND name = ANY (?)", self._run, list(names))

    def moved(self, names: Sequence[str]) -> None:
        with self._ledger.leasing():
            query = "UPDATE task SET is_moved = true WHERE run = ? AND owner = ? AND name = ANY (?)"
            self._ledger.execute(query, self._run, self._me, list(names))

    def all_moved(self) -> list[str]:
        return [row[0] for row in self._ledger.query("SELECT name FROM task WHERE run = ? AND is_moved", self._run)]

    @contextlib.contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[set[str]]:
        own = self._claim_texts(keys)
        try:
            yield own
        finally:
            # under the same lock as claiming, which locks the rows of others in an order of its own: no deadlock
            with (
                contextlib.suppress(Unavailable),
                self._ledger.leasing(in_turn=True),
            ):  # otherwise they end with the lease
                query = "DELETE FROM claim WHERE owner = ? AND key = ANY (?)"
                self._ledger.execute(query, self._me, sorted(own))

    def _claim_texts(self, keys: Sequence[str]) -> set[str]:
        with self._ledger.leasing(in_turn=True):  # otherwise the lease of a concurrent claim is not visible
            if not self._renew():
                raise Conflict("other workers apply another plan now", hint="Make a new plan and check it.")
            rows = self._ledger.query(
                "INSERT INTO claim SELECT unnest (?::text[]), ? ON CONFLICT (key) DO UPDATE SET owner = excluded.owner"
                " WHERE claim.owner = excluded.owner OR NOT EXISTS"
                " (SELECT 1 FROM worker w WHERE w.id = claim.owner AND w.until >= clock_timestamp()) RETURNING key",
                sorted(keys), self._me,
            )  # fmt: skip
        return {row[0] for row in rows}

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> None:
        while seconds > 0:
            self.renew()
            some = min(seconds, self._ledger.lease_s / 3)
            sleep(some)
            seconds -= some

    @contextlib.contextmanager
    def staying(self) -> Iterator[None]:
        is_back = threading.Event()

        def stay() -> None:
            with contextlib.suppress(Unavailable):  # the connection is lost, and the lease with it
                for _ in range(3 * _LONGEST_CALL):
                    if is_back.wait(self._ledger.lease_s / 3):
                        return
                    self.renew()

        thread = threading.Thread(target=stay, name="holdfast-lease", daemon=True)
        try:
            thread.start()
            yield
        finally:
            is_back.set()  # also after an interrupt at the start: the thread would renew a released lease
            with contextlib.suppress(RuntimeError):  # the thread was not started
                thread.join()

    def release(self) -> None:
        with self._ledger.leasing():
            self._ledger.execute("DELETE FROM worker WHERE id = ?", self._me)

    def left(self) -> bool:
        while self._ledger.query("SELECT 1 FROM task WHERE run = ? AND NOT is_moved LIMIT 1", self._run):
            self.renew()
            if self._ledger.query(f"SELECT 1{_FREE} LIMIT 1 FOR UPDATE OF t SKIP LOCKED", self._run):
                return True
            self._sleep(_POLL_S)  # other workers have the rest, and may die
        return False

    def is_open(self) -> bool:
        return bool(self._ledger.query("SELECT 1 FROM run WHERE number = ? AND NOT is_done", self._run))

    def close(self) -> None:
        with self._ledger.transaction():
            self._ledger.execute("DELETE FROM task WHERE run = ?", self._run)
            self._ledger.execute("DELETE FROM worker WHERE run = ?", self._run)
            query = "UPDATE run SET is_done = true, revision = (SELECT revision + 1 FROM head) WHERE number = ?"
            self._ledger.execute(query, self._run)

    def _free(self, columns: str, which: str) -> list[Any]:
        return self._ledger.query(f"SELECT {columns}{_FREE} AND {which}", self._run)
