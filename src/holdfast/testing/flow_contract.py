"""What every `StateStore` does, through the verbs that people call; whoever writes a back end inherits this.

The suite gives two fixtures: `open_store`, which opens the same back end again and again, for any tenant, and `stores`,
which makes back ends that have nothing to do with each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused
from holdfast.flow import ANYTHING, Checkpoint, CheckpointMetadata, Place, States, StateStore, Write
from holdfast.flow.store import Part, names_in
from holdfast.retention import Policy
from holdfast.serde import Keys, Registry, Serde

OpenStore = Callable[..., StateStore]
_FIVE: Any = 5
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ODD_NAMES = [
    "a", "ä", "☃", "\U0001f600", " ", "a b", "a/b", "a:b", "{x}", "a*b?[c]", "%", "%00", "'; DROP TABLE sessions; --",
    '"', "\\", "\n", "\0", "a\0b", "\ud800", "A", "null", "..", "x" * 800, "%u0041",
]  # fmt: skip


def told(checkpoint_id: str = "c1", session_id: str = "s", **more: Any) -> CheckpointMetadata:
    given: dict[str, Any] = {"timestamp": NOON, "node_name": "node", "step": 1}
    return CheckpointMetadata(checkpoint_id, session_id, **(given | more))


def point(checkpoint_id: str = "c1", state: Any = None, session_id: str = "s", **more: Any) -> Checkpoint:
    return Checkpoint(told(checkpoint_id, session_id, **more), {"n": checkpoint_id} if state is None else state)


def conversation(length: int, size: int = 1000) -> list[dict[str, Any]]:
    """Messages that do not repeat themselves."""
    return [{"id": at, "role": "user", "content": f"{at:06} " * (size // 7)} for at in range(length)]


class StateStoreContract:
    """The promises of `holdfast.flow.store`, and what the surface says on top of them."""

    @pytest.fixture
    def states(self, open_store: OpenStore) -> Iterator[States]:
        with States(open_store()) as states:
            yield states

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

    def test_another_checkpoint_with_an_id_that_is_taken_is_a_conflict(self, states: States) -> None:
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
            point("x" * 801),
            point(_FIVE),
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

    # deleting

    def test_one_checkpoint_is_deleted_and_the_one_before_is_the_newest(self, states: States) -> None:
        for name in ("a", "b", "c"):
            states.save(point(name, {"messages": conversation(10), "name": name}))
        assert states.delete("s", "c") == 1
        assert states.delete("s", "c") == 0
        newest = states.load("s")
        assert newest is not None
        assert newest.state["name"] == "b"
        states.save(point("d", {"messages": conversation(11), "name": "d"}))
        assert states.load("s") == point("d", {"messages": conversation(11), "name": "d"})

    def test_a_deleted_session_stays_deleted(self, states: States) -> None:
        states.save(point("a"))
        states.save(point("b", namespace="inner"))
        assert states.delete("s") == 2
        assert states.load("s") is None
        assert states.sessions() == []
        for late in (point("c"), point("a"), point("d", namespace="inner")):
            with pytest.raises(Conflict, match="deleted"):
                states.save(late)
        with pytest.raises(Conflict, match="deleted"):
            states.put_writes(Place("s", "", "a"), [Write("t", 0, "c", 1)])
        assert states.metadata("s", namespace=None) == []

    def test_a_writer_that_did_not_hear_of_the_deletion_is_told(self, open_store: OpenStore) -> None:
        with States(open_store()) as states, States(open_store()) as late:
            late.save(point("a", {"messages": conversation(10)}))
            states.delete("s")
            with pytest.raises(Conflict, match="deleted"):
                late.save(point("b", {"messages": conversation(11)}))

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

    @staticmethod
    def assert_sound(states: States) -> None:
        """All can be read, and there is no part that nothing needs."""
        assert states.verify().ok
        rows = states.store.rows(None, None, whole=True)
        needed: set[tuple[int, bytes]] = set()
        for row in rows:
            level = names_in(row.refs)
            while level:
                needed |= {(row.family, name) for name in level}
                level = [name for refs in states.store.groups(row.family, level).values() for name in names_in(refs)]
        assert states.usage().parts == len(needed)

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
        with pytest.raises(NotFound):
            states.fork("f", "nothing", into="g")
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

    def test_a_session_that_is_used_again_at_the_last_moment_lives(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("a"))
            now[0] += 100
            listed = states.store.sessions()
            states.save(point("b"))
            monkeypatch.setattr(states.store, "sessions", lambda: listed)
            assert states.expire() == []
            assert states.load("s") == point("b")

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

    def test_writes_go_with_their_checkpoint(self, states: States) -> None:
        for name in ("a", "b"):
            states.save(point(name))
            states.put_writes(Place("s", "", name), [Write("t", 0, "x", name)])
        states.delete("s", "a")
        assert states.writes([Place("s", "", "a")])[Place("s", "", "a")] == []
        assert states.writes([Place("s", "", "b")])[Place("s", "", "b")] != []
        states.delete("s")
        assert states.usage().total_bytes == 0

    def test_many_threads_write_at_once(self, states: States) -> None:
        place = Place("s", "", "c")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: states.put_writes(place, [Write(f"t{n:02}", 0, "x", n)]), range(40)))
        assert [each.value for each in states.writes([place])[place]] == list(range(40))

    # many at once

    def test_many_sessions_are_saved_at_once(self, open_store: OpenStore) -> None:
        """P9: each through a store of its own, as processes do."""

        def work(number: int) -> None:
            with States(open_store()) as states:
                for step in range(10):
                    states.save(point(f"c{step}", {"messages": conversation(step), "of": number}, f"s{number}"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        with States(open_store()) as states:
            numbers = [each.sequence for each in states.metadata(None, None)]
            assert len(set(numbers)) == 80
            for number in range(8):
                assert [each.state["of"] for each in states.list(f"s{number}", None)] == [number] * 10
            self.assert_sound(states)

    def test_readers_see_whole_states_beside_writers_and_deletions(self, open_store: OpenStore) -> None:
        stop = threading.Event()
        failures: list[BaseException] = []

        def check() -> None:
            try:
                with States(open_store(), memory_bytes=0) as states:
                    while not stop.is_set():
                        for found in [states.load("s"), *states.list("s", 3)]:
                            if found is not None:
                                assert len(found.state["messages"]) == found.metadata.step
            except BaseException as error:
                failures.append(error)

        readers = [threading.Thread(target=check) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            with States(open_store()) as states:
                for step in range(40):
                    messages = conversation(40)[-step:] if step else []
                    states.save(point(f"c{step}", {"messages": messages}, step=step))
                    if step >= 3:
                        states.delete("s", f"c{step - 3}")
                self.assert_sound(states)
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert failures == []

    def test_a_base_that_somebody_else_deleted_is_not_built_on(self, open_store: OpenStore) -> None:
        """What a process remembers of its last save may be gone."""
        messages = conversation(60)
        with States(open_store()) as states, States(open_store()) as other:
            for length in (20, 40, 60):
                states.save(point(f"c{length}", {"messages": messages[:length]}))
                other.delete("s", f"c{length}")
                states.save(point(f"d{length}", {"messages": messages[: length + 1]}))
                self.assert_sound(other)
                other.delete("s", f"d{length}")
            states.save(point("f", {"messages": messages}))
            other.save(point("f", {"messages": []}), replace=True)
            states.save(point("g", {"messages": messages}))
            self.assert_sound(other)
            assert other.load("s", "g") == point("g", {"messages": messages})

    def test_saving_beside_deleting_leaves_nothing_torn(self, open_store: OpenStore) -> None:
        """The parts that a save builds on may be freed by somebody else just before."""
        messages = conversation(30)

        def prune(_: int) -> None:
            with States(open_store()) as states:
                for _ in range(15):
                    states.prune(Policy(keep_last=1))

        def save(writer: int) -> None:
            with States(open_store()) as states:
                for step in range(15):
                    start = (step * 7 + writer) % 10
                    states.save(point(f"{writer}-{step}", {"messages": messages[start : start + 20]}))

        with ThreadPoolExecutor(4) as pool:
            tasks = [pool.submit(save, 1), pool.submit(prune, 0), pool.submit(save, 2), pool.submit(prune, 0)]
            for task in tasks:
                task.result()
        with States(open_store()) as states:
            self.assert_sound(states)

    def test_a_store_is_first_opened_by_many_at_once(self, open_store: OpenStore) -> None:
        start = threading.Barrier(8)

        def work(number: int) -> None:
            start.wait()
            with States(open_store()) as states:
                states.save(point("c", session_id=f"s{number}"))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        with States(open_store()) as states:
            assert len(states.sessions()) == 8

    # sealed

    def test_with_a_key_nothing_is_readable_and_nothing_can_be_moved(self, open_store: OpenStore) -> None:
        keys = Keys({"k": bytes(32)})
        with States(open_store(), keys=keys) as states:
            for session in ("s", "t"):
                states.save(point("c", {"messages": conversation(5), "secret": "hush" * 300, "of": session}, session))
            row = states.store.find("s", "", "c")
            assert row is not None
            stored = states.store.parts(row.family, names_in(row.refs))
            assert all(b"hush" not in data for _, _, data in stored)
            moved = row._replace(place=row.place._replace(session="u", checkpoint_id="d"))
            states.store.commit(moved, [Part(*each) for each in stored])
            with pytest.raises(HoldfastError):
                states.load("u")
            assert states.load("s") is not None

    def test_with_a_key_parts_cannot_take_each_others_place(self, open_store: OpenStore) -> None:
        keys = Keys({"k": bytes(32)})
        with States(open_store(), keys=keys) as states:
            states.save(point("c", {"a": "x" * 600, "b": "y" * 600, "fill": ["z" * 1000] * 5}))
            row = states.store.find("s", "", "c")
            assert row is not None
            (one, _, data), (_, refs, other), *rest = states.store.parts(row.family, names_in(row.refs))
            assert data != other
            states.delete("s", tombstone=False)
            forged = [Part(one, refs, other), *(Part(*each) for each in rest)]
            states.store.commit(row, forged)
            states.forget_parts()
            with pytest.raises(Damaged, match="sealed bytes"):
                states.load("s")
        with States(open_store()) as plain, pytest.raises(Refused, match="encrypted"):
            plain.load("s")

    def test_plaintext_is_refused_once_a_key_is_set(self, open_store: OpenStore) -> None:
        with States(open_store()) as plain:
            plain.save(point())
        with States(open_store(), keys=Keys({"k": bytes(32)})) as states:
            for verb in (states.load, states.list, states.metadata):
                with pytest.raises(Refused, match="not encrypted"):
                    verb("s")

    def test_a_key_is_rotated_while_sessions_go_on(self, open_store: OpenStore) -> None:
        old, new = {"old": bytes(32)}, {"old": bytes(32), "new": bytes([1]) * 32}
        with States(open_store(), keys=Keys(old)) as states:
            states.save(point("a", {"messages": conversation(10)}))
        with States(open_store(), keys=Keys(new)) as states:
            states.save(point("b", {"messages": conversation(11)}))
            assert [len(each.state["messages"]) for each in states.list("s")] == [11, 10]
            states.delete("s", "a")
            self.assert_sound(states)
        with States(open_store(), keys=Keys({"new": bytes([1]) * 32})) as states:
            assert states.load("s") == point("b", {"messages": conversation(11)})
