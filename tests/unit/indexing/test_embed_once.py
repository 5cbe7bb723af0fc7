"""No text is paid for twice: workers that have the same one leave it to the first that sends it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from holdfast.errors import Conflict
from holdfast.indexing.apply import order_of
from holdfast.indexing.embed import Budget, EmbedContext, Embedder, PendingText
from holdfast.indexing.ledger import Batch
from holdfast.indexing.ledger.postgres import PostgresLedger
from holdfast.indexing.ledger.sqlite import SQLiteLedger
from holdfast.indexing.ledger.work_shares import Share, UncontestedClaims
from holdfast.indexing.model_families import load_families
from holdfast.indexing.spaces import CANARIES, resolve

from . import crew
from .scene import Scene

_DOCS = 40
_CLAIMED = 16
_BATCH = 8
_SAME = "a notice that all of them begin with\n\n"


class Office:
    """Documents that all have one text, and a ledger that workers share."""

    def __init__(self, path: Path, url: str, schema: str) -> None:
        self.path, self.url, self.schema = path, url, schema
        self.scene = Scene(path)
        for number in range(_DOCS):
            self.scene.write(f"{number:02}.md", f"{_SAME}and a text of its own, number {number:02}")
        self.scene.ledger = self.ledger

    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.url, schema=self.schema, lease_s=crew.LEASE_S)

    def hasty(self) -> PostgresLedger:
        """One whose lease is short, and whose transactions may take their time all the same."""
        ledger = self.ledger()
        ledger.lease_s = 0.03
        return ledger

    def query(self, text: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as db:
            found = db.execute(sql.SQL(text).format(s=sql.Identifier(self.schema)))  # type: ignore[arg-type]
            return found.fetchone()[0] if found.description else None  # type: ignore[index]

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while not self.query(text):
            assert time.monotonic() < deadline, text
            time.sleep(0.02)

    def start(self, point: str = "") -> tuple[Any, Any]:
        return crew.start(self.path, (self.url, self.schema), point)

    def end_leases(self) -> None:
        self.query("UPDATE {s}.worker SET until = clock_timestamp() - interval '1 second'")

    def paid(self) -> Counter[str]:
        lines = crew.logged(self.path / "paid.log")
        return Counter(text for texts in lines for text in texts if text not in CANARIES)


@pytest.fixture
def office(tmp_path: Path, postgres_url: str, schema: str) -> Iterator[Office]:
    made = Office(tmp_path, postgres_url, schema)
    yield made
    made.scene.store.close()


@pytest.mark.parametrize("is_killed", [False, True], ids=["comes back", "is killed"])
def test_a_text_that_another_worker_is_paying_for_is_waited_for(office: Office, is_killed: bool) -> None:
    first, reached = office.start("paid")
    assert reached.poll(120)
    sent = office.paid()
    assert sent[_SAME] == 1
    second, _ = office.start()
    office.wait_for(f"SELECT count(*) = {_DOCS - _CLAIMED} FROM {{s}}.vector")  # all that is its own
    office.wait_for("SELECT count(*) = 2 FROM {s}.worker")
    assert second.is_alive(), "it waits for the text that it has not"
    if is_killed:
        first.kill()
        first.join()
        office.end_leases()
    else:
        reached.send("go on")
        first.join(120)
        assert first.exitcode == 0
    second.join(120)
    assert second.exitcode == 0
    again = dict.fromkeys(sent, 2) if is_killed else {}
    assert len(sent) == _BATCH, "a batch"
    assert office.paid() == Counter(dict.fromkeys(office.paid(), 1) | again)
    assert len(office.paid()) == _DOCS + 1
    assert office.query("SELECT count(*) FROM {s}.claim") == 0
    with office.scene.run() as run:
        assert run.verify().ok
        assert run.plan().is_empty


def test_many_workers_pay_for_each_text_once(office: Office) -> None:
    workers = [office.start()[0] for _ in range(4)]
    for each in workers:
        each.join(240)
    assert [each.exitcode for each in workers] == [0] * 4
    assert set(office.paid().values()) == {1}
    assert len(office.paid()) == _DOCS + 1


@pytest.fixture
def pair(office: Office) -> Iterator[tuple[Share, Share]]:
    """Two workers on one run, in this process."""
    with office.scene.run() as run:
        order = order_of(run.plan())
    with office.ledger() as one, office.ledger() as other:
        opened, joined = one.open(order, 1), other.join(order)
        assert joined is not None
        yield opened, joined


def test_claim_lasts_until_released_or_the_lease_ends(office: Office, pair: tuple[Share, Share]) -> None:
    one, other = pair
    with one.claiming(["a", "b"]) as own, other.claiming(["b", "c"]) as rest:
        assert (own, rest) == ({"a", "b"}, {"c"})
    with other.claiming(["a", "b"]) as own:
        assert own == {"a", "b"}
        office.end_leases()
        with one.claiming(["b"]) as taken:
            assert taken == {"b"}
    assert office.query("SELECT count(*) FROM {s}.claim") == 0


def test_claim_extends_the_lease_and_is_repeatable(office: Office, pair: tuple[Share, Share]) -> None:
    """A large document is many batches, and one that is left behind by a connection that broke is nobody else's."""
    one, other = pair
    office.end_leases()
    with one.claiming(["a"]), one.claiming(["a", "b"]) as own:
        assert own == {"a", "b"}
        with other.claiming(["a", "b"]) as rest:
            assert rest == set()


def test_only_one_of_many_that_come_at_once_has_a_text(office: Office, pair: tuple[Share, Share]) -> None:
    del pair
    keys = [f"{number:03}" for number in range(100)]

    def claim(order: Any) -> list[str]:
        with office.ledger() as ledger:
            share = ledger.join(order)
            assert share is not None
            own = share._claim_texts(keys)  # type: ignore[attr-defined] # and does not let go of them
            share.renew()
            return sorted(own)

    with office.scene.run() as run:
        order = order_of(run.plan())
    with ThreadPoolExecutor(6) as pool:
        found = [key for own in pool.map(claim, [order] * 6) for key in own]
    assert sorted(found) == keys


def test_claims_are_made_and_left_in_turn(office: Office, pair: tuple[Share, Share]) -> None:
    """Who claims locks the rows that others have, in the order of the keys; who leaves, as they lie in the table: the
    two would wait for each other."""
    waiting = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

    def leave() -> None:
        with pair[0].claiming(["a", "b"]):
            claimed.set()
            is_others_turn.wait(120)

    claimed, is_others_turn = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool, office.ledger() as ledger:
        left = pool.submit(leave)
        assert claimed.wait(120)
        with ledger.leasing(in_turn=True):
            is_others_turn.set()
            office.wait_for(f"{waiting} OR NOT EXISTS (SELECT 1 FROM {{s}}.claim)")
            assert office.query("SELECT count(*) FROM {s}.claim") == 2
        left.result(120)
    assert office.query("SELECT count(*) FROM {s}.claim") == 0


def test_a_worker_that_waits_does_not_lose_what_it_has(office: Office, pair: tuple[Share, Share]) -> None:
    one, other = pair
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        with other.claiming(["a"]) as own:
            assert own == set(), "the lease was made longer just now"
        office.query("UPDATE {s}.worker SET until = clock_timestamp() + interval '1 ms'")

    with one.claiming(["a"]):
        one.wait(2 * crew.LEASE_S, sleep)
    assert slept == [crew.LEASE_S / 3] * 6


def test_a_lease_does_not_end_while_a_model_takes_its_time(office: Office) -> None:
    until = "SELECT max(until)::text FROM {s}.worker"
    seen: list[str] = []

    def takes_its_time(texts: Any) -> None:
        if tuple(texts) != CANARIES and not seen:
            seen.append(office.query(until))
            office.wait_for(f"SELECT max(until)::text > '{seen[0]}' FROM {{s}}.worker")
            seen.append(office.query(until))

    office.scene.model.fails = takes_its_time
    office.scene.ledger = office.hasty
    with office.scene.done():
        assert len(seen) == 2, "it was made longer meanwhile"


def test_hanging_model_loses_the_lease(office: Office) -> None:
    with office.scene.run() as run:
        order = order_of(run.plan())
    deadline = time.monotonic() + 120
    with office.hasty() as ledger, ledger.open(order, 1).staying():
        while [each for each in threading.enumerate() if each.name == "holdfast-lease"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_interrupt_during_embedding_stops_the_lease_renewal(
    pair: tuple[Share, Share], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            begun.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt), pair[0].staying():
        pass
    assert [each.is_alive() for each in begun] == [False]


def test_a_worker_whose_run_is_no_more_pays_for_nothing(office: Office, pair: tuple[Share, Share]) -> None:
    office.query("DELETE FROM {s}.run")
    with pytest.raises(Conflict, match="another plan") as conflict, pair[0].claiming(["a"]):
        pass
    assert conflict.value.hint


def test_a_ledger_from_before_there_were_claims_gets_them(office: Office) -> None:
    with office.scene.done():
        pass
    office.query("DROP TABLE {s}.claim")
    office.scene.write("new.md", "something new")
    with office.scene.done() as run:
        assert run.plan().is_empty


class Desk:
    """Two embedders on one ledger, each with texts of its own in mind."""

    def __init__(self, scene: Scene, ledger: Any) -> None:
        self.scene, self.ledger = scene, ledger

    def embedder(self, **options: Any) -> Embedder:
        budget, claims = options.pop("budget", Budget()), options.pop("claims", None)
        found = resolve(self.scene.pipeline(**options), self.ledger, None, load_families([]))
        return Embedder(found["dense"], EmbedContext(self.ledger, load_families([]), budget), claims=claims)


@pytest.fixture
def desk(scene: Scene) -> Iterator[Desk]:
    with SQLiteLedger(scene.path / "index.db") as ledger:
        yield Desk(scene, ledger)


def _want(embedder: Embedder, *texts: str) -> None:
    for text in texts:
        embedder.add(PendingText(embedder.channel.key(text), text, "a.md"))


def test_text_embedded_meanwhile_is_not_sent_again(desk: Desk) -> None:
    one, other = desk.embedder(), desk.embedder(budget=Budget(max_embeds=0))
    for each in (one, other):
        _want(each, "first", "second")
    assert one.work(rest=True)
    assert other.work(rest=True)
    assert desk.scene.model.calls == [["first", "second"]]
    assert not other.pending


class Stuck(UncontestedClaims):
    """Another worker has claimed everything, and lives on without letting go."""

    @contextlib.contextmanager
    def claiming(self, keys: Sequence[str]) -> Iterator[set[str]]:
        yield set()

    def wait(self, seconds: float, sleep: Any) -> None:
        pytest.fail("it waits for what was paid for")


def test_what_was_paid_for_is_not_waited_for_whoever_has_it(desk: Desk) -> None:
    one, other = desk.embedder(), desk.embedder(claims=Stuck())
    for each in (one, other):
        _want(each, "first", "second")
    assert one.work(rest=True)
    assert other.work(rest=True)
    assert desk.scene.model.calls == [["first", "second"]]
    assert not other.pending


def test_what_failed_meanwhile_is_not_sent_again(desk: Desk) -> None:
    def fails(texts: Any) -> None:
        if "bad" in texts:
            raise ValueError("no")

    desk.scene.model.fails = fails
    one, other = desk.embedder(), desk.embedder()
    for each in (one, other):
        _want(each, "bad", "good")
    assert one.work(rest=True)
    asked = len(desk.scene.model.calls)
    assert other.work(rest=True)
    assert len(desk.scene.model.calls) == asked
    assert not other.pending


def test_document_level_text_is_sent_whole_or_not_at_all(desk: Desk) -> None:
    embedder = desk.embedder(context_scope="document")
    _want(embedder, "first", "second", "third")
    keys = list(embedder.pending)
    desk.ledger.add_batch(Batch(embedder.channel.space, {keys[1]: b"\0" * 256}, 1, 1, 0.0, 0.0))
    assert embedder.work(rest=True)
    assert desk.scene.model.calls == [["first", "second", "third"]]


def test_a_text_of_two_documents_is_sent_once(scene: Scene) -> None:
    for name in ("a.md", "b.md"):
        scene.write(name, "the same text")
    with scene.run() as run:
        plan = run.plan()
        applied = run.apply(plan)
    assert (plan.to_embed, applied.embedded, applied.published) == (1, 1, 2)
    assert scene.model.calls == [list(CANARIES), ["the same text"]]


def test_two_runs_on_one_file_pay_for_each_text_once(scene: Scene) -> None:
    """However its name is spelt: a second run learns that there is another."""
    scene.fill(3)
    link = scene.path / "link.db"
    link.symlink_to(scene.path / "index.db")
    seen: list[str] = []

    def meddle(texts: Any) -> None:
        if tuple(texts) != CANARIES and not seen:
            scene.model.fails = lambda texts: None
            scene.ledger = lambda: link
            with scene.run() as other, pytest.raises(Conflict) as conflict:
                other.apply(other.plan())
            seen.append(conflict.value.message)

    scene.model.fails = meddle
    with scene.run() as run:
        plan = run.plan()
        assert run.apply(plan).ok
    assert len(seen) == 1
    assert scene.model.texts == plan.to_embed + len(CANARIES)
