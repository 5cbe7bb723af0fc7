"""Part of the contract of states: what others do at the very moment, and what callers ask that makes no sense."""

from __future__ import annotations

import contextlib
import random
import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.flow import Checkpoint, Place, States, StateStore, Write
from holdfast.testing.flow_scenes import OpenStore, Sound, conversation, point

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


class BesideContract(Sound):
    """Whatever happens beside a call, and whatever is asked, nothing is torn and nothing is lost."""

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
                states.save(point("d"))
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
