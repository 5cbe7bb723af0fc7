"""Contract of a state store: what is deleted, shared and freed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier, Event
from typing import Any

import pytest

from holdfast.errors import Conflict, NotFound
from holdfast.flow import Place, States, Write
from holdfast.flow.store import Base, SessionRow, Stale, WriteRow
from holdfast.retention import Policy
from holdfast.testing.flow_contract.fixtures import FlowContract, OpenStore, conversation, point


class RetentionContract(FlowContract):
    """What is needed stays, what is not needed goes, and bytes follow what is new."""

    # deleting

    def test_after_a_delete_the_previous_one_is_the_newest(self, states: States) -> None:
        for name in ("a", "b", "c"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
        assert states.delete("s", "c") == 1
        assert states.delete("s", "c") == 0
        newest = states.load("s")
        assert newest is not None
        assert newest.state["name"] == "b"
        states.save(point("d", {"messages": conversation(11), "name": "d"}))
        assert states.load("s") == point("d", {"messages": conversation(11), "name": "d"})

    def test_a_deleted_session_is_not_continued(self, states: States) -> None:
        states.save(point("a"))
        states.save(point("b", namespace="inner"))
        assert states.delete("s") == 2
        assert states.load("s") is None
        assert states.sessions() == []
        for late in (point("c", parent_id="a"), point("d", namespace="inner"), point("e", {}, "s", parent_id="b")):
            with pytest.raises(Conflict, match="deleted"):
                states.save(late)
        with pytest.raises(Conflict):
            states.save(point("c"), expected_parent="a")
        with pytest.raises(Conflict, match="deleted"):
            states.put_writes(Place("s", "", "a"), [Write("t", 0, "c", 1)])
        assert states.metadata("s", namespace=None) == []

    def test_the_id_of_a_deleted_session_can_be_used_again(self, open_store: OpenStore) -> None:
        """As a conversation reset does: delete, and save under the same id."""
        with States(open_store()) as states:
            for number in range(3):
                for name in ("a", "b"):
                    states.save(point(name, {"messages": conversation(10), "n": number}))
                assert [each.state["n"] for each in states.list("s")] == [number, number]
                assert states.delete("s") == 2
                assert (states.load("s"), states.usage().tombstones) == (None, 1)
            states.save(point("a", {"n": 3}))
            assert [each.session_id for each in states.sessions()] == ["s"]
            assert states.store.tombstones() == []
            self.assert_sound(states)
        with States(open_store()) as other:
            assert other.load("s") == point("a", {"n": 3})
            other.delete("s")
            other.save(point("a", {"n": 4}))
            assert other.load("s") == point("a", {"n": 4})

    @pytest.mark.parametrize("begun_again", [False, True])
    @pytest.mark.parametrize("knows_by", ["save", "load", "list", "metadata"])
    def test_a_late_writer_of_a_deleted_session_is_told(
        self, open_store: OpenStore, knows_by: str, begun_again: bool
    ) -> None:
        with States(open_store()) as states, States(open_store()) as late:
            (late if knows_by == "save" else states).save(point("a", {"messages": conversation(10)}))
            if knows_by != "save":
                assert getattr(late, knows_by)("s")
            states.delete("s")
            if begun_again:
                states.save(point("new"))
            for _ in range(2):
                with pytest.raises(Conflict, match="deleted"):
                    late.save(point("b", {"messages": conversation(11)}))
            found = late.load("s")
            assert found == (point("new") if begun_again else None)
            late.save(point("b"))  # now it knows
            assert [each.checkpoint_id for each in states.metadata("s")] == ["b", "new"][: 1 + begun_again]
            self.assert_sound(states)

    def test_a_late_writer_of_an_earlier_generation_is_told(self, open_store: OpenStore) -> None:
        with States(open_store()) as states, States(open_store()) as late:
            late.save(point("a"))
            for _ in range(2):
                states.delete("s")
                states.save(point("a", {"n": "new"}))
            states.delete("s")
            with pytest.raises(Conflict, match="deleted"):
                late.save(point("b"))
            assert states.store.tombstones() == ["s"]

    def test_a_late_step_does_not_join_the_new_session(self, states: States) -> None:
        states.save(point("a"))
        states.save(point("b", parent_id="a"))
        states.delete("s")
        states.save(point("new"))
        with pytest.raises(Conflict, match="deleted"):
            states.save(point("c", parent_id="b"))
        states.save(point("next", parent_id="new"))
        assert [each.checkpoint_id for each in states.metadata("s")] == ["next", "new"]

    @pytest.mark.parametrize("knows_by", ["save", "load", "list", "metadata"])
    def test_late_writes_and_deletes_do_not_reach_the_new_session(self, open_store: OpenStore, knows_by: str) -> None:
        """Although the new checkpoint has the id of the old one."""
        place = Place("s", "", "a")
        with States(open_store()) as states, States(open_store()) as late:
            (late if knows_by == "save" else states).save(point("a", {"n": "old"}))
            if knows_by != "save":
                assert getattr(late, knows_by)("s")
            late.put_writes(place, [Write("t", 0, "x", "old")])
            states.delete("s")
            states.save(point("a", {"n": "new"}))
            states.put_writes(place, [Write("t", 1, "x", "new")])
            for replace in (False, True):
                with pytest.raises(Conflict, match="deleted"):
                    late.put_writes(place, [Write("t", 0, "x", "late"), Write("t", 1, "x", "late")], replace=replace)
            with pytest.raises(Conflict, match="deleted"):
                late.delete("s", "a")
            assert [write.value for write in states.writes([place])[place]] == ["new"]
            assert late.load("s") == point("a", {"n": "new"})  # now it knows
            late.put_writes(place, [Write("t", 0, "x", "again")])
            assert [write.value for write in states.writes([place])[place]] == ["again", "new"]
            assert late.delete("s", "a") == 1
            self.assert_sound(states)

    def test_only_rows_of_the_family_are_deleted(self, states: States) -> None:
        """Between a look at the session and the deletion, it may be begun again."""
        place, other = Place("s", "", "a"), Place("t", "", "a")
        states.save(point("a", {"n": "old"}))
        old = states.store.session("s")
        assert old is not None
        states.delete("s")
        assert states.store.delete([place], families={"s": old.family}) == 0
        states.save(point("a", {"n": "new"}))
        states.save(point("a", session_id="t"))
        states.put_writes(place, [Write("t", 0, "x", 1)])
        assert states.store.delete([place, other], families={"s": old.family}) == 1, "only the other session's"
        assert (states.load("s"), len(states.writes([place])[place])) == (point("a", {"n": "new"}), 1)
        now = states.store.session("s")
        assert now is not None
        assert states.store.delete([place], families={"s": now.family}) == 1
        assert states.writes([place])[place] == []

    def test_a_stranger_with_an_old_parent_does_not_join(self, open_store: OpenStore) -> None:
        """A process that never read the session, and continues the deleted one."""
        with States(open_store()) as states, States(open_store()) as stranger:
            states.save(point("a"))
            states.save(point("b", parent_id="a"))
            states.delete("s")
            states.save(point("new"))
            for _ in range(2):
                with pytest.raises(Conflict, match="deleted"):
                    stranger.save(point("c", parent_id="b"))
            with pytest.raises(Conflict, match="deleted"):
                stranger.save(point("c"), expected_parent="b")
            stranger.save(point("next", parent_id="new"))
            assert [each.checkpoint_id for each in states.metadata("s")] == ["next", "new"]
        with States(open_store()) as again:
            again.save(point("next", parent_id="new"))  # the same once more
            again.delete("s", "new")
        with States(open_store()) as reader:
            reader.load("s")
            reader.save(point("last", parent_id="new"))  # it knows the session, whose parent was deleted
        with States(open_store()) as other:
            other.save(point("a", session_id="t"))
        with States(open_store()) as other:
            other.save(point("c", session_id="t", parent_id="b"))  # never deleted: any parent

    @pytest.mark.parametrize("knows", [True, False])
    def test_late_writers_are_refused_before_the_first_checkpoint(self, open_store: OpenStore, knows: bool) -> None:
        """Tasks of a session that is begun again may write before its first checkpoint is saved."""
        place, ttl = Place("s", "", "a"), timedelta(hours=1)
        with States(open_store(), ttl=ttl) as states, States(open_store()) as late, States(open_store()) as other:
            states.save(point("a"))
            states.save(point("b", parent_id="a"))
            if knows:
                late.load("s")
            states.delete("s")
            states.begin_again("s")
            states.begin_again("s")  # the second changes nothing
            states.put_writes(place, [Write("t", 0, "x", "new")])
            with pytest.raises(Conflict, match="deleted"):
                late.save(point("c", parent_id="b"))
            if knows:
                with pytest.raises(Conflict, match="deleted"):
                    late.put_writes(place, [Write("t", 0, "x", "late")], replace=True)
                with pytest.raises(Conflict, match="deleted"):
                    late.save(point("c"))
            assert states.store.tombstones() == []
            assert [(each.session_id, each.checkpoints) for each in states.sessions()] == [("s", 0)]
            other.begin_again("s")  # a second run begins the same session
            other.save(point("other"))
            states.save(point("a", {"n": "new"}))
            assert [each.checkpoint_id for each in states.metadata("s")] == ["a", "other"]
            assert [write.value for write in states.writes([place])[place]] == ["new"]
            self.assert_sound(states)

    def test_sessions_begun_again_expire(self, open_store: OpenStore) -> None:
        """Also without a checkpoint."""
        now = [0.0]
        with States(open_store(), ttl=timedelta(hours=1), clock=lambda: now[0]) as states:
            states.save(point("a"))
            states.delete("s")
            now[0] = 9000.0
            states.begin_again("s")
            states.put_writes(Place("s", "", "a"), [Write("t", 0, "x", 1)])
            assert (states.expire(), states.is_expired("s")) == ([], False)
            now[0] += 3600
            assert states.expire() == ["s"]
            assert states.writes([Place("s", "", "a")]) == {Place("s", "", "a"): []}

    def test_late_writers_race_with_sessions_that_begin_again(self, open_store: OpenStore) -> None:
        place, rounds = Place("s", "", "a"), 12
        with States(open_store()) as states, ThreadPoolExecutor(3) as threads:
            states.save(point("a", {"n": 0}))

            def write_late(number: int, know: Barrier, end: Event) -> None:
                with States(open_store()) as late:
                    late.load("s")
                    know.wait(60)
                    while not end.is_set():
                        with suppress(Conflict):
                            late.put_writes(place, [Write("late", number, "x", number)], replace=True)
                        with suppress(Conflict):
                            late.delete("s", "b")

            for number in range(rounds):
                know, done = Barrier(3), Event()
                late = [threads.submit(write_late, number, know, done) for _ in range(2)]
                know.wait(60)
                try:
                    states.delete("s")
                    states.save(point("a", {"n": number + 1}))
                    states.save(point("b", {"n": number + 1}))
                    for _ in range(5):
                        assert states.writes([place])[place] == []
                        assert states.load("s", "b") is not None
                finally:
                    done.set()
                for each in late:
                    each.result()
            assert states.writes([place])[place] == []
            self.assert_sound(states)

    def test_without_a_tombstone_anything_may_be_saved(self, states: States) -> None:
        states.save(point("a"))
        states.delete("s", tombstone=False)
        states.save(point("c", parent_id="b"))
        states.delete("never")
        states.save(point("c", session_id="never", parent_id="b"))
        assert [each.session_id for each in states.sessions()] == ["never", "s"]

    def test_a_refused_save_leaves_the_tombstone(self, states: States) -> None:
        states.save(point("a"))
        states.delete("s")
        states.save(point("b", session_id="t"))
        other = states.store.find("t", "", "b")
        assert other is not None
        row = other._replace(place=other.place._replace(session="s"))
        with pytest.raises(Stale):
            states.store.commit(row, [], base=Base(10**6, b"gone"), reopen=True)
        with pytest.raises(Conflict, match="newest"):
            states.store.commit(row, [], expected_parent="a", reopen=True)
        with pytest.raises(Conflict, match="deleted"):
            states.store.commit(row, [])
        old = states.store.session("s")
        assert old is not None
        with pytest.raises(Conflict, match="deleted"):  # of the generation that was deleted
            states.store.commit(row._replace(family=old.family), [], reopen=True)
        assert (states.store.tombstones(), states.load("s")) == (["s"], None)
        self.assert_sound(states)

    def test_a_deleted_session_is_begun_again_when_asked_for(self, states: States) -> None:
        states.save(point("a"))
        states.delete("s")
        assert states.reopen("s")
        assert not states.reopen("s")
        states.save(point("b"))
        states.delete("s", tombstone=False)
        states.save(point("c"))
        assert [each.checkpoint_id for each in states.metadata("s")] == ["c"]

    def test_deleting_frees_what_nothing_needs_and_nothing_else(self, states: States) -> None:
        messages = conversation(60)
        for length in (20, 40, 60):
            states.save(point(f"c{length}", {"messages": messages[:length], "big": "x" * 700}))
        states.save(point("other", {"big": "x" * 700}, "t"))
        before = states.usage()
        assert states.delete("s", "c20") == 1
        middle = states.usage()
        assert middle.parts <= before.parts
        for length in (40, 60):
            assert states.load("s", f"c{length}") == point(
                f"c{length}", {"messages": messages[:length], "big": "x" * 700}
            )
        assert states.delete("s", "c60") == 1
        assert states.usage().part_bytes < middle.part_bytes - 15_000
        states.delete("s")
        assert states.usage().parts == 1
        states.clear_all()
        empty = states.usage()
        assert (empty.sessions, empty.tombstones, empty.checkpoints, empty.parts, empty.total_bytes) == (0, 0, 0, 0, 0)

    def test_everything_that_is_needed_is_there_and_nothing_more(self, states: States) -> None:
        """Through growing, changing in the middle, shrinking, deleting."""
        messages: list[Any] = []
        for step in range(60):
            messages = [*messages[step % 7 == 6 :], {"id": step, "text": f"{step} " * (step * 7 % 400)}]
            if step % 5 == 4:
                messages[len(messages) // 2] = {"id": -step}
            states.save(point(f"c{step}", {"messages": messages, "at": step}))
            if step % 3 == 2:
                states.delete("s", f"c{step - 1}")
        self.assert_sound(states)
        assert len(states.metadata("s", None)) == 40

    # tenants

    def test_tenants_do_not_see_each_other(self, open_store: OpenStore) -> None:
        with (
            States(open_store(tenant="a")) as one,
            States(open_store(tenant="b")) as two,
            States(open_store()) as three,
        ):
            for states in (one, two, three):
                states.save(point("c", {"messages": conversation(10), "of": states.store.tenant}))
                states.put_writes(Place("s", "", "c"), [Write("t", 0, "x", states.store.tenant)])
            one.delete("s")
            assert one.load("s") is None
            for states in (two, three):
                assert states.load("s") == point("c", {"messages": conversation(10), "of": states.store.tenant})
                assert states.writes([Place("s", "", "c")])[Place("s", "", "c")][0].value == states.store.tenant
                assert len(states.metadata(None)) == len(states.sessions()) == 1
            two.clear_all()
            assert three.load("s") is not None
            assert two.usage().parts == 0
            assert one.usage().tombstones == 1
            assert one.store.tombstones() == ["s"]
            assert three.store.tombstones() == []
            assert three.store.tenants() == ["", "a"]

    # growth

    def test_bytes_follow_what_is_new(self, states: States) -> None:
        """P8: a conversation of n messages costs n messages, not n squared."""
        messages = conversation(200)
        sizes = {}
        for length in range(1, 201):
            states.save(point(f"c{length}", {"messages": messages[:length], "length": length}))
            sizes[length] = states.usage().total_bytes if length in (100, 200) else 0
        assert sizes[200] < 2.05 * sizes[100]
        assert sizes[200] < 1.6 * 200 * 1000
        self.assert_sound(states)

    def test_another_process_shares_the_same_parts(self, open_store: OpenStore) -> None:
        messages = conversation(50)
        with States(open_store()) as states:
            states.save(point("c1", {"messages": messages[:49]}))
            before = states.usage()
        with States(open_store()) as fresh:
            fresh.save(point("c2", {"messages": messages}))
            assert fresh.usage().part_bytes - before.part_bytes < 4000

    @pytest.mark.parametrize(
        "change",
        [
            lambda items: [{"id": "new"}, *items],
            lambda items: items[1:],
            lambda items: items[5:],
            lambda items: [*items[:100], {"id": "new"}, *items[100:]],
            lambda items: [*items[:100], *items[101:]],
            lambda items: [*items[:100], {"id": "other"}, *items[101:]],
            lambda items: items[:-1],
            lambda items: [*items, {"id": "new"}],
        ],
    )
    def test_a_change_anywhere_costs_little(self, states: States, change: Callable[[Any], Any]) -> None:
        items = conversation(200)
        states.save(point("c1", {"items": items, "entries": {str(each["id"]): each for each in items}}))
        before = states.usage().total_bytes
        changed = change(items)
        states.save(point("c2", {"items": changed, "entries": {str(each["id"]): each for each in changed}}))
        assert states.usage().total_bytes - before < 12_000
        assert states.load("s") == point(
            "c2", {"items": changed, "entries": {str(each["id"]): each for each in changed}}
        )

    def test_a_long_text_that_grows_costs_its_end(self, states: States) -> None:
        text = " ".join(f"word{number}" for number in range(40_000))
        states.save(point("c1", {"text": text}))
        before = states.usage().part_bytes
        states.save(point("c2", {"text": text + " more"}))
        assert states.usage().part_bytes - before < 40_000
        assert states.load("s") == point("c2", {"text": text + " more"})

    # forks, diffs, policies

    def test_a_fork_shares_everything_and_goes_its_own_way(self, states: States) -> None:
        messages = conversation(50)
        for length in (49, 50):
            states.save(point(f"c{length}", {"messages": messages[:length]}))
        before = states.usage()
        forked = states.fork("s", "c49", into="f")
        assert states.usage().parts == before.parts
        assert (forked.session_id, forked.checkpoint_id, forked.extra) == ("f", "c49", {"forked_from": ["s", "c49"]})
        states.save(point("own", {"messages": [*messages[:49], {"id": "own"}]}, "f"))
        states.delete("s")
        assert [len(each.state["messages"]) for each in states.list("f")] == [50, 49]
        self.assert_sound(states)
        with pytest.raises(Conflict):
            states.fork("f", into="s")
        with pytest.raises(Conflict):
            states.fork("f", into="f")
        with pytest.raises(NotFound, match="'f' has no checkpoint 'nothing'"):
            states.fork("f", "nothing", into="g")
        with pytest.raises(NotFound, match=r"'never' has no checkpoints\."):
            states.fork("never", into="g")
        states.delete("f")
        assert states.usage().parts == 0

    def test_a_fork_with_its_history_has_all_of_it(self, states: States) -> None:
        for number in range(4):
            states.save(point(f"c{number}", {"messages": conversation(number * 5)}, parent_id=f"c{number - 1}"))
            states.save(point(f"c{number}", {"n": number}, namespace="inner"))
            states.put_writes(Place("s", "", f"c{number}"), [Write("t", 0, "x", number)])
        states.fork("s", "c2", into="f", history=True)
        for mine, theirs in zip(states.list("f", None), states.list("s", None)[1:], strict=True):
            assert mine.state == theirs.state
            assert mine.metadata.parent_id == theirs.metadata.parent_id
        assert len(states.metadata("f", namespace="inner")) == 2
        assert states.writes([Place("f", "", "c1")])[Place("f", "", "c1")] == [Write("t", 0, "x", 1)]

    def test_fork_with_history_is_complete(self, states: States) -> None:
        """Also what was saved into other namespaces since."""
        states.save(point("a", {"messages": conversation(10)}))
        states.save(point("b", namespace="inner"))
        assert states.fork("s", into="f", history=True).checkpoint_id == "a"
        found = [(each.namespace, each.checkpoint_id) for each in states.metadata("f", namespace=None)]
        assert found == [("inner", "b"), ("", "a")]

    def test_a_write_that_is_damaged_is_named(self, states: States) -> None:
        states.save(point("a"))
        states.put_writes(Place("s", "", "a"), [Write("t", 0, "x", 1)])
        assert states.verify().ok
        states.store.add_writes(Place("s", "", "a"), [WriteRow("t", 0, "", "x", b"\0\xc1")], replace=True)
        [problem] = states.verify().problems
        assert "s/a" in problem.detail

    def test_two_steps_are_compared(self, states: States) -> None:
        states.save(point("a", {"x": 1, "y": [1, 2, {"z": 1}], "gone": 1}))
        states.save(point("b", {"x": 1.0, "y": [1, 2, {"z": 2}, 3], "new": 1}))
        diff = states.diff("s", "a")
        assert [(each.kind, each.path) for each in diff.changes] == [
            ("changed", "['x']"), ("changed", "['y'][2]['z']"), ("added", "['y'][3]"), ("removed", "['gone']"),
            ("added", "['new']"),
        ]  # fmt: skip
        assert not states.diff("s", "b", "b")
        with pytest.raises(NotFound):
            states.diff("s", "a", "nothing")

    def test_keys_that_are_equal_and_not_the_same_are_compared(self, states: States) -> None:
        nan = float("nan")
        states.save(point("a", {"x": {1: "a", 0.0: "b", nan: 1, float("nan"): 2}}))
        states.save(point("b", {"x": {True: "a", -0.0: "b", nan: 1, float("nan"): 3}}))
        assert [(each.kind, each.path) for each in states.diff("s", "a").changes] == [
            ("removed", "['x'][1]"), ("removed", "['x'][0.0]"), ("changed", "['x'][nan]"), ("added", "['x'][True]"),
            ("added", "['x'][-0.0]"),
        ]  # fmt: skip

    def test_a_policy_prunes_and_the_newest_and_the_pinned_stay(self, states: States) -> None:
        for session in ("s", "t"):
            for number in range(6):
                tags = ("pinned",) if number == 1 else ("good",) if number == 2 else ()
                state = {"messages": conversation(number * 10)}
                states.save(point(f"c{number}", state, session, tags=tags, extra={"score": number % 4}))
        policy = Policy(keep_last_per_session=2, keep_best=1, by_kind={"good": None})
        planned = states.prune(policy, dry_run=True)
        assert len(states.metadata("s", None)) == 6
        assert not planned.is_done
        pruned = states.prune(policy)
        assert [each.checkpoint_id for each in pruned.removed] == [each.checkpoint_id for each in planned.removed]
        assert [each.checkpoint_id for each in states.metadata("s", None)] == ["c5", "c4", "c3", "c2", "c1"]
        assert [each.checkpoint_id for each in states.metadata("t", None)] == ["c5", "c4", "c2", "c1"]
        assert pruned.bytes_freed > 0
        assert states.prune(Policy(keep_last=0), "t").removed
        assert [each.checkpoint_id for each in states.metadata("t", None)] == ["c5", "c1"]
        self.assert_sound(states)

    def test_what_was_not_shown_is_not_pruned(self, states: States) -> None:
        for number in range(4):
            states.save(point(f"c{number}"))
        policy = Policy(keep_last=2)
        plan = states.prune(policy, dry_run=True)
        assert [each.checkpoint_id for each in plan.removed] == ["c0", "c1"]
        states.delete("s", "c3")
        states.save(point("c4"))
        states.save(point("c5"))
        done = states.prune(policy, plan=plan)
        assert [each.checkpoint_id for each in done.removed] == ["c0", "c1"]
        assert [each.checkpoint_id for each in states.metadata("s")] == ["c5", "c4", "c2"]

    def test_a_policy_keeps_within_so_many_bytes(self, states: States) -> None:
        for number in range(10):
            text = f"{number} " * 2000
            states.save(
                point(f"c{number}", {"own": [text[at : at + 1000] for at in range(0, 4000, 1000)], "n": number})
            )
        total = states.usage().total_bytes
        pruned = states.prune(Policy(max_bytes=total // 2))
        assert 3 <= len(pruned.removed) <= 6
        assert [each.checkpoint_id for each in pruned.removed] == [f"c{n}" for n in range(len(pruned.removed))]
        assert states.usage().total_bytes <= total // 2
        self.assert_sound(states)

    def test_a_session_lives_as_long_as_it_is_used(self, open_store: OpenStore) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("a", session_id="old"))
            states.save(point("a", session_id="used"))
            now[0] += 50
            states.save(point("b", session_id="used"))
            assert len(states.sessions()) == 2
            now[0] += 30
            assert states.load("old") is None
            assert states.list("old") == []
            assert states.metadata("old") == []
            assert len(states.list("used")) == 2  # all of it, or nothing
            assert [each.session_id for each in states.sessions()] == ["used"]
            assert states.expire() == ["old"]
            assert states.expire() == []
            now[0] += 1000
            assert states.expire() == ["used"]
            assert states.usage().checkpoints == 0
            states.save(point("a", session_id="old"))
            assert states.load("old") is not None

    def test_expiry_is_checked_once_per_list(self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
        with States(open_store(), ttl=timedelta(days=1)) as states:
            for number in range(5):
                states.save(point(f"c{number}", session_id="st"[number % 2]))
            asked: list[str] = []
            session = states.store.session

            def look(name: str) -> SessionRow | None:
                asked.append(name)
                return session(name)

            monkeypatch.setattr(states.store, "session", look)
            assert len(states.metadata(None)) == 5
            assert sorted(asked) == ["s", "t"]

    def test_page_of_sessions_is_full_despite_expired_ones(self, open_store: OpenStore) -> None:
        now = [2000.0]
        with States(open_store(), ttl=timedelta(seconds=500), clock=lambda: now[0]) as states:
            for name in "abc":
                states.save(point("a", session_id=name))
            now[0] = 1000.0  # a clock that steps back
            for number in range(4):
                states.save(point("a", session_id=f"old{number}"))
            now[0] = 2000.0
            assert [each.session_id for each in states.sessions(2)] == ["c", "b"]
            assert [each.session_id for each in states.sessions(None)] == ["c", "b", "a"]
            assert states.sessions(0) == []

    # writes

    def test_writes_come_back_in_order_and_the_first_one_stays(self, states: States) -> None:
        place = Place("s", "", "c")
        states.put_writes(
            place, [Write("t2", 0, "a", 1, "p1"), Write("t1", 1, "b", 2, "p2"), Write("t1", -1, "c", 3, "p2")]
        )
        states.put_writes(place, [Write("t2", 0, "a", "late", "p1"), Write("t2", 1, "d", (4,), "p1")])
        found = states.writes([place, Place("s", "", "none")])
        assert [(each.channel, each.value) for each in found[place]] == [("a", 1), ("d", (4,)), ("c", 3), ("b", 2)]
        assert found[Place("s", "", "none")] == []
        states.put_writes(place, [Write("t2", 0, "a", "new", "p1")], replace=True)
        assert states.writes([place])[place][0].value == "new"
        states.put_writes(place, [])

    def test_duplicate_index_keeps_the_first_or_the_replacing_write(self, states: States) -> None:
        place = Place("s", "", "c")
        states.put_writes(place, [Write("t", 0, "a", 1), Write("t", 0, "a", 2), Write("t", 1, "b", 3)])
        assert [each.value for each in states.writes([place])[place]] == [1, 3]
        states.put_writes(place, [Write("t", 0, "a", 4), Write("t", 0, "a", 5)], replace=True)
        assert [each.value for each in states.writes([place])[place]] == [5, 3]

    def test_writes_go_with_their_checkpoint(self, states: States) -> None:
        for name in ("a", "b"):
            states.save(point(name))
            states.put_writes(Place("s", "", name), [Write("t", 0, "x", name)])
        states.delete("s", "a")
        assert states.writes([Place("s", "", "a")])[Place("s", "", "a")] == []
        assert states.writes([Place("s", "", "b")])[Place("s", "", "b")] != []
        states.delete("s")
        assert states.usage().total_bytes == 0

    def test_writes_of_what_was_never_saved_are_deleted_too(self, states: States) -> None:
        place = Place("never", "", "c")
        for delete in (lambda: states.delete("never", "c"), lambda: states.delete("never"), states.clear_all):
            states.put_writes(place, [Write("t", 0, "x", 1)])
            delete()
            assert states.writes([place]) == {place: []}
            assert states.usage().total_bytes == 0

    def test_many_threads_write_at_once(self, states: States) -> None:
        place = Place("s", "", "c")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: states.put_writes(place, [Write(f"t{n:02}", 0, "x", n)]), range(40)))
        assert [each.value for each in states.writes([place])[place]] == list(range(40))
