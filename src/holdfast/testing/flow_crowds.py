"""Part of the contract of states: many at once, and keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, Refused
from holdfast.flow import Place, States, Write
from holdfast.flow.store import Part, names_in
from holdfast.retention import Policy
from holdfast.serde import Keys
from holdfast.testing.flow_scenes import OpenStore, Sound, conversation, point


class CrowdContract(Sound):
    """Any number of writers, readers and keys."""

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

    def test_plaintext_that_somebody_puts_into_a_sealed_session_can_be_deleted(self, open_store: OpenStore) -> None:
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
            with pytest.raises(Damaged, match="sealed bytes"):
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

    def test_the_same_checkpoint_saved_again_after_a_rotation_changes_nothing(self, open_store: OpenStore) -> None:
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
