"""Contract of a state store: saving, loading, listing, and that a limit bounds the work (P8)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, Refused
from holdfast.flow import ANYTHING, Checkpoint, Place, States, StateStore, Write
from holdfast.testing.flow_contract.fixtures import FIVE, NOON, ODD_NAMES, FlowContract, OpenStore, conversation, point

Work = Callable[[StateStore, Callable[[], Any]], int]
"""How much a call makes a store do, in whatever can be counted of it: steps, rows, bytes."""
_FEW, _MANY = 40, 400
_IN_OTHERS = 10

SHORT: dict[str, Callable[[States], Any]] = {
    "rows of all": lambda states: states.store.rows(None, None, limit=1),
    "rows of all in a namespace": lambda states: states.store.rows(None, "", limit=1),
    "rows of all before": lambda states: states.store.rows(None, None, limit=1, before=30),
    "rows of a run": lambda states: states.store.rows(None, None, limit=1, run_id="r1"),
    "rows of a session": lambda states: states.store.rows("s1", None, limit=1),
    "rows of a namespace": lambda states: states.store.rows("s1", "", limit=1),
    "rows by id": lambda states: states.store.rows_by_id("s1", "", limit=1),
    "rows by id before": lambda states: states.store.rows_by_id("s1", "", before="c00020", limit=1),
    "the newest": lambda states: states.store.find("s1", "", None),
    "one by its id": lambda states: states.store.find("s1", "", "c00001"),
    "sessions": lambda states: states.store.sessions(limit=1),
    "metadata of all": lambda states: states.metadata(None, 1, namespace=None),
    "metadata of a session": lambda states: states.metadata("s1", 1),
    "list": lambda states: states.list("s1", 1),
    "load": lambda states: states.load("s1"),
    "diff": lambda states: states.diff("s1", "c00001", "c00005").changes,
}


class SavingContract(FlowContract):
    """What is saved is what is loaded and listed, in order."""

    # saving and loading

    def test_what_was_saved_is_loaded(self, states: States) -> None:
        one = point(state={"a": (1, {2}), "b": [None, b"x"]}, tags=("t",), run_id="r", extra={"k": (1,)})
        saved = states.save(one)
        assert states.load("s") == states.load("s", "c1") == one
        assert saved.sequence is not None

    def test_the_metadata_comes_back_to_the_zone(self, states: States) -> None:
        for number, stamp in enumerate([datetime(2026, 1, 1), NOON, NOON.astimezone(), datetime.min]):
            states.save(point(f"c{number}", timestamp=stamp))
            back = states.metadata("s", 1)[0]
            assert (back.timestamp.isoformat(), back.timestamp.tzinfo) == (stamp.isoformat(), stamp.tzinfo)

    def test_nothing_is_loaded_where_nothing_is(self, states: States) -> None:
        states.save(point())
        assert states.load("other") is None
        assert states.load("s", "other") is None
        assert states.load("s", namespace="other") is None
        assert (states.list("other"), states.metadata("other"), states.delete("other", "x")) == ([], [], 0)

    def test_what_is_loaded_belongs_to_the_caller(self, states: States) -> None:
        state = {"list": [1]}
        states.save(point(state=state))
        state["list"].append(2)
        loaded = states.load("s")
        assert loaded is not None
        loaded.state["list"].append(3)
        assert states.load("s") == point(state={"list": [1]})

    def test_the_newest_is_the_last_saved_whatever_clocks_say(self, states: States) -> None:
        """P10."""
        for number in range(5):
            states.save(point(f"c{number}", timestamp=NOON - timedelta(days=number), step=-number))
        states.save(point("equal", timestamp=NOON))
        assert states.load("s") == point("equal", timestamp=NOON)
        found = [each.metadata.checkpoint_id for each in states.list("s")]
        assert found == ["equal", "c4", "c3", "c2", "c1", "c0"]

    def test_numbers_grow_and_are_not_given_again(self, open_store: OpenStore) -> None:
        """P10, after deletions and by another store."""
        with States(open_store()) as states, States(open_store()) as other:
            first = states.save(point("a")).sequence
            second = other.save(point("b")).sequence
            other.delete("s", "b")
            third = states.save(point("b2")).sequence
            states.clear_all()
            fourth = other.save(point("c")).sequence
        assert first is not None
        assert second is not None
        assert third is not None
        assert fourth is not None
        assert first < second < third < fourth

    def test_the_same_checkpoint_saved_twice_is_one(self, states: States) -> None:
        first = states.save(point())
        states.save(point("c2"))
        assert states.save(point()) == first
        assert states.save(point(), expected_parent=None).sequence != 0
        assert [each.checkpoint_id for each in states.metadata("s")] == ["c2", "c1"]

    def test_different_checkpoint_with_a_taken_id_is_a_conflict(self, states: States) -> None:
        states.save(point())
        for other in (point(state={"other": 1}), point(step=2), point(extra={"a": 1})):
            with pytest.raises(Conflict, match="c1"):
                states.save(other)
        assert states.load("s") == point()

    def test_a_checkpoint_is_replaced_in_its_place_when_asked_for(self, states: States) -> None:
        states.save(point(state={"messages": conversation(20)}))
        states.save(point("c2"))
        states.save(point(state={"other": 1}), replace=True)
        assert [each.state for each in states.list("s")] == [{"n": "c2"}, {"other": 1}]
        assert states.usage().parts == 0

    def test_ids_are_unique_in_their_session_only(self, states: States) -> None:
        places = [("s", ""), ("t", ""), ("s", "inner"), ("s", "inner|more")]
        for number, (session, namespace) in enumerate(places):
            states.save(point("c", {"n": number}, session, namespace=namespace))
        for number, (session, namespace) in enumerate(places):
            assert states.load(session, "c", namespace=namespace) == point(
                "c", {"n": number}, session, namespace=namespace
            )
        assert len(states.metadata("s")) == 1
        assert len(states.metadata("s", namespace=None)) == 3

    @pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
    def test_names_may_be_any_text(self, open_store: OpenStore, name: str) -> None:
        with States(open_store(tenant=name)) as states:
            one = point(name, {"x": 1}, name, namespace=name, parent_id=name, run_id=name, tags=(name,), node_name=name)
            states.save(one)
            states.put_writes(Place(name, name, name), [Write(name, 0, name, 1, name)])
            assert states.load(name, name, namespace=name) == one
            assert states.metadata(name, namespace=name, run_id=name, tags=[name]) == [one.metadata]
            assert states.sessions()[0].session_id == name
            assert states.writes([Place(name, name, name)])[Place(name, name, name)][0] == Write(name, 0, name, 1, name)
            assert states.delete(name, name, namespace=name) == 1

    def test_odd_names_are_not_mixed_up(self, states: States) -> None:
        for name in ODD_NAMES:
            states.save(point("c", {"n": name}, name))
        for name in ODD_NAMES:
            loaded = states.load(name)
            assert loaded is not None
            assert loaded.state == {"n": name}

    @pytest.mark.parametrize(
        "bad",
        [
            point(""),
            point(session_id=""),
            point("x" * 501),
            point(FIVE),
            point(timestamp="now"),
            point(step="1"),
            point(namespace=None),
            point(tags="abc"),
            point(tags=(1,)),
            point(extra=[]),
            point(extra={1: 2}),
            point(parent_id=""),
            point(run_id=7),
            point(node_name=None),
            point(step=True),
        ],
        ids=repr,
    )
    def test_metadata_that_makes_no_sense_is_refused(self, states: States, bad: Checkpoint) -> None:
        with pytest.raises(Refused) as refused:
            states.save(bad)
        assert refused.value.hint
        assert states.sessions() == []

    def test_a_state_that_cannot_be_stored_leaves_nothing_behind(self, states: States) -> None:
        states.save(point("c0"))
        with pytest.raises(Refused, match=r"state\['a'\]\[1\]"):
            states.save(point("c1", {"a": [1, object()]}))
        assert states.load("s") == point("c0")

    # compare and set

    def test_two_writers_cannot_silently_lose_an_update(self, states: States) -> None:
        states.save(point("a"), expected_parent=None)
        saved = states.save(point("b"), expected_parent="a")
        assert saved.parent_id == "a"
        for wrong in ("a", None, "nothing"):
            with pytest.raises(Conflict, match="'b'"):
                states.save(point("c"), expected_parent=wrong)
        states.save(point("c"), expected_parent=ANYTHING)
        states.save(point("x", namespace="inner"), expected_parent=None)
        assert [each.checkpoint_id for each in states.metadata("s")] == ["c", "b", "a"]

    def test_of_many_writers_one_wins_each_step(self, open_store: OpenStore) -> None:
        """P9: a counter that is read and written by many at once ends where it should."""
        writers, steps = 4, 8
        with States(open_store()) as first:
            first.save(point("start", {"count": 0}))

        def work(writer: int) -> None:
            with States(open_store()) as states:
                done = 0
                while done < steps:
                    newest = states.load("s")
                    assert newest is not None
                    mine = point(f"{writer}-{done}-{newest.metadata.sequence}", {"count": newest.state["count"] + 1})
                    try:
                        states.save(mine, expected_parent=newest.metadata.checkpoint_id)
                        done += 1
                    except Conflict:
                        pass

        with ThreadPoolExecutor(writers) as pool:
            list(pool.map(work, range(writers)))
        with States(open_store()) as last:
            newest = last.load("s")
            assert newest is not None
            assert newest.state == {"count": writers * steps}
            assert len(last.metadata("s", None)) == writers * steps + 1

    # listing

    @pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (3, 3), (10**9, 5), (10**30, 5), (None, 5)])
    def test_a_list_is_as_long_as_asked_for(self, states: States, limit: int | None, count: int) -> None:
        for number in range(5):
            states.save(point(f"c{number}"))
        assert len(states.list("s", limit)) == len(states.metadata("s", limit)) == count

    @pytest.mark.parametrize("limit", [-1, -(10**30), 1.5, "3", True])
    def test_a_limit_that_is_none_is_refused(self, states: States, limit: Any) -> None:
        for verb in (states.list, states.metadata):
            with pytest.raises(Refused, match="limit"):
                verb("s", limit)

    def test_pages_follow_each_other_while_others_save(self, states: States) -> None:
        for number in range(7):
            states.save(point(f"c{number}"))
        found: list[str] = []
        before = None
        while page := states.metadata("s", 3, before=before):
            states.save(point(f"new{len(found)}"))
            found += [each.checkpoint_id for each in page]
            before = page[-1].sequence
        assert found == [f"c{number}" for number in reversed(range(7))]
        assert states.metadata("s", before=-(10**30)) == []
        assert len(states.metadata("s", None, before=10**30)) == 10

    def test_metadata_is_filtered_exactly(self, states: States) -> None:
        extras: list[dict[str, Any]] = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": 1, "b": None}, {"x' OR 1=1 --": 1}, {}]
        for number, extra in enumerate(extras):
            states.save(point(f"c{number}", extra=extra, tags=("even",) if number % 2 == 0 else ()))

        def found(**more: Any) -> list[str]:
            return [each.checkpoint_id for each in reversed(states.metadata("s", None, **more))]

        assert found(where={"a": 1}) == ["c0", "c3"]
        assert found(where={"a": True}) == ["c1"]
        assert found(where={"b": None}) == ["c3"]
        assert found(where={"x' OR 1=1 --": 1}) == ["c4"]
        assert found(where={"' OR 1=1 --": 1, "$ne": 1}) == []
        assert found(tags=["even"], where={"a": "1"}) == ["c2"]
        assert found(tags=["even", "odd"]) == []
        assert len(states.list("s", 1, where={"a": 1})) == 1

    def test_runs_are_found_and_deleted_across_sessions(self, states: States) -> None:
        for session in ("s", "t"):
            states.save(point("a", session_id=session, run_id="r1"))
            states.save(point("b", session_id=session, run_id="r2"))
        assert [each.session_id for each in states.metadata(None, run_id="r1")] == ["t", "s"]
        assert states.delete_runs(["r1", "none"]) == 2
        assert states.delete_runs([]) == 0
        assert [each.run_id for each in states.metadata(None)] == ["r2", "r2"]

    def test_sessions_are_listed_the_last_used_first(self, states: States) -> None:
        for session in ("a", "b", "c", "a"):
            states.save(point(f"{session}{len(states.metadata(session))}", session_id=session))
        found = states.sessions()
        assert [(each.session_id, each.checkpoints) for each in found] == [("a", 2), ("c", 1), ("b", 1)]
        assert [each.session_id for each in states.sessions(1)] == ["a"]
        assert [each.session_id for each in states.sessions(before=found[0].latest)] == ["c", "b"]
        with pytest.raises(Refused):
            states.sessions(-1)

    # cost: a store with ten times as much answers short queries with the same work

    work_per_name = 0
    """What it costs to go through one id of a namespace, where a back end has no index by ids: names, but not rows."""

    @pytest.fixture
    def work(self) -> Work:
        """What Python does meanwhile; a back end whose server does the reading counts what that does."""
        return count_calls

    @pytest.mark.parametrize("what", SHORT)
    def test_a_short_answer_reads_little(self, open_store: OpenStore, work: Work, what: str) -> None:
        ask = SHORT[what]
        with States(open_store()) as states:
            each = _MANY if what == "sessions" else _IN_OTHERS  # those are gone through; what they hold is not
            before, after = (self._asked(states, work, ask, count, -(-count // each)) for count in (_FEW, _MANY))
        names = _MANY // 2 if "by id" in what else 0
        assert after < 2 * before + 100 + self.work_per_name * names

    @staticmethod
    def _asked(states: States, work: Work, ask: Callable[[States], Any], count: int, others: int) -> int:
        """What a query costs when half of these rows are in one session, and half are spread over others."""
        for number in range(states.usage().checkpoints, count):
            session = "s1" if number % 2 else f"other {number % (2 * others)}"
            states.save(point(f"c{number:05}", session_id=session, run_id=f"r{number % 2}"))
        states.save(point(f"last{count}", session_id="last"))
        states.forget()
        states.forget_parts()
        assert ask(states), "nothing was asked for"
        return work(states.store, lambda: ask(states))

    def test_ids_are_in_their_own_order(self, states: States) -> None:
        for name in ("b", "d", "a", "c"):
            states.save(point(name))
            states.save(point(f"other {name}", namespace="n"))

        def ids(**more: Any) -> list[str]:
            return [row.place.checkpoint_id for row in states.store.rows_by_id("s", "", **more)]

        assert ids() == ["d", "c", "b", "a"]
        assert ids(limit=2) == ["d", "c"]
        assert ids(before="c") == ["b", "a"]
        assert ids(before="bb", limit=1) == ["b"]
        assert ids(limit=0) == ids(before="a") == []
        assert states.store.rows_by_id("t", "") == []


def count_calls(store: StateStore, call: Callable[[], Any]) -> int:
    """The calls of functions, of C and of generators, in this thread."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event.endswith("call")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count
