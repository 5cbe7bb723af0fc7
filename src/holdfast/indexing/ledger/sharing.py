"""A run that several workers share on PostgreSQL: a row for each document, and whose it is.

A worker's lease is a time until which its claims count, by the server's clock alone. A claim that was taken over is not
its first owner's any more: it finds out when it wants to publish, and leaves it. Texts are claimed, too, for as long as
they are on their way to a model and back: documents of two workers may have the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast.errors import Conflict, Unavailable
from holdfast.indexing.ledger.shares import Order

if TYPE_CHECKING:
    from holdfast.indexing.ledger.postgres import PostgresLedger

RUNS = """
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
CLAIMS = """
CREATE TABLE claim (key {name} PRIMARY KEY, owner TEXT NOT NULL REFERENCES worker ON DELETE CASCADE);
"""
_POLL_S = 0.2
_LONGEST_CALL = 10
"""Leases that one call of a model may take. One that takes longer hangs, and others take over."""
_FREE = (
    " FROM task t LEFT JOIN worker w ON w.id = t.owner WHERE t.run = ? AND NOT t.is_moved"
    " AND (t.owner IS NULL OR w.until IS NULL OR w.until < clock_timestamp())"
)


def find(ledger: PostgresLedger, order: Order) -> tuple[int, int] | None:
    """The run, and its generation, that does what is asked, or just did; Conflict if others do something else."""
    rows = ledger.ask(
        "SELECT number, generation, settings_digest, corpus_digest, retry_failed, is_done, revision FROM run"
        " ORDER BY number DESC LIMIT 1"
    )
    if not rows:
        return None
    number, generation, *asked, is_done, revision = rows[0]
    is_same = asked == [order.settings_digest, order.corpus_digest, order.retry_failed]
    if is_done:
        return (number, generation) if is_same and order.revision < revision == ledger.revision() else None
    is_live = bool(ledger.ask("SELECT 1 FROM worker WHERE run = ? AND until > clock_timestamp() LIMIT 1", number))
    if is_live and not is_same:
        raise Conflict("others carry out another plan on this ledger", hint="Wait for them to end, or end them.")
    has_moved = bool(ledger.ask("SELECT 1 FROM task WHERE run = ? AND is_moved LIMIT 1", number))
    return (number, generation) if is_same and (is_live or not has_moved) else None


def begin(ledger: PostgresLedger, order: Order, generation: int) -> int:
    """Write down what is to be done. Runs that are over, or that nobody is at, make place."""
    with ledger.transaction():
        ledger.tell("DELETE FROM run")
        number = ledger.ask(
            "INSERT INTO run (settings_digest, corpus_digest, retry_failed, generation) VALUES (?, ?, ?, ?)"
            " RETURNING number",
            order.settings_digest, order.corpus_digest, order.retry_failed, generation,
        )[0][0]  # fmt: skip
        tasks: list[tuple[int, str, str | None]] = [(number, name, each) for name, each in order.documents.items()]
        tasks += [(number, name, None) for name in order.deleted]
        ledger.tell_many("INSERT INTO task (run, name, content) VALUES (?, ?, ?)", tasks)
    return int(number)


class Shared:
    """One worker's part in a run that has others."""

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
            locked = [row[0] for row in self._ledger.ask(query, self._run, list(names))]
            # Who claimed one after that query began is judged by it as if it had no lease: so look again, now that all
            # of them are locked, before they are taken
            free = [row[0] for row in self._ledger.ask(f"SELECT t.name{_FREE} AND t.name = ANY (?)", self._run, locked)]
            query = "UPDATE task SET owner = ? WHERE run = ? AND name = ANY (?)"
            self._ledger.tell(query, self._me, self._run, free)
        return set(free)

    def renew(self) -> None:
        with self._ledger.leasing():
            self._renew()

    def _renew(self) -> bool:
        """Whether there is a run to be at: one that others put away has no workers, and nothing to claim."""
        renewed = self._ledger.tell(
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
            yield {row[0] for row in self._ledger.ask(query, self._run, self._me, list(names))}

    def done(self, names: Sequence[str]) -> None:
        self._ledger.tell("DELETE FROM task WHERE run = ? AND name = ANY (?)", self._run, list(names))

    def moved(self, names: Sequence[str]) -> None:
        with self._ledger.leasing():
            query = "UPDATE task SET is_moved = true WHERE run = ? AND owner = ? AND name = ANY (?)"
            self._ledger.tell(query, self._run, self._me, list(names))

    def all_moved(self) -> list[str]:
        return [row[0] for row in self._ledger.ask("SELECT name FROM task WHERE run = ? AND is_moved", self._run)]

    @contextlib.contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[set[str]]:
        own = self._claim_texts(keys)
        try:
            yield own
        finally:
            # In turn, as they are claimed: who claims locks the rows of others, too, in an order of its own
            with contextlib.suppress(Unavailable), self._ledger.leasing(in_turn=True):  # else they end with the lease
                query = "DELETE FROM claim WHERE owner = ? AND key = ANY (?)"
                self._ledger.tell(query, self._me, sorted(own))

    def _claim_texts(self, keys: Sequence[str]) -> set[str]:
        with self._ledger.leasing(in_turn=True):  # or a claim made meanwhile is judged without its owner's lease
            if not self._renew():
                raise Conflict("others carry out another plan by now", hint="Make a new plan, and look at it.")
            rows = self._ledger.ask(
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
            with contextlib.suppress(Unavailable):  # the connection is gone, and all that it had
                for _ in range(3 * _LONGEST_CALL):
                    if is_back.wait(self._ledger.lease_s / 3):
                        return
                    self.renew()

        thread = threading.Thread(target=stay, name="holdfast-lease", daemon=True)
        try:
            thread.start()
            yield
        finally:
            is_back.set()  # also if we are interrupted as it starts: it would bring back a worker that has gone
            with contextlib.suppress(RuntimeError):  # it has not begun, and has nothing to do if it comes
                thread.join()

    def release(self) -> None:
        with self._ledger.leasing():
            self._ledger.tell("DELETE FROM worker WHERE id = ?", self._me)

    def left(self) -> bool:
        while self._ledger.ask("SELECT 1 FROM task WHERE run = ? AND NOT is_moved LIMIT 1", self._run):
            self.renew()
            if self._ledger.ask(f"SELECT 1{_FREE} LIMIT 1 FOR UPDATE OF t SKIP LOCKED", self._run):
                return True
            self._sleep(_POLL_S)  # others are at it, and may die
        return False

    def is_open(self) -> bool:
        return bool(self._ledger.ask("SELECT 1 FROM run WHERE number = ? AND NOT is_done", self._run))

    def close(self) -> None:
        with self._ledger.transaction():
            self._ledger.tell("DELETE FROM task WHERE run = ?", self._run)
            self._ledger.tell("DELETE FROM worker WHERE run = ?", self._run)
            query = "UPDATE run SET is_done = true, revision = (SELECT revision + 1 FROM head) WHERE number = ?"
            self._ledger.tell(query, self._run)

    def _free(self, columns: str, which: str) -> list[Any]:
        return self._ledger.ask(f"SELECT {columns}{_FREE} AND {which}", self._run)
