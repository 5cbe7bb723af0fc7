"""Every back end behaves as a simple model does, whatever is asked of it in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from examples import examples
from holdfast.errors import Conflict, NotFound
from holdfast.flow import ANYTHING, Place, States, StateStore, Write
from holdfast.flow.memory import MemoryStore
from holdfast.flow.postgres import PostgresStore
from holdfast.flow.redis import RedisStore
from holdfast.flow.sqlite import SQLiteStore
from holdfast.retention import Policy
from holdfast.testing.flow_contract import StateStoreContract, point

SESSIONS = st.sampled_from(["s", "t"])
NAMESPACES = st.sampled_from(["", "n"])
IDS = st.sampled_from([f"c{number}" for number in range(6)])
TEXTS = st.builds(lambda letter, size: letter * size, st.sampled_from("ab"), st.sampled_from([3, 300, 600, 5000]))
STATES = st.dictionaries(
    st.sampled_from("xyz"),
    st.lists(TEXTS, max_size=30) | st.dictionaries(st.sampled_from("pqrstuv"), TEXTS) | TEXTS,
    max_size=3,
)


class Against(RuleBasedStateMachine):
    """A list of what was saved, against a store that two `States` use."""

    def open(self) -> StateStore:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.start()

    def start(self) -> None:
        self.saved: list[tuple[str, str, str, Any]] = []
        self.deleted: set[str] = set()
        self.generation: dict[str, int] = {}
        """Of each session, deleted ones too; a fork has that of its source."""
        self.generations = 0
        self.known: list[dict[str, int]] = [{}, {}]
        """The generations that each of the two has read or saved into."""
        self.written: dict[Place, dict[str, int]] = {}
        self.used: list[States] = [States(self.open()), States(self.open(), memory_bytes=0)]

    def is_of_old(self, who: int, session: str) -> bool:
        """Whether one of the two knows the session only as it was before it was deleted and begun again."""
        known = self.known[who].get(session)
        return known is not None and session not in self.deleted and self.generation.get(session, known) != known

    def newest(self, session: str, namespace: str) -> str | None:
        return next((each[2] for each in reversed(self.saved) if each[:2] == (session, namespace)), None)

    @rule(
        who=st.integers(0, 1), session=SESSIONS, namespace=NAMESPACES, checkpoint_id=IDS, state=STATES,
        expected=st.just(ANYTHING) | st.none() | IDS, replace=st.booleans(),
    )  # fmt: skip
    def save(
        self, who: int, session: str, namespace: str, checkpoint_id: str, state: Any, expected: Any, replace: bool
    ) -> None:
        parent = None if expected is ANYTHING else expected
        entry = (session, namespace, checkpoint_id, (parent, state))
        there = next((at for at, each in enumerate(self.saved) if each[:3] == entry[:3]), None)
        same = there is not None and self.saved[there] == entry
        is_late = self.is_of_old(who, session) or (session in self.known[who] and session in self.deleted)
        is_wrong = (
            is_late
            or (session in self.deleted and (parent is not None or namespace != ""))
            or (there is not None and not replace)
            or (expected is not ANYTHING and self.newest(session, namespace) != expected)
        )
        try:
            self.used[who].save(
                point(checkpoint_id, state, session, namespace=namespace), expected_parent=expected, replace=replace
            )
        except Conflict:
            assert is_wrong
            assert is_late or not same
            return
        assert same or not is_wrong
        if session not in self.generation or session in self.deleted:
            self.generations += 1
            self.generation[session] = self.generations
            self.deleted.discard(session)
        self.known[who][session] = self.generation[session]
        if there is not None:
            self.saved[there] = entry
        else:
            self.saved.append(entry)

    @rule(who=st.integers(0, 1), session=SESSIONS, namespace=NAMESPACES, checkpoint_id=IDS)
    def delete(self, who: int, session: str, namespace: str, checkpoint_id: str) -> None:
        kept = [each for each in self.saved if each[:3] != (session, namespace, checkpoint_id)]
        if self.is_of_old(who, session):
            with pytest.raises(Conflict):
                self.used[who].delete(session, checkpoint_id, namespace=namespace)
            return
        assert self.used[who].delete(session, checkpoint_id, namespace=namespace) == len(self.saved) - len(kept)
        self.saved = kept
        self.written.pop(Place(session, namespace, checkpoint_id), None)

    @rule(who=st.integers(0, 1), session=SESSIONS, tombstone=st.booleans())
    def delete_session(self, who: int, session: str, tombstone: bool) -> None:
        is_known = any(each.session_id == session for each in self.used[who].sessions())
        kept = [each for each in self.saved if each[0] != session]
        assert self.used[who].delete(session, tombstone=tombstone) == len(self.saved) - len(kept)
        self.saved = kept
        self.written = {place: held for place, held in self.written.items() if place.session != session}
        self.known[who].pop(session, None)
        if tombstone and (is_known or session in self.deleted):
            self.deleted.add(session)
        elif not tombstone:
            self.deleted.discard(session)
            self.generation.pop(session, None)

    @rule(
        who=st.integers(0, 1), session=SESSIONS, checkpoint_id=IDS, task=st.sampled_from("kl"),
        value=st.integers(0, 9), replace=st.booleans(),
    )  # fmt: skip
    def write(self, who: int, session: str, checkpoint_id: str, task: str, value: int, replace: bool) -> None:
        place = Place(session, "", checkpoint_id)
        is_late = session in self.deleted or self.is_of_old(who, session)
        try:
            self.used[who].put_writes(place, [Write(task, 0, "x", value)], replace=replace)
        except Conflict:
            assert is_late
            return
        assert not is_late
        held = self.written.setdefault(place, {})
        if replace or task not in held:
            held[task] = value

    @rule(who=st.integers(0, 1), session=SESSIONS, namespace=NAMESPACES, checkpoint_id=IDS, into=SESSIONS)
    def fork(self, who: int, session: str, namespace: str, checkpoint_id: str, into: str) -> None:
        is_known = self.used[1 - who].store.session(into) is not None
        source = next((each for each in self.saved if each[:3] == (session, namespace, checkpoint_id)), None)
        try:
            self.used[who].fork(session, checkpoint_id, into=into, namespace=namespace)
        except NotFound:
            assert source is None
        except Conflict:
            assert source is not None and is_known
        else:
            assert source is not None and not is_known
            self.generation[into] = self.generation[session]
            self.known[who].pop(into, None)
            self.saved.append((into, namespace, checkpoint_id, (None, source[3][1])))

    @rule(who=st.integers(0, 1), most=st.integers(0, 3))
    def prune(self, who: int, most: int) -> None:
        """The last ones stay, and the last of each namespace."""
        heads = {each[:2]: each for each in self.saved}
        last = self.saved[max(len(self.saved) - most, 0) :]
        kept = [each for each in self.saved if each in last or heads[each[:2]] is each]
        gone = [each[:3] for each in self.saved if each not in kept]
        assert [
            (each.session_id, each.namespace, each.checkpoint_id)
            for each in self.used[who].prune(Policy(keep_last=most)).removed
        ] == gone
        self.saved = kept
        for place in gone:
            self.written.pop(Place(*place), None)

    @rule(who=st.integers(0, 1), session=SESSIONS)
    def reopen(self, who: int, session: str) -> None:
        assert self.used[who].reopen(session) == (session in self.deleted)
        self.known[who].pop(session, None)
        if session in self.deleted:
            self.deleted.discard(session)
            self.generation.pop(session)

    @rule(who=st.integers(0, 1), session=SESSIONS, namespace=NAMESPACES)
    def load(self, who: int, session: str, namespace: str) -> None:
        found = self.used[who].load(session, namespace=namespace)
        wanted = [each for each in self.saved if each[:2] == (session, namespace)]
        assert (found is None) == (not wanted)
        if found is None and not namespace:
            self.known[who].pop(session, None)
        if found is not None:
            self.known[who][session] = self.generation[session]
            assert (found.metadata.checkpoint_id, (found.metadata.parent_id, found.state)) == wanted[-1][2:]

    @rule()
    def restart(self) -> None:
        for states in self.used:
            states.close()
        self.used = [States(self.open()), States(self.open(), memory_bytes=0)]
        self.known = [{}, {}]

    @invariant()
    def everything_is_there(self) -> None:
        found = [
            (each.session_id, each.namespace, each.checkpoint_id)
            for each in self.used[0].metadata(None, None, namespace=None)
        ]
        assert found == [each[:3] for each in reversed(self.saved)]
        places = [Place(session, "", f"c{number}") for session in "st" for number in range(6)]
        written = self.used[0].writes(places)
        assert {place: {each.task_id: each.value for each in held} for place, held in written.items() if held} == {
            place: held for place, held in self.written.items() if held
        }
        StateStoreContract.assert_sound(self.used[1])

    def teardown(self) -> None:
        for states in self.used:
            states.close()


def check(open_: Callable[[], StateStore], most: int) -> None:
    """Each example begins with an empty store."""

    class Machine(Against):
        def open(self) -> StateStore:
            return open_()

        def start(self) -> None:
            with States(open_()) as states:
                states.clear_all()
            super().start()

    chosen = settings(max_examples=examples(most), stateful_step_count=25)
    run_state_machine_as_test(Machine, settings=chosen)  # type: ignore[no-untyped-call]


@pytest.mark.hypothesis
def test_memory_is_like_the_model() -> None:
    memory = MemoryStore()
    check(lambda: memory.for_tenant(""), 60)


@pytest.mark.hypothesis
def test_sqlite_is_like_the_model(tmp_path: Path) -> None:
    check(lambda: SQLiteStore(tmp_path / "a.db", synchronous="NORMAL"), 30)


def test_postgres_is_like_the_model(postgres_url: str) -> None:
    check(lambda: PostgresStore(postgres_url, schema="model", pool_size=2), 10)


def test_redis_is_like_the_model(redis_url: str) -> None:
    check(lambda: RedisStore(redis_url, prefix="model"), 15)
