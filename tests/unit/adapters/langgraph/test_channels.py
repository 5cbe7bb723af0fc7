"""What a channel holds at a checkpoint is what is stored of it, however late the saver gets to it."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, LastValue, NamedBarrierValue, Topic
from langgraph.channels.named_barrier_value import NamedBarrierValueAfterFinish
from langgraph.graph import END, START, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}, "recursion_limit": 100, "max_concurrency": 200}
ROUNDS = 3
RUNS = 40


class Late(HoldfastSaver):
    """Saves nothing until the graph has run to its end: a disk that is slow."""

    gate: threading.Event | None = None

    def put(self, *arguments: Any) -> Any:
        if self.gate is not None:
            assert self.gate.wait(60)
        return super().put(*arguments)


def extend(state: list[str], writes: Any) -> list[str]:
    for write in writes:
        state.extend(write)
    return state


class State(TypedDict):
    rounds: int
    notes: Annotated[list[str], operator.add]
    merged: Annotated[dict[str, int], operator.ior]
    topic: Annotated[list[str], Topic(str, accumulate=True)]
    delta: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=1)]
    changed: list[str]


def builder(at_end: Callable[[], None]) -> StateGraph[Any]:
    """Branches of one, two and three steps that are waited for, and round again."""

    def node(name: str) -> Any:
        def run(state: State) -> dict[str, Any]:
            return {"notes": [name], "merged": {name: len(state["notes"])}, "topic": [name], "delta": [name]}

        return run

    def begin(state: State) -> dict[str, Any]:
        changed = state.get("changed", [])
        changed.append(f"round {state['rounds']}")  # in place, as one should not
        return {"rounds": state["rounds"] + 1, "changed": changed}

    def done(state: State) -> str:
        if state["rounds"] < ROUNDS:
            return "begin"
        at_end()
        return END

    graph = StateGraph(State)
    graph.add_node("begin", begin)
    for name in ("a", "b1", "b", "c1", "c2", "c", "join"):
        graph.add_node(name, node(name))
    graph.add_node("last", node("last"), defer=True)
    for before, after in (
        (START, "begin"), ("begin", "a"), ("begin", "b1"), ("begin", "c1"),
        ("b1", "b"), ("c1", "c2"), ("c2", "c"), (["a", "b", "c"], "join"), (["a", "join"], "last"),
    ):  # fmt: skip
        graph.add_edge(before, after)
    graph.add_conditional_edges("join", done, ["begin", END])
    return graph


def run(saver: Late, durability: str, *, in_loop: bool, late: bool = False) -> list[Any]:
    gate = threading.Event()
    saver.gate = gate if late else None
    graph = builder(gate.set).compile(checkpointer=saver)
    begin: Any = {"rounds": 0, "notes": [], "merged": {}}
    if in_loop:
        asyncio.run(graph.ainvoke(begin, THREAD, durability=durability))
    else:
        graph.invoke(begin, THREAD, durability=durability)
    return [(each.metadata["step"], each.checkpoint["channel_values"]) for each in saver.list(THREAD)]


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    with Late.from_url("memory://") as saver:
        history = run(saver, "sync", in_loop=False)
    assert any({"a"} in values.values() for _, values in history), "no barrier was ever half full"
    return history


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/state.db?synchronous=normal"


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])
class TestHistory:
    def test_a_late_save_stores_its_own_step(self, url: str, in_loop: bool, expected: list[Any]) -> None:
        with Late.from_url(url) as saver:
            assert run(saver, "async", in_loop=in_loop, late=True) == expected

    @pytest.mark.slow
    @pytest.mark.parametrize("durability", ["async", "sync", "exit"])
    def test_is_the_same_in_every_run(self, durability: str, in_loop: bool, expected: list[Any]) -> None:
        wanted = expected[:1] if durability == "exit" else expected
        wrong = 0
        for _ in range(RUNS):
            with Late.from_url("memory://") as saver:
                wrong += run(saver, durability, in_loop=in_loop) != wanted
        assert wrong == 0


@pytest.mark.parametrize(
    ("channel", "updates"),
    [
        (NamedBarrierValue(str, {"a", "b"}), (["a"], ["b"])),
        (NamedBarrierValueAfterFinish(str, {"a", "b"}), (["a"], ["b"])),
        (Topic(str, accumulate=True), (["a"], ["b"])),
        (BinaryOperatorAggregate(dict, operator.ior), ([{"a": 1}], [{"b": 1}])),
        (BinaryOperatorAggregate(list, operator.iadd), ([[1]], [[2]])),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, tuple) else "",
)
def test_an_update_leaves_what_was_handed_over(channel: Any, updates: Any) -> None:
    HoldfastSaver.from_url("memory://").close()
    first, second = updates
    channel.update(first)
    handed_over, said = channel.checkpoint(), repr(channel.checkpoint())
    channel.update(second)
    assert repr(handed_over) == said != repr(channel.checkpoint())


def test_channels_are_wrapped_once() -> None:
    HoldfastSaver.from_url("memory://").close()
    once = LastValue.checkpoint
    HoldfastSaver.from_url("memory://").close()
    assert LastValue.checkpoint is once
