"""Part of the contract of states: forks are there whole or not at all, whatever others do meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, NotFound
from holdfast.flow import Place, States, Write, copying
from holdfast.flow.store import Base, Copy, Row, Stale
from holdfast.testing.flow_scenes import OpenStore, Sound, conversation, point


class ForkingContract(Sound):
    """A session that begins with the states of another begins in one step."""

    def test_nothing_is_forked_from_what_is_gone_by_then(self, states: States, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "b", "c"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
        listed = states.store.rows("s", None, whole=True)
        states.delete("s", "b")
        with pytest.raises(NotFound, match="gone"):
            copying.fork(states, listed[1], "f")
        assert states.store.session("f") is None

        def late(*args: Any, **more: Any) -> list[Row]:
            monkeypatch.undo()  # looked at again, it is gone
            return listed

        monkeypatch.setattr(states.store, "rows", late)
        with pytest.raises(NotFound, match="gone"):
            copying.fork_history(states, listed[1], "f", before=None)
        assert states.store.session("f") is None
        monkeypatch.setattr(states.store, "rows", late)
        copying.fork_history(states, listed[0], "f", before=None)
        assert [each.checkpoint_id for each in states.metadata("f")] == ["c", "a"]
        self.assert_sound(states)

    def test_a_fork_does_not_run_into_a_session_that_somebody_else_begins(
        self, states: States, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        states.save(point("a", {"messages": conversation(10)}))
        states.save(point("theirs", {"messages": conversation(3)}, "f"))
        monkeypatch.setattr(states.store, "session", lambda session: None)  # was not there yet when it looked
        for history in (False, True):
            with pytest.raises(Conflict):
                states.fork("s", into="f", history=history)
        monkeypatch.undo()
        assert states.load("f") == point("theirs", {"messages": conversation(3)}, "f")
        assert len(states.metadata("f")) == 1

    def test_all_of_a_history_is_forked_or_nothing(self, states: States) -> None:
        """P3: one row of it that cannot be copied, and none is; and nothing of it is seen before all of it is."""
        for name in ("a", "b"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
            states.put_writes(Place("s", "", name), [Write("t", 0, "x", name)])
        rows = states.store.rows("s", None, whole=True)[::-1]
        copies = [_copy(states, row) for row in rows]
        before = states.store.usage()
        for bad in (Base(rows[1].sequence, b"another"), Base(10**6, rows[1].digest)):
            with pytest.raises(Stale):
                states.store.begin("f", [copies[0], copies[1]._replace(base=bad)])
            assert states.store.session("f") is None
            assert states.store.usage()[:-1] == before[:-1]  # numbers may be left out
        numbers = states.store.begin("f", copies)
        assert numbers == sorted({*numbers}) and numbers[0] > rows[1].sequence
        found = states.store.session("f")
        assert found is not None and (found.checkpoints, found.latest) == (2, numbers[1])
        assert states.writes([Place("f", "", "b")])[Place("f", "", "b")] == [Write("t", 0, "x", "b")]
        with pytest.raises(Conflict, match="exists"):
            states.store.begin("f", copies)

    @pytest.mark.parametrize("history", [False, True])
    def test_a_fork_into_a_deleted_session_reopens_it_when_asked_and_only_with_it(
        self, states: States, monkeypatch: pytest.MonkeyPatch, history: bool
    ) -> None:
        states.save(point("a", {"messages": conversation(10)}))
        states.save(point("old", session_id="f"))
        states.delete("f")
        with pytest.raises(Conflict):
            states.fork("s", into="f", history=history)
        [row] = states.store.rows("s", None, whole=True)
        with pytest.raises(Stale):
            states.store.begin("f", [_copy(states, row)._replace(base=Base(row.sequence, b""))], reopen=True)
        assert states.store.tombstones() == ["f"]
        states.fork("s", into="f", history=history, reopen=True)
        assert states.store.tombstones() == []
        assert [each.checkpoint_id for each in states.metadata("f")] == ["a"]
        self.assert_sound(states)

    def test_a_write_that_somebody_left_under_the_new_name_does_not_take_the_place_of_a_copied_one(
        self, states: States
    ) -> None:
        states.save(point("a"))
        states.put_writes(Place("s", "", "a"), [Write("t", 0, "x", "copied")])
        states.put_writes(Place("f", "", "a"), [Write("t", 0, "x", "left"), Write("t", 1, "x", "more")])
        states.fork("s", into="f", history=True)
        found = states.writes([Place("f", "", "a")])[Place("f", "", "a")]
        assert [each.value for each in found] == ["copied", "more"]

    @pytest.mark.parametrize("history", [False, True])
    def test_a_fork_of_which_only_the_answer_was_lost_is_made_once(
        self, states: States, monkeypatch: pytest.MonkeyPatch, history: bool
    ) -> None:
        for name in ("a", "b"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
        begin = states.store.begin

        def twice(*args: Any, **more: Any) -> list[int]:
            begin(*args, **more)
            return begin(*args, **more)

        monkeypatch.setattr(states.store, "begin", twice)
        forked = states.fork("s", into="f", history=history)
        assert forked.checkpoint_id == "b"
        assert forked.sequence == states.metadata("f")[0].sequence
        assert len(states.metadata("f")) == 1 + history

    def test_a_fork_may_take_the_name_of_a_session_that_lived_too_long(self, open_store: OpenStore) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("old", session_id="f"))
            now[0] += 100
            states.save(point("a"))
            states.fork("s", into="f", history=True)
            assert [each.checkpoint_id for each in states.metadata("f")] == ["a"]


def _copy(states: States, row: Row) -> Copy:
    """A copy for session `f` that a store takes, though nobody could open it."""
    copied = row._replace(place=row.place._replace(session="f"), digest=row.digest[::-1])
    return Copy(copied, Base(row.sequence, row.digest), states.store.writes([row.place])[row.place])
