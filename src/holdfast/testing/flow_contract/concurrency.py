"""Contract of a state store: many writers and readers, races, encryption keys, and invalid arguments."""

from __future__ import annotations

import contextlib
import random
import string
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused
from holdfast.flow import Checkpoint, Place, States, StateStore, Write
from holdfast.flow.packs import unpacked
from holdfast.flow.store import StatePart, names_in
from holdfast.retention import Policy
from holdfast.serde import Keys
from holdfast.testing.flow_contract.fixtures import FlowContract, OpenStore, conversation, point

PLACE = Place("s", "", "a")
SENSELESS: dict[str, Callable[[States, Any], Any]] = {
    "save": lambda states, bad: states.save(bad),
    "save metadata": lambda states, bad: states.save(Checkpoint(bad, {})),
    "save tags": lambda states, bad: states.save(point("b", tags=bad)),
    "save expected": lambda states, bad: states.save(point("b"), expected_parent=bad),
    "load": lambda states, bad: states.load(bad),
    "load id": lambda states, bad: states.load("s", bad),
    "load namespace": lambda states, bad: states.load("s", namespace=bad),
    "list": lambda states, bad: states.list(bad),
    "metadata": lambda states, bad: states.metadata(bad),
    "metadata namespace": lambda states, bad: states.metadata("s", namespace=bad),
    "metadata run": lambda states, bad: states.metadata("s", run_id=bad),
    "metadata tags": lambda states, bad: states.metadata("s", tags=bad),
    "metadata where": lambda states, bad: states.metadata("s", where=bad),
    "metadata before": lambda states, bad: states.metadata("s", before=bad),
    "sessions before": lambda states, bad: states.sessions(before=bad),
    "delete": lambda states, bad: states.delete(bad),
    "delete id": lambda states, bad: states.delete("s", bad),
    "delete runs": lambda states, bad: states.delete_runs(bad),
    "a run": lambda states, bad: states.delete_runs([bad]),
    "reopen": lambda states, bad: states.reopen(bad),
    "fork": lambda states, bad: states.fork("s", into=bad),
    "fork id": lambda states, bad: states.fork("s", bad, into="f"),
    "diff": lambda states, bad: states.diff("s", "a", bad),
    "prune": lambda states, bad: states.prune(bad),
    "copy": lambda states, bad: states.copy_to(bad),
    "writes": lambda states, bad: states.writes(bad),
    "writes of": lambda states, bad: states.writes([bad]),
    "put_writes": lambda states, bad: states.put_writes(PLACE, bad),
    "put_writes to": lambda states, bad: states.put_writes(bad, [Write("t", 0, "c", 1)]),
    "put_writes place": lambda states, bad: states.put_writes(Place("s", "", bad), [Write("t", 0, "c", 1)]),
    "a write": lambda states, bad: states.put_writes(PLACE, [bad]),
    "task": lambda states, bad: states.put_writes(PLACE, [Write(bad, 0, "c", 1)]),
    "index": lambda states, bad: states.put_writes(PLACE, [Write("t", bad, "c", 1)]),
    "channel": lambda states, bad: states.put_writes(PLACE, [Write("t", 0, bad, 1)]),
    "task path": lambda states, bad: states.put_writes(PLACE, [Write("t", 0, "c", 1, bad)]),
}


class ConcurrencyContract(FlowContract):
    """Any number of writers and readers, and what they do to each other."""

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

    # encryption

    def test_with_a_key_nothing_is_readable_and_nothing_can_be_moved(self, open_store: OpenStore) -> None:
        keys = Keys({"k": bytes(32)})
        with States(open_store(), keys=keys) as states:
            for session in ("s", "t"):
                states.save(point("c", {"messages": conversation(5), "secret": "hush" * 300, "of": session}, session))
            row = states.store.find("s", "", "c")
            assert row is not None
            stored = unpacked(states.store.parts(row.family, names_in(row.refs)))
            assert all(b"hush" not in data for _, _, data in stored)
            moved = row._replace(place=row.place._replace(session="u", checkpoint_id="d"))
            states.store.commit(moved, [StatePart(*each) for each in stored])
            with pytest.raises(HoldfastError):
                states.load("u")
            assert states.load("s") is not None

    def test_with_a_key_parts_cannot_take_each_others_place(self, open_store: OpenStore) -> None:
        keys = Keys({"k": bytes(32)})
        with States(open_store(), keys=keys) as states:
            states.save(point("c", {"a": "x" * 600, "b": "y" * 600, "fill": ["z" * 1000] * 5}))
            row = states.store.find("s", "", "c")
            assert row is not None
            (one, _, data), (_, refs, other), *rest = unpacked(states.store.parts(row.family, names_in(row.refs)))
            assert data != other
            states.delete("s", tombstone=False)
            forged = [StatePart(one, refs, other), *(StatePart(*each) for each in rest)]
            states.store.commit(row, forged)
            states.forget_parts()
            with pytest.raises(Damaged, match="encrypted data"):
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

    def test_plaintext_in_an_encrypted_session_can_be_deleted(self, open_store: OpenStore) -> None:
        with States(open_store(), keys=Keys({"k": bytes(32)})) as states:
            states.save(point("sealed"))
            with States(open_store()) as plain:
                plain.save(point("forged"))
            with pytest.raises(Refused, match="not encrypted"):
                states.load("s")
            assert [problem.checkpoints for problem in states.verify().problems] == [("forged",)]
            assert states.delete("s", "forged") == 1
            assert states.load("s") == point("sealed")

    def test_a_sealed_write_opens_in_its_place_only(self, open_store: OpenStore) -> None:
        here, there = Place("s", "", "a"), Place("s", "", "b")
        with States(open_store(), keys=Keys({"k": bytes(32)})) as states:
            states.put_writes(here, [Write("task", 0, "to", "moved")])
            states.store.add_writes(there, states.store.writes([here])[here], replace=True)
            with pytest.raises(Damaged, match="encrypted data"):
                states.writes([there])

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

    def test_same_checkpoint_saved_after_key_rotation_is_a_no_op(self, open_store: OpenStore) -> None:
        old, new = {"old": bytes(32)}, {"old": bytes(32), "new": bytes([1]) * 32}
        saved = [point(name, {"messages": conversation(10), "name": name}) for name in "ab"]
        with States(open_store(), keys=Keys(old)) as states:
            numbers = [states.save(saved[0]).sequence, states.save(saved[1], expected_parent="a").sequence]
            before = states.store.usage()
        with States(open_store(), keys=Keys(new)) as states:
            assert states.save(saved[0]).sequence == numbers[0]
            assert states.save(saved[1], expected_parent="a").sequence == numbers[1]
            assert states.store.usage() == before
            for other in (point("a", {"messages": []}), point("a", saved[0].state, parent_id="b")):
                with pytest.raises(Conflict):
                    states.save(other)
            states.save(point("c", {"messages": conversation(11)}))
            self.assert_sound(states)
        with States(open_store(), keys=Keys({"new": bytes([1]) * 32})) as states, pytest.raises(Conflict):
            states.save(saved[0])

    # races, and invalid arguments

    def test_what_makes_no_sense_is_refused_and_changes_nothing(self, states: States) -> None:
        states.save(point("a"))
        for asked, ask in SENSELESS.items():
            for bad in (b"x", 1.5, object(), 10**30):
                if isinstance(bad, int) and asked.endswith("before"):
                    continue  # a number like any other
                with pytest.raises(Refused) as refused:
                    ask(states, bad)
                assert refused.value.hint, asked
        assert states.verify().ok
        assert states.list("s") == [point("a")]
        assert states.writes([PLACE]) == {PLACE: []}

    def test_names_may_be_long_all_at_once(self, open_store: OpenStore) -> None:
        """Also such that no index can make them shorter."""
        chance = random.Random(3)
        letters = string.ascii_letters + string.digits + "+-"
        tenant, session, namespace, checkpoint_id, task, run = (
            "".join(chance.choices(letters, k=500)) for _ in range(6)
        )
        one = point(checkpoint_id, {"x": 1}, session, namespace=namespace, parent_id=task, run_id=run)
        place = Place(session, namespace, checkpoint_id)
        with States(open_store(tenant=tenant)) as states:
            states.save(one)
            states.put_writes(place, [Write(task, 0, task, 1, task)])
            assert states.list(session, namespace=namespace, run_id=run) == [one]
            assert states.writes([place])[place] == [Write(task, 0, task, 1, task)]
            assert states.delete(session) == 1

    @pytest.mark.parametrize("verb", ["copy", "diff", "verify"])
    def test_what_is_deleted_while_it_is_looked_at_is_no_damage(
        self,
        open_store: OpenStore,
        stores: Callable[[], StateStore],
        monkeypatch: pytest.MonkeyPatch,
        verb: str,
    ) -> None:
        with (
            States(open_store(), memory_bytes=0) as states,
            States(open_store()) as other,
            States(stores()) as target,
        ):
            for name in ("a", "b"):
                states.save(point(name, {"messages": conversation(10), "name": [name * 2000]}))
            find = states.store.find

            def find_and_lose(session: str, namespace: str, checkpoint_id: str | None) -> Any:
                found = find(session, namespace, checkpoint_id)
                if checkpoint_id == "b":
                    other.delete("s", "b")
                return found

            monkeypatch.setattr(states.store, "find", find_and_lose)
            if verb == "copy":
                assert states.copy_to(target).checkpoints == 1
                assert [each.checkpoint_id for each in target.metadata("s")] == ["a"]
            elif verb == "diff":
                with pytest.raises(NotFound):
                    states.diff("s", "b", "a")
            else:
                assert states.verify().ok

    def test_what_is_saved_at_the_very_moment_it_expires_is_kept(
        self, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("a"))
            now[0] += 100
            delete = states.store.delete_session

            def delete_late(session: str, **more: Any) -> int:
                states.save(point("b", parent_id="a"))
                return delete(session, **more)

            monkeypatch.setattr(states.store, "delete_session", delete_late)
            assert states.expire() == []
            assert len(states.list("s")) == 2

    def test_a_session_that_expired_is_begun_anew(self, open_store: OpenStore) -> None:
        """What `load` does not show is not in the way, and does not come back."""
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("a", {"messages": conversation(10)}))
            states.save(point("b", {"messages": conversation(11)}))
            now[0] += 100
            assert states.load("s") is None
            states.save(point("a", {"n": 1}), expected_parent=None)
            assert [each.checkpoint_id for each in states.metadata("s")] == ["a"]
            now[0] += 100
            states.save(point("c"), expected_parent="a")  # goes on with it: a step may take long
            assert [each.checkpoint_id for each in states.metadata("s")] == ["c", "a"]
            states.delete("s")
            now[0] += 100
            with pytest.raises(Conflict, match="deleted"):
                states.save(point("d", parent_id="c"))
            self.assert_sound(states)

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

    def test_a_clock_that_steps_back_ends_no_session(self, open_store: OpenStore) -> None:
        now = [1000.0]
        with States(open_store(), ttl=timedelta(seconds=60), clock=lambda: now[0]) as states:
            states.save(point("a"))
            for moment, more in ((900.0, point("b")), (800.0, point("a", {"n": 1}))):
                now[0] = moment
                states.save(more, replace=True)
            now[0] = 1055.0
            assert len(states.list("s")) == 2
            assert states.expire() == []

    def test_tenants_whose_names_begin_alike_do_not_meet(self, open_store: OpenStore) -> None:
        names = ["", "a", "a.", "a:", "a}", "a}:", "{a", "aa", "a%", "a%2e", "A", "a:s", "a\0"]
        with contextlib.ExitStack() as stack:
            tenants = [stack.enter_context(States(open_store(tenant=name))) for name in names]
            for number, states in enumerate(tenants):
                states.save(point("c", {"messages": conversation(10), "of": number}))
                states.put_writes(Place("s", "", "c"), [Write("t", 0, "x", number)])
            for states in tenants[::2]:
                states.clear_all()
            for number, states in enumerate(tenants):
                found = [each.state["of"] for each in states.list("s")]
                assert found == ([number] if number % 2 else [])
                assert len(states.writes([Place("s", "", "c")])[Place("s", "", "c")]) == number % 2
                self.assert_sound(states)

    def test_a_copy_beside_writers_has_only_whole_states(
        self, open_store: OpenStore, stores: Callable[[], StateStore]
    ) -> None:
        messages = conversation(40)

        def write() -> None:
            with States(open_store()) as states:
                for step in range(30):
                    states.save(point(f"c{step}", {"messages": messages[step % 7 : step]}, step=step))
                    states.put_writes(Place("s", "", f"c{step}"), [Write("t", 0, "x", step)])
                    if step % 3 == 2:
                        states.delete("s", f"c{step - 2}")

        with States(open_store()) as source, States(stores()) as target, ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                source.copy_to(target)
            writing.result()
            source.copy_to(target)
            found = {each.metadata.step: each.state["messages"] for each in target.list("s", None)}
            assert found == {step: messages[step % 7 : step] for step in found}
            assert found.keys() >= {each.step for each in source.metadata("s", None)}
            self.assert_sound(target)
