"""Contract of a state store: forks, copies to other stores, and checkpoints that need earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.flow import MADE_OF_PARENTS, Place, States, StateStore, Write, forks
from holdfast.flow.store import Base, CheckpointRow, Copy, Stale
from holdfast.retention import Policy
from holdfast.serde import Keys, Registry, Serde
from holdfast.testing.flow_contract.fixtures import FlowContract, OpenStore, conversation, point

WHOLE, FURTHER = False, True


def chain(states: States, *marks: dict[str, bool], session: str = "s") -> None:
    """Checkpoints c0, c1 …, each on top of the one before, and what each says that it needs."""
    for number, each in enumerate(marks):
        parent = f"c{number - 1}" if number else None
        extra = {MADE_OF_PARENTS: each} if each else {}
        states.save(point(f"c{number}", None, session, parent_id=parent, extra=extra, run_id=f"r{number}"))


def left(states: States) -> list[str]:
    return [each.checkpoint_id for each in reversed(states.metadata("s", None))]


class ForksContract(FlowContract):
    """Forks and copies are complete or absent; a checkpoint that another one needs stays."""

    # forks

    def test_nothing_is_forked_from_what_is_gone_by_then(self, states: States, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a", "b", "c"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
        listed = states.store.rows("s", None, whole=True)
        states.delete("s", "b")
        with pytest.raises(NotFound, match="gone"):
            forks.fork(states, listed[1], "f")
        assert states.store.session("f") is None

        def late(*args: Any, **more: Any) -> list[CheckpointRow]:
            monkeypatch.undo()  # looked at again, it is gone
            return listed

        monkeypatch.setattr(states.store, "rows", late)
        with pytest.raises(NotFound, match="gone"):
            forks.fork_history(states, listed[1], "f", before=None)
        assert states.store.session("f") is None
        monkeypatch.setattr(states.store, "rows", late)
        forks.fork_history(states, listed[0], "f", before=None)
        assert [each.checkpoint_id for each in states.metadata("f")] == ["c", "a"]
        self.assert_sound(states)

    def test_fork_does_not_merge_into_a_new_foreign_session(
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
    def test_fork_reopens_a_deleted_session_only_on_request(
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

    def test_stray_write_does_not_replace_a_copied_one(self, states: States) -> None:
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

    def test_fork_may_reuse_the_name_of_an_expired_session(self, open_store: OpenStore) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("old", session_id="f"))
            now[0] += 100
            states.save(point("a"))
            states.fork("s", into="f", history=True)
            assert [each.checkpoint_id for each in states.metadata("f")] == ["a"]

    # copies

    def test_a_copy_is_the_same_in_order_and_content(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        registry = Registry()
        registry.add(Place, "place")
        with (
            States(open_store(), serde=Serde(registry)) as source,
            States(stores(), keys=Keys({"k": bytes(32)})) as target,
        ):
            for number in range(10):
                state = {"messages": conversation(number), "of": Place("a", "b", str(number))}
                session = "st"[number % 2]
                source.save(
                    point(f"c{number}", state, session, tags=("x",), extra={"p": Place("", "", "")}, run_id="r")
                )
                source.put_writes(Place(session, "", f"c{number}"), [Write("t", 1, "x", Place("", "", ""))])
            copied = source.copy_to(target)
            assert (copied.sessions, copied.checkpoints, copied.skipped) == (2, 10, 0)
            assert source.copy_to(target).skipped == 10
            with States(target.store, serde=Serde(registry), keys=Keys({"k": bytes(32)})) as read:
                assert read.metadata(None, None) == source.metadata(None, None)
                assert read.list("s", None) == source.list("s", None)
                place = Place("s", "", "c2")
                assert read.writes([place]) == source.writes([place])

    def test_a_copy_is_as_old_as_what_it_was_made_of(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        with States(open_store(), clock=lambda: 1000.0) as source, States(stores(), clock=lambda: 5000.0) as target:
            source.save(point("a"))
            source.copy_to(target)
            assert [each.saved_at.timestamp() for each in target.sessions()] == [1000.0]

    def test_interrupted_copy_resumes_after_key_rotation(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        old, new = {"old": bytes(32)}, {"old": bytes(32), "new": bytes([1]) * 32}
        with States(open_store()) as source, States(stores(), keys=Keys(old)) as target:
            for number in range(4):
                source.save(point(f"c{number}", {"messages": conversation(number)}))
                if number == 1:
                    source.copy_to(target)
            changed = States(target.store, keys=Keys(new))
            copied = source.copy_to(changed)
            assert (copied.checkpoints, copied.skipped) == (2, 2)
            assert changed.list("s") == source.list("s")

    def test_one_session_is_copied_alone(self, open_store: OpenStore, stores: Callable[[], StateStore]) -> None:
        with States(open_store()) as source, States(stores()) as target:
            for session in ("s", "t", "dead", "gone"):
                source.save(point("a", session_id=session))
            source.delete("dead")
            source.delete("gone")
            heard: list[tuple[str, int, int]] = []
            copied = source.copy_to(target, session_id="t", progress=lambda *told: heard.append(told))
            assert (copied.sessions, copied.checkpoints, copied.tombstones) == (1, 1, 0)
            assert [each.session_id for each in target.sessions()] == ["t"]
            assert heard == [("copying", 0, 1)]
            assert source.copy_to(target, session_id="dead").tombstones == 1
            assert target.store.tombstones() == ["dead"]

    def test_copy_neither_resurrects_nor_deletes(self, open_store: OpenStore, stores: Callable[[], StateStore]) -> None:
        with States(open_store()) as source, States(stores()) as target:
            for session in ("dead", "alive there", "s"):
                source.save(point("a", session_id=session))
            for session in ("dead", "alive there"):
                source.delete(session)
            target.save(point("b", session_id="alive there"))
            assert source.copy_to(target).tombstones == 1
            assert source.copy_to(target).tombstones == 0
            with pytest.raises(Conflict, match="deleted"):
                target.save(point("late", session_id="dead", parent_id="a"))
            assert target.load("alive there") == point("b", session_id="alive there")
            assert target.reopen("dead")
            target.save(point("new", session_id="dead"))
            assert target.load("dead") == point("new", session_id="dead")

    def test_copy_stops_at_a_conflict_or_names_it(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        with States(open_store()) as source, States(stores()) as target:
            for session in ("gone", "other", "s"):
                for name in ("a", "b"):
                    source.save(point(name, session_id=session))
                target.save(point("a", {"n": "another"}, session_id=session))
            target.delete("gone")
            target.delete("s", tombstone=False)
            with pytest.raises(Conflict):
                source.copy_to(target)
            copied = source.copy_to(target, go_on=True)
            assert copied.conflicts.keys() == {"gone", "other"}
            assert (copied.sessions, copied.checkpoints) == (1, 2)
            assert target.load("s") == point("b")
            assert target.load("other") == point("a", {"n": "another"}, session_id="other")
            assert target.load("gone") is None

    # weights

    def test_usage_of_sessions_adds_up(self, states: States) -> None:
        for session in ("s", "t"):
            for number in range(5):
                messages = [{"of": session, **each} for each in conversation(5 + number)]
                states.save(point(f"c{number}", {"messages": messages}, session))
        states.put_writes(Place("t", "", "c4"), [Write("t", 0, "x", "y" * 1000)])
        states.save(point("c", session_id="deleted"))
        states.delete("deleted")
        one, two = states.sizes(["t", "nobody", "deleted", "s"])
        assert (one.session_id, two.session_id) == ("t", "s")
        assert one.own_bytes > two.own_bytes > 5000
        assert one.shared_bytes == two.shared_bytes == 0
        assert one.own_bytes + two.own_bytes == states.usage().total_bytes

    def test_what_forks_share_is_told_apart(self, states: States) -> None:
        states.save(point("a", {"messages": conversation(20)}))
        states.fork("s", into="fork")
        states.save(point("b", {"messages": conversation(60)}, "fork"))
        source, fork = states.sizes(["s", "fork"])
        assert source.shared_bytes == fork.shared_bytes > 15_000
        assert source.own_bytes < 2000 < 30_000 < fork.own_bytes
        assert source.own_bytes + source.shared_bytes + fork.own_bytes == states.usage().total_bytes

    # checkpoints that need their parents

    def test_a_policy_leaves_what_a_later_checkpoint_is_made_of(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": WHOLE}, {"x": FURTHER}, {}, {"x": FURTHER})
        chain(states, {}, {}, {}, session="t")
        plan = states.prune(Policy(keep_last=0), dry_run=True)
        done = states.prune(Policy(keep_last=0))
        assert left(states) == ["c2", "c3", "c4", "c5"]
        assert [each.checkpoint_id for each in states.metadata("t")] == ["c2"]
        assert done.removed == plan.removed and done.kept == plan.kept
        assert sorted(done.kept.values()).count("a later one needs it") == 3
        assert not states.prune(Policy(keep_last=0)).removed

    def test_those_that_stay_for_others_are_whole_themselves(self, states: States) -> None:
        chain(
            states, {"x": WHOLE, "y": WHOLE}, {"x": FURTHER, "y": FURTHER}, {"x": WHOLE, "y": FURTHER},
            {"x": FURTHER, "y": WHOLE}, {"x": FURTHER, "y": FURTHER},
        )  # fmt: skip
        states.prune(Policy(keep_last=0))
        assert left(states) == ["c0", "c1", "c2", "c3", "c4"]

    def test_what_was_not_shown_stays_with_all_that_it_is_made_of(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": WHOLE})
        plan = states.prune(Policy(keep_last=0), dry_run=True)
        assert [each.checkpoint_id for each in plan.removed] == ["c0", "c1"]
        only_first = replace(plan, removed=plan.removed[:1])
        assert not states.prune(Policy(keep_last=0), plan=only_first).removed
        assert left(states) == ["c0", "c1", "c2"]

    def test_to_delete_what_a_later_checkpoint_is_made_of_is_refused(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER}, {"x": FURTHER})
        with pytest.raises(Refused, match="needs") as refused:
            states.delete("s", "c0")
        assert refused.value.hint
        with pytest.raises(Refused, match="needs"):
            states.delete_runs(["r0", "r1"])
        assert left(states) == ["c0", "c1", "c2"]
        assert states.delete("s", "c2") == 1
        assert states.delete_runs(["r0", "r1"]) == 2
        chain(states, {"x": WHOLE}, {"x": WHOLE})
        assert states.delete("s", "c0") == 1
        assert states.delete("s") == 1

    def test_complete_other_branch_does_not_hide_needed_parents(self, states: States) -> None:
        chain(states, {}, {"x": FURTHER}, {"x": FURTHER})
        states.save(point("b", parent_id="c0", run_id="b"))
        with pytest.raises(Refused, match="needs"):
            states.delete("s", "c0")
        with pytest.raises(Refused, match="needs"):
            states.delete_runs(["r1"])
        assert left(states) == ["c0", "c1", "c2", "b"]
        assert states.delete_runs(["r2", "b"]) == 2

    def test_what_is_made_of_its_parents_is_forked_with_them_only(self, states: States) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER})
        with pytest.raises(Refused, match="needs") as refused:
            states.fork("s", into="f")
        assert refused.value.hint
        assert states.store.session("f") is None
        states.fork("s", "c0", into="f")
        states.fork("s", into="g", history=True)
        assert len(states.metadata("g")) == 2

    def test_cyclic_or_missing_parent_terminates(self, states: States) -> None:
        further = {MADE_OF_PARENTS: {"x": FURTHER}}
        states.save(point("a", parent_id="a", extra=further))
        states.save(point("b", parent_id="gone", extra=further))
        states.save(point("c", parent_id="d", extra=further))
        states.save(point("d", parent_id="c", extra=further))
        states.save(point("e", extra={MADE_OF_PARENTS: "nonsense"}))
        states.prune(Policy(keep_last=3))
        assert left(states) == ["c", "d", "e"]

    def test_save_during_a_delete_keeps_its_parents(self, states: States, monkeypatch: pytest.MonkeyPatch) -> None:
        chain(states, {"x": WHOLE}, {"x": FURTHER})
        self._save_before_deletion(states, monkeypatch, "c2", "c1")
        with pytest.raises(Refused, match="needs"):
            states.delete("s", "c1")
        assert left(states) == ["c0", "c1", "c2"]
        self._save_before_deletion(states, monkeypatch, "c3", None)
        assert states.delete("s", "c2") == 1
        assert left(states) == ["c0", "c1", "c3"]
        self.assert_sound(states)

    def test_save_during_a_prune_keeps_its_parents(self, states: States, monkeypatch: pytest.MonkeyPatch) -> None:
        chain(states, {"x": WHOLE}, {"x": WHOLE}, {"x": WHOLE})
        chain(states, {}, {}, {}, session="t")
        self._save_before_deletion(states, monkeypatch, "c3", "c0", deletions=2)
        done = states.prune(Policy(keep_last=0))
        assert left(states) == ["c0", "c1", "c2", "c3"]
        assert [each.checkpoint_id for each in states.metadata("t")] == ["c2"]
        assert len(done.removed) == 2
        assert sorted(done.kept.values()).count("its session was saved into meanwhile") == 2
        assert len(states.prune(Policy(keep_last=0)).removed) == 2
        assert left(states) == ["c0", "c3"]
        self.assert_sound(states)

    def test_a_policy_locks_no_session_of_which_nothing_goes(
        self, states: States, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("s", "t", "u"):
            chain(states, *[{"x": WHOLE}] * (3 if name == "s" else 1), session=name)
        delete, asked = states.store.delete, []

        def noted(places: Any, **more: Any) -> int:
            asked.append({place.session for place in places})
            return delete(places, **more)

        monkeypatch.setattr(states.store, "delete", noted)
        assert len(states.prune(Policy(keep_last=1)).removed) == 2
        assert asked == [{"s"}]

    @staticmethod
    def _save_before_deletion(
        states: States, monkeypatch: pytest.MonkeyPatch, name: str, parent: str | None, *, deletions: int = 1
    ) -> None:
        """Save a checkpoint that needs another just before the first deletions of rows."""
        delete, extra = states.store.delete, {MADE_OF_PARENTS: {"x": FURTHER if parent else WHOLE}}
        left_over = list(range(deletions))

        def late(*args: Any, **more: Any) -> int:
            left_over.pop()
            if not left_over:
                monkeypatch.undo()
            states.save(point(name, None, "s", parent_id=parent, extra=extra))
            return delete(*args, **more)

        monkeypatch.setattr(states.store, "delete", late)


def _copy(states: States, row: CheckpointRow) -> Copy:
    """A copy for session `f` that a store takes, though nobody could open it."""
    copied = row._replace(place=row.place._replace(session="f"), digest=row.digest[::-1])
    return Copy(copied, Base(row.sequence, row.digest), states.store.writes([row.place])[row.place])
