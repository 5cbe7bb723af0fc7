"""A cluster of Redis in which things move: a slot goes to another node, a replica takes over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from redis import Redis, RedisError

import servers
from holdfast.errors import Unavailable
from holdfast.flow import Place, States, Write, open_states
from holdfast.testing.flow_contract import StateStoreContract, conversation, point

pytestmark = pytest.mark.server


class Move:
    """A slot on its way from the node that has it to another one."""

    def __init__(self, nodes: dict[int, Redis], tag: str) -> None:
        self._slot = next(iter(nodes.values())).execute_command("CLUSTER KEYSLOT", tag)
        by_keys = sorted(nodes, key=lambda port: len(self._keys(nodes[port])))
        self._source, self._target, self._port = nodes[by_keys[-1]], nodes[by_keys[0]], by_keys[0]
        self._ids = [node.execute_command("CLUSTER MYID") for node in (self._source, self._target)]

    def _keys(self, node: Redis) -> list[bytes]:
        return sorted(node.execute_command("CLUSTER GETKEYSINSLOT", self._slot, 10_000))

    def begin(self) -> None:
        self._target.execute_command("CLUSTER SETSLOT", self._slot, "IMPORTING", self._ids[0])
        self._source.execute_command("CLUSTER SETSLOT", self._slot, "MIGRATING", self._ids[1])

    def carry(self, part: slice) -> None:
        """Move some of the keys that are left. One that is at the target already is an error."""
        for key in self._keys(self._source)[part]:
            self._source.execute_command("MIGRATE", "127.0.0.1", self._port, key, 0, 60_000)

    def end(self) -> None:
        self.carry(slice(None))
        for node in (self._target, self._source):
            node.execute_command("CLUSTER SETSLOT", self._slot, "NODE", self._ids[1])


@pytest.fixture
def cluster() -> Iterator[tuple[str, dict[int, Redis]]]:
    with TemporaryDirectory(prefix="hf-redis-") as name, servers.replicated_cluster(Path(name)) as found:
        yield found


CHANGES: dict[str, Callable[[States], Any]] = {
    "save": lambda states: states.save(point("late", {"messages": conversation(9)})),
    "begin": lambda states: states.save(point("first", session_id="new")),
    "replace": lambda states: states.save(point("c1", {"n": 1}), replace=True),
    "fork": lambda states: states.fork("s", into="f"),
    "put_writes": lambda states: states.put_writes(Place("s", "", "c2"), [Write("t", 0, "x", 1)]),
    "delete one": lambda states: states.delete("s", "c1"),
    "delete": lambda states: states.delete("s"),
    "reopen": lambda states: states.reopen("gone"),
    "clear": lambda states: states.clear_all(),
}


def test_moving_slot_can_be_read_and_is_not_changed(cluster: tuple[str, dict[int, Redis]]) -> None:
    """P3, P10: neither node has all keys then, and a script would take those that it lacks for new ones."""
    url, nodes = cluster
    primaries = dict(list(nodes.items())[:3])
    with open_states(url, timeout=60) as patient, contextlib.ExitStack() as stack:
        for number in range(4):
            patient.save(point(f"c{number}", {"messages": conversation(number)}))
        patient.save(point(session_id="gone"))
        patient.delete("gone")
        before = patient.list("s", None)
        hasty = stack.enter_context(open_states(url, timeout=60, memory_bytes=0))
        hasty.store._timeout = 0.0  # type: ignore[attr-defined]
        move = Move(primaries, "{.}")
        move.begin()
        for part in (slice(0), slice(None, None, 2), slice(None)):
            move.carry(part)
            for change in CHANGES.values():
                with pytest.raises(Unavailable, match="moving") as unavailable:
                    change(hasty)
                assert unavailable.value.hint
            with open_states(url) as reader:
                assert reader.list("s", None) == before
                assert [each.session_id for each in reader.sessions()] == ["s"]
                assert reader.store.tombstones() == ["gone"]
        with ThreadPoolExecutor() as threads:
            saving = threads.submit(patient.save, point("late", {"messages": conversation(9)}), expected_parent="c3")
            move.end()
            assert saving.result().sequence == 6
        assert patient.load("s") == point("late", {"messages": conversation(9)}, parent_id="c3")
        StateStoreContract.assert_sound(patient)


def test_a_cluster_that_is_down_is_said_to_be(cluster: tuple[str, dict[int, Redis]]) -> None:
    url, nodes = cluster
    with open_states(url, timeout=60) as states:
        states.save(point("a"))
        slot = nodes[next(iter(nodes))].execute_command("CLUSTER KEYSLOT", "{.}")
        primaries = list(nodes.values())[:3]
        [owner] = [node for node in primaries if node.execute_command("CLUSTER COUNTKEYSINSLOT", slot)]
        owner.execute_command("CLUSTER DELSLOTS", slot - 1)  # nobody has that one any more
        servers.wait_for(lambda: _check_state(owner, "fail"), RedisError)
        states.store._timeout = 0.0  # type: ignore[attr-defined]
        with pytest.raises(Unavailable, match="is down") as unavailable:
            states.save(point("b"))
        assert unavailable.value.hint
        states.store._timeout = 600.0  # type: ignore[attr-defined]
        with ThreadPoolExecutor() as threads:
            saving = threads.submit(states.save, point("b"), expected_parent="a")
            owner.execute_command("CLUSTER ADDSLOTS", slot - 1)
            assert saving.result().sequence == 2


def _check_state(node: Redis, state: str) -> None:
    if node.execute_command("CLUSTER INFO")["cluster_state"] != state:
        raise RedisError("not yet")


def test_a_replica_that_takes_over_has_all_that_it_heard_of(cluster: tuple[str, dict[int, Redis]]) -> None:
    url, nodes = cluster
    with open_states(url) as states:
        for number in range(5):
            states.save(point(f"c{number}", {"messages": conversation(number)}))
        slot = nodes[next(iter(nodes))].execute_command("CLUSTER KEYSLOT", "{.}")
        [primary] = [node for node in list(nodes.values())[:3] if node.execute_command("CLUSTER COUNTKEYSINSLOT", slot)]
        replica = nodes[int(primary.info("replication")["slave0"]["port"])]
        servers.wait_for(lambda: _heard(primary, replica), RedisError)
        primary.shutdown(nosave=True)
        replica.execute_command("CLUSTER FAILOVER TAKEOVER")
        saved = point("c5", {"messages": conversation(5)})
        servers.wait_for(lambda: states.save(saved, expected_parent="c4"), Unavailable)
        with open_states(url.replace(url.rpartition(":")[2], str(list(nodes)[1]))) as other:
            assert [each.checkpoint_id for each in other.metadata("s")] == ["c5", "c4", "c3", "c2", "c1", "c0"]
            StateStoreContract.assert_sound(other)


def _heard(primary: Redis, replica: Redis) -> None:
    """Whether a replica has all that its primary has."""
    if replica.info("replication")["slave_repl_offset"] < primary.info("replication")["master_repl_offset"]:
        raise RedisError("not yet")
