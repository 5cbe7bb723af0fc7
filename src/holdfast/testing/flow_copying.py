"""Part of the contract of states: copies to other stores, and what each session weighs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.errors import Conflict
from holdfast.flow import Place, States, StateStore, Write
from holdfast.serde import Keys, Registry, Serde
from holdfast.testing.flow_scenes import OpenStore, Sound, conversation, point


class CopyingContract(Sound):
    """A copy is the same, raises nothing, and the weights of sessions add up."""

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

    def test_a_copy_that_was_cut_off_is_gone_on_with_after_the_key_was_changed(
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

    def test_a_copy_does_not_raise_what_was_deleted_nor_delete_what_lives(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        with States(open_store()) as source, States(stores()) as target:
            for session in ("dead", "alive there", "s"):
                source.save(point("a", session_id=session))
            for session in ("dead", "alive there"):
                source.delete(session)
            target.save(point("b", session_id="alive there"))
            assert source.copy_to(target).tombstones == 1
            assert source.copy_to(target).tombstones == 0
            with pytest.raises(Conflict, match="deleted"):
                target.save(point("late", session_id="dead"))
            assert target.load("alive there") == point("b", session_id="alive there")
            assert target.reopen("dead")
            target.save(point("new", session_id="dead"))
            assert target.load("dead") == point("new", session_id="dead")

    def test_a_conflict_ends_a_copy_or_is_named_and_the_rest_is_copied(
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

    def test_sessions_are_weighed_and_together_they_are_what_is_stored(self, states: States) -> None:
        for session in ("s", "t"):
            for number in range(5):
                messages = [{"of": session, **each} for each in conversation(5 + number)]
                states.save(point(f"c{number}", {"messages": messages}, session))
        states.put_writes(Place("t", "", "c4"), [Write("t", 0, "x", "y" * 1000)])
        states.save(point("c", session_id="deleted"))
        states.delete("deleted")
        one, two = states.weigh(["t", "nobody", "deleted", "s"])
        assert (one.session_id, two.session_id) == ("t", "s")
        assert one.own_bytes > two.own_bytes > 5000
        assert one.shared_bytes == two.shared_bytes == 0
        assert one.own_bytes + two.own_bytes == states.usage().total_bytes

    def test_what_forks_share_is_told_apart(self, states: States) -> None:
        states.save(point("a", {"messages": conversation(20)}))
        states.fork("s", into="fork")
        states.save(point("b", {"messages": conversation(60)}, "fork"))
        source, fork = states.weigh(["s", "fork"])
        assert source.shared_bytes == fork.shared_bytes > 15_000
        assert source.own_bytes < 2000 < 30_000 < fork.own_bytes
        assert source.own_bytes + source.shared_bytes + fork.own_bytes == states.usage().total_bytes
