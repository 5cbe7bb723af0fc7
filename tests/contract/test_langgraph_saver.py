"""The saver for LangGraph on every back end: the published suite, and what that suite does not ask."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph

from holdfast import Conflict, HoldfastError, Refused
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.flow import Place
from holdfast.testing.flow_contract import point
from unit.adapters.langgraph.savers import Open, opener

CAPABILITIES = {
    "put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune",
}  # fmt: skip


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def open_saver(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return opener(request.param, request, tmp_path)


@pytest.fixture
def saver(open_saver: Open) -> Iterator[HoldfastSaver]:
    with open_saver() as saver:
        yield saver


def config(thread: str = "t", checkpoint_id: str | None = None, namespace: str = "") -> Any:
    found: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": found | ({"checkpoint_id": checkpoint_id} if checkpoint_id else {})}


def put(saver: HoldfastSaver, where: Any, **values: Any) -> Any:
    made = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}
    return saver.put(where, made, {"source": "loop", "step": 1}, made["channel_versions"])


def ids(saver: HoldfastSaver, thread: str = "t", **options: Any) -> list[str]:
    return [each.checkpoint["id"] for each in saver.list(config(thread), **options)]


def test_all_eight_capabilities_of_the_published_suite_pass(open_saver: Open) -> None:
    @checkpointer_test(name="Holdfast")
    async def ours() -> Any:
        async with open_saver() as saver:
            yield saver

    report = asyncio.run(validate(ours))
    passed = {name for name, result in report.results.items() if result.passed}
    assert report.passed_all(), report.to_dict()
    assert passed >= CAPABILITIES


def test_pending_writes_come_back_by_task_path_task_and_index(saver: HoldfastSaver) -> None:
    where = put(saver, config())
    saver.put_writes(where, [("x", 3), ("y", 4)], "task-a", "path-2")
    saver.put_writes(where, [("x", 1)], "task-z", "path-1")
    saver.put_writes(where, [("x", 2)], "task-y", "path-2")
    found = saver.get_tuple(where)
    assert found is not None
    assert found.pending_writes == [
        ("task-z", "x", 1), ("task-a", "x", 3), ("task-a", "y", 4), ("task-y", "x", 2),
    ]  # fmt: skip


def test_many_tasks_write_at_once_and_none_is_lost(saver: HoldfastSaver) -> None:
    where = put(saver, config())
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: saver.put_writes(where, [("x", n), ("y", -n)], f"task-{n:02}"), range(40)))
    found = saver.get_tuple(where)
    assert found is not None
    assert found.pending_writes == [
        write for n in range(40) for write in ((f"task-{n:02}", "x", n), (f"task-{n:02}", "y", -n))
    ]


def test_first_ordinary_write_wins_and_last_special_one(saver: HoldfastSaver) -> None:
    where = put(saver, config())
    for value in ("first", "second"):
        saver.put_writes(where, [("x", value)], "task")
        saver.put_writes(where, [("__resume__", value)], "task")
    found = saver.get_tuple(where)
    assert found is not None
    assert set(found.pending_writes or ()) == {("task", "x", "first"), ("task", "__resume__", "second")}


def test_one_can_save_load_and_delete_in_the_midst_of_listing(saver: HoldfastSaver) -> None:
    where = config()
    for number in range(12):
        where = put(saver, where, n=number)
    seen = []
    for each in saver.list(config()):
        seen.append(each.checkpoint["channel_values"]["n"])
        where = put(saver, where, n=100)
        assert saver.get_tuple(each.config) is not None
        if each.checkpoint["channel_values"]["n"] == 5:
            assert each.parent_config is not None
            saver.states.delete("t", each.parent_config["configurable"]["checkpoint_id"])
    assert seen == [11, 10, 9, 8, 7, 6, 5, 3, 2, 1, 0]


def test_newest_has_the_greatest_id_in_any_save_order(open_saver: Open) -> None:
    with open_saver() as saver:
        made = [empty_checkpoint() | {"id": str(uuid6(clock_seq=-2))} for _ in range(20)]
        for each in reversed(made):
            saver.put(config(), each, {"source": "loop", "step": 1}, {})
        newest = [each["id"] for each in reversed(made)]
        found = saver.get_tuple(config())
        assert found is not None and found.checkpoint["id"] == newest[0]
        assert ids(saver) == newest
        assert ids(saver, before=config("t", newest[3]), limit=2) == newest[4:6]
        saver.states.delete("t", newest[0])
        found = saver.get_tuple(config())
        assert found is not None and found.checkpoint["id"] == newest[1]


def test_running_graph_cannot_resurrect_a_deleted_thread(saver: HoldfastSaver) -> None:
    where = put(saver, config(), x=1)
    saver.delete_thread("t")
    with pytest.raises(Conflict):
        put(saver, where, x=2)
    with pytest.raises(Conflict):
        saver.put_writes(where, [("x", 3)], "task")
    assert saver.get_tuple(config()) is None
    put(saver, config(), x=4)
    assert len(ids(saver)) == 1


def test_a_copied_thread_has_everything_and_a_life_of_its_own(saver: HoldfastSaver) -> None:
    root = put(saver, config(), x=1)
    saver.put_writes(root, [("x", 2)], "task")
    child = put(saver, config(namespace="child:1"), y=1)
    saver.copy_thread("t", "u")
    assert [each.checkpoint for each in saver.list({"configurable": {"thread_id": "u"}})] == [
        each.checkpoint for each in saver.list({"configurable": {"thread_id": "t"}})
    ]
    copied = saver.get_tuple(config("u"))
    assert copied is not None and copied.pending_writes == [("task", "x", 2)]
    saver.delete_thread("t")
    assert saver.get_tuple(config("u", child["configurable"]["checkpoint_id"], "child:1")) is not None


def test_unregistered_class_is_refused_by_path(saver: HoldfastSaver) -> None:
    class Cart:
        pass

    with pytest.raises(HoldfastError, match=r"channel:carts'\]\[1\]"):
        put(saver, config(), carts=[1, Cart()])
    assert saver.get_tuple(config()) is None


def _extend(items: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*items, *(item for write in writes for item in write)]


class Deltas(TypedDict):
    items: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=4)]
    count: Annotated[int, operator.add]


def delta_graph(saver: HoldfastSaver) -> Any:
    builder = StateGraph(Deltas)
    builder.add_node("step", lambda state: {"items": [len(state["items"])], "count": 1})
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.filterwarnings("ignore")  # LangGraph says of delta channels that they are in beta
@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_pruning_leaves_delta_channels_as_they_were(saver: HoldfastSaver, turns: int) -> None:
    graph = delta_graph(saver)
    for _ in range(turns):
        graph.invoke({"items": ["in"], "count": 1}, config())
    graph.update_state(config(), {"items": ["by hand"]})
    before = graph.get_state(config()).values
    assert len(before["items"]) == 2 * turns + 1
    total = len(ids(saver))
    saver.prune(["t"])
    assert graph.get_state(config()).values == before
    assert len(ids(saver)) < total or turns == 1
    graph.invoke({"items": ["more"], "count": 1}, config())
    assert graph.get_state(config()).values["items"][: 2 * turns + 2] == [*before["items"], "more"]


def test_delta_history_ends_at_its_seed(
    saver: HoldfastSaver,
) -> None:
    root = put(saver, config())
    saver.put_writes(root, [("d", "old")], "task")
    seed = put(saver, root, d=["seed"])
    saver.put_writes(seed, [("d", "of the seed"), ("other", 1)], "task")
    middle = put(saver, seed, other=0)
    saver.put_writes(middle, [("d", "b")], "task-2", "path-2")
    saver.put_writes(middle, [("d", "a")], "task-9", "path-1")
    target = put(saver, middle)
    saver.put_writes(target, [("d", "pending")], "task")
    found = asyncio.run(saver.aget_delta_channel_history(config=target, channels=["d", "none"]))
    assert found["d"]["seed"] == ["seed"]
    assert [write[2] for write in found["d"]["writes"]] == ["of the seed", "a", "b"]
    assert found["none"] == {"writes": []}
    assert saver.get_delta_channel_history(config=target, channels=[]) == {}


@pytest.mark.filterwarnings("ignore")  # LangGraph says of delta channels that they are in beta
def test_runs_needed_by_a_later_delta_channel_are_kept(saver: HoldfastSaver) -> None:
    graph = delta_graph(saver)
    for run in ("r1", "r2"):
        where = config()
        where["configurable"]["run_id"] = run
        graph.invoke({"items": ["in"], "count": 1}, where)
    before = graph.get_state(config()).values
    assert len(before["items"]) == 4
    with pytest.raises(Refused, match="'t'") as refused:
        saver.delete_for_runs(["r1"])
    assert refused.value.hint
    assert graph.get_state(config()).values == before
    saver.delete_for_runs(["r1", "r2"])
    assert ids(saver) == []


def test_sessions_that_are_no_graphs_are_left_alone(saver: HoldfastSaver) -> None:
    put(saver, config())
    saver.states.save(point("zzz", session_id="theirs"))
    assert [each.config["configurable"]["thread_id"] for each in saver.list(None)] == ["t"]
    assert list(saver.list(None, filter={"source": "other"})) == []
    with pytest.raises(Refused, match="not saved by a graph"):
        saver.get_tuple(config("theirs"))


@pytest.mark.parametrize("limit", [-1, 1.5, "3"])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    with HoldfastSaver.from_url("memory://") as saver:
        put(saver, config())
        assert len(ids(saver, limit=10**9)) == 1
        assert ids(saver, limit=0) == []
        with pytest.raises(Refused, match="limit"):
            ids(saver, limit=limit)


WRITER = """
import sys
from langgraph.checkpoint.base import empty_checkpoint
from holdfast.adapters.langgraph import HoldfastSaver

where = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
first = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "first"}}
with HoldfastSaver.from_url(sys.argv[1], **{sys.argv[2]: sys.argv[3]} if sys.argv[2] else {}) as saver:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(25):
        found = saver.get_tuple(where)
        made = {**empty_checkpoint(), "channel_values": {"texts": [sys.argv[4]] * number}}
        saver.put(found.config, made, {"source": "loop", "step": number}, {})
        saver.put_writes(first, [("x", sys.argv[4])], f"task-{number}")
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_two_processes_on_one_thread_lose_nothing_and_agree(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """P9: each remembers what it saw last, and sees what the other saved since."""
    option, own = {"sqlite": "", "postgres": "schema", "redis": "prefix"}[kind], "two processes"
    url = (
        f"sqlite:///{tmp_path}/a.db?synchronous=normal" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    )
    with HoldfastSaver.from_url(url, **({option: own} if option else {})) as saver:
        put(saver, config())
        seen = [""]
        command = [sys.executable, "-c", WRITER, url, option, own]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with contextlib.ExitStack() as stack:
            workers = [
                stack.enter_context(subprocess.Popen([*command, name], text=True, env=env, **pipes))  # type: ignore[call-overload]
                for name in "ab"
            ]
            for worker in workers:
                worker.stdout.readline()
            for worker in workers:
                worker.stdin.write("go\n")
                worker.stdin.flush()
            while any(worker.poll() is None for worker in workers):
                found = saver.get_tuple(config())
                assert found is not None
                seen.append(found.checkpoint["id"])
        assert [worker.returncode for worker in workers] == [0, 0]
        assert seen == sorted(seen)
        everything = ids(saver)
        assert len(everything) == 51
        newest = saver.get_tuple(config())
        assert newest is not None and newest.checkpoint["id"] == everything[0]
        writes = saver.states.writes([Place("t", "", "first")])[Place("t", "", "first")]
        assert len(writes) == 25
        assert {write.value for write in writes} <= {"a", "b"}
        assert saver.states.verify().ok
