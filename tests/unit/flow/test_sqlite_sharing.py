"""Writes that go along with a commit of another thread: stored with it, told after it, never lost by its failure."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.saver import RUNTIME
from holdfast.durable.sqlite import GroupCommit, PendingWrite
from holdfast.errors import Conflict, Unavailable
from holdfast.flow import Place, States, Write
from holdfast.flow.sqlite import SQLiteStore
from holdfast.testing.flow_contract import point

FOR_EVER = 60.0
"""Longer than any of these tests: who waits so long was told by a commit."""
NEVER = 100 * FOR_EVER
AT = Place("s", "", "first")


@pytest.fixture
def states(tmp_path: Path) -> Iterator[States]:
    with States(SQLiteStore(tmp_path / "a.db")) as states:
        states.save(point("first"))
        yield states


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def sharing_of(states: States) -> GroupCommit:
    return states.store._pool._group  # type: ignore[attr-defined, no-any-return]


def waiting(sharing: GroupCommit) -> PendingWrite:
    while not sharing._waiting:
        time.sleep(0.001)
    return sharing._waiting[0]


def put(
    states: States, threads: ThreadPoolExecutor, value: Any, seconds: float = FOR_EVER, task: str = "task"
) -> Future[None]:
    writes = [Write(task, 0, "channel", value)]
    return threads.submit(lambda: states.put_writes(AT, writes, max_wait_seconds=seconds))


def values(states: States) -> list[Any]:
    return [write.value for write in states.writes([AT])[AT]]


def test_writes_are_stored_with_the_next_save(states: States, threads: ThreadPoolExecutor) -> None:
    told = put(states, threads, "w")
    mine = waiting(sharing_of(states))
    assert values(states) == []
    locked: list[bool] = []
    with states.store._pool.reading() as db:  # type: ignore[attr-defined]
        db.set_trace_callback(lambda text: locked.append(mine.settled.locked()) if text == "COMMIT" else None)
    states.save(point("second"))
    told.result(FOR_EVER)
    assert values(states) == ["w"]
    assert locked == [True]  # one transaction, and waiting callers return when it is on disk


def test_a_save_that_is_refused_leaves_them_waiting(states: States, threads: ThreadPoolExecutor) -> None:
    told = put(states, threads, "w")
    waiting(sharing_of(states))
    with pytest.raises(Conflict):
        states.save(point("first", {"another": 1}))
    assert not told.done()
    states.save(point("second"))
    told.result(FOR_EVER)
    assert values(states) == ["w"]


def test_where_no_save_comes_they_are_stored_all_the_same(states: States, threads: ThreadPoolExecutor) -> None:
    put(states, threads, "w", seconds=0.01).result(FOR_EVER)
    assert values(states) == ["w"]
    assert not sharing_of(states)._waiting


def test_who_comes_second_does_not_wait(states: States, threads: ThreadPoolExecutor) -> None:
    """Tasks beside each other: one commit for both, and only one thread ever waits."""
    first = put(states, threads, "w", NEVER)
    waiting(sharing_of(states))
    second = put(states, threads, "v", NEVER, task="other")
    try:
        second.result(FOR_EVER)
        first.result(FOR_EVER)
    finally:
        for each in sharing_of(states).take():
            each.settle(is_done=False)
    assert sorted(values(states)) == ["v", "w"]


def test_a_session_that_is_deleted_meanwhile_refuses_them(states: States, threads: ThreadPoolExecutor) -> None:
    told = put(states, threads, "w")
    waiting(sharing_of(states))
    states.delete("s")
    with pytest.raises(Conflict):
        told.result(FOR_EVER)
    assert values(states) == []


def test_one_that_is_refused_does_not_harm_the_commit(states: States, threads: ThreadPoolExecutor) -> None:
    states.delete("s")
    told = put(states, threads, "w")
    waiting(sharing_of(states))
    states.save(point("c", session_id="other"))
    with pytest.raises(Conflict):
        told.result(FOR_EVER)
    assert states.load("other") is not None


@pytest.mark.parametrize("is_done", [True, False])
def test_taken_but_unwritten_writes_are_not_reported_stored(is_done: bool, threads: ThreadPoolExecutor) -> None:
    """Of False, the caller commits by itself."""
    sharing = GroupCommit()
    told = threads.submit(lambda: sharing.offer(lambda db: None, FOR_EVER))
    waiting(sharing)
    for each in sharing.take():
        each.settle(is_done=is_done)
    assert told.result(FOR_EVER) is is_done


def test_writes_of_a_failed_transaction_are_not_reported_stored(states: States) -> None:
    def fail(db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    mine = PendingWrite(fail)
    sharing_of(states)._waiting.append(mine)
    with pytest.raises(Unavailable):
        states.save(point("second"))
    assert not mine.settled.locked() and not mine.is_done
    assert states.load("s", "second") is None


def test_many_threads_lose_no_write(states: States) -> None:
    """P9: saves and writes at once, some of which go along and some of which do not."""
    places = [Place("s", "", f"c{number}") for number in range(40)]

    def save(number: int) -> None:
        states.save(point(f"c{number}"))

    def write(number: int) -> None:
        states.put_writes(places[number], [Write("t", 0, "a", number)], max_wait_seconds=0.002 * (number % 3))

    jobs: list[Callable[[int], None]] = [save, write]
    workers = [
        threading.Thread(target=lambda first=first: [job(number) for number in range(first, 40, 4) for job in jobs])
        for first in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = states.writes(places)
    assert [[each.value for each in found[place]] for place in places] == [[number] for number in range(40)]


def test_a_graph_that_runs_is_known_as_one() -> None:
    """By a key that LangGraph adds to the config: without it, writes would be stored one by one."""
    configs: list[Any] = []

    class Watching(HoldfastSaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            configs.append(config)
            super().put_writes(config, writes, task_id, task_path)

    builder = StateGraph(dict).add_node("node", lambda state: {"a": 1}).add_edge(START, "node")
    with Watching.from_url("memory://") as saver:
        builder.compile(checkpointer=saver).invoke({}, {"configurable": {"thread_id": "t"}})
    assert configs
    assert all(RUNTIME in config["configurable"] for config in configs)
