"""Part of the contract of states: what is asked for with a limit costs that limit, not all that is stored (P8)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.flow import States, StateStore
from holdfast.testing.flow_scenes import OpenStore, Sound, point

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


class ReadingContract(Sound):
    """A store that holds ten times as much answers short questions with the same work."""

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
        """What a question costs when half of so many rows are in one session, and half are spread over others."""
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
