"""Delta channels, which LangGraph stores as a snapshot now and then and the writes in between: nothing empties one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph

from holdfast import Refused
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.retention import Policy
from holdfast.testing.flow_contract import point

from .savers import opener

pytestmark = pytest.mark.filterwarnings("ignore")  # LangGraph says of delta channels that they are in beta
T: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HoldfastSaver]:
    with opener(request.param, request, tmp_path)() as saver:
        yield saver


def _extend(items: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*items, *(item for write in writes for item in write)]


class Two(TypedDict):
    often: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=3)]
    seldom: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=2)]
    count: Annotated[int, operator.add]


def graph_of(saver: HoldfastSaver) -> Any:
    """Each turn writes to one channel twice and to the other once: snapshots of both at once are seldom."""

    def step(state: Two) -> dict[str, Any]:
        return {"often": [state["count"]], "seldom": [state["count"]], "count": 1}

    builder = StateGraph(Two)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    builder.add_edge("step", END)
    return builder.compile(checkpointer=saver)


def told(graph: Any) -> dict[str, Any]:
    """The values of each checkpoint, by its id."""
    history = graph.get_state_history({"configurable": {"thread_id": "t"}})
    return {each.config["configurable"]["checkpoint_id"]: each.values for each in history}


WAYS: dict[str, Callable[[HoldfastSaver], Any]] = {
    "the saver": lambda saver: saver.prune(["t"]),
    "a policy": lambda saver: saver.states.prune(Policy(keep_last_per_session=2)),
    "a policy of every third": lambda saver: saver.states.prune(Policy(keep_every=3)),
    "a policy for one session": lambda saver: saver.states.prune(Policy(keep_last=0), "t"),
}


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_prunes_what_is_left_is_what_it_was(saver: HoldfastSaver, way: str, durability: str) -> None:
    graph = graph_of(saver)
    gone = 0
    for turn in range(8):
        graph.invoke({"often": [f"in {turn}"], "count": 1}, T, durability=durability)
        before = told(graph)
        WAYS[way](saver)
        after = told(graph)
        assert after.items() <= before.items()
        assert max(after) == max(before)
        gone += len(before) - len(after)
    assert gone
    assert len(graph.get_state(T).values["often"]) == 16


def test_delta_channel_parts_survive_deletes_and_forks(saver: HoldfastSaver) -> None:
    graph = graph_of(saver)
    graph.invoke({"often": ["in"], "count": 1}, T)
    before = told(graph)
    with pytest.raises(Refused, match="needs"):
        saver.states.delete("t", min(before))
    with pytest.raises(Refused, match="history"):
        saver.states.fork("t", into="u")
    assert told(graph) == before
    saver.states.fork("t", into="u", history=True)
    assert graph.get_state({"configurable": {"thread_id": "u"}}).values == graph.get_state(T).values


def test_delete_during_a_prune_removes_nothing_else(saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(saver)
    graph.invoke({"often": ["in"], "count": 1}, T)
    before = told(graph)
    load = saver.states.load

    def late(session: str, checkpoint_id: str, **more: Any) -> Any:
        monkeypatch.undo()
        assert checkpoint_id == max(before)
        saver.states.delete(session, checkpoint_id)
        return load(session, checkpoint_id, **more)

    monkeypatch.setattr(saver.states, "load", late)
    saver.prune(["t"])
    del before[max(before)]
    assert told(graph) == before


def test_save_during_a_prune_keeps_its_parts(saver: HoldfastSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(saver)
    for turn in range(8):
        graph.invoke({"often": [f"in {turn}"], "count": 1}, T, durability="sync")
    old = sorted(told(graph))[2]
    delete, values = saver.states.store.delete, []

    def late(*args: Any, **more: Any) -> int:
        monkeypatch.undo()
        config = graph.update_state({"configurable": {**T["configurable"], "checkpoint_id": old}}, {"count": 1})
        values.append(graph.get_state(config).values)
        return delete(*args, **more)

    monkeypatch.setattr(saver.states.store, "delete", late)
    saver.prune(["t"])
    assert [graph.get_state(T).values] == values


def test_checkpoint_that_is_its_own_parent_terminates(saver: HoldfastSaver) -> None:
    checkpoint = empty_checkpoint() | {"channel_versions": {"x": 1}}
    config: Any = {"configurable": {**T["configurable"], "checkpoint_id": checkpoint["id"]}}
    saver.put(config, checkpoint, {"counters_since_delta_snapshot": {"x": (1, 1)}}, {})  # type: ignore[arg-type]
    saver.prune(["t"])
    assert len(list(saver.list(T))) == 1


def test_a_session_that_is_of_no_graph_is_not_pruned_as_one(saver: HoldfastSaver) -> None:
    for name in ("a", "b"):
        saver.states.save(point(name))
    with pytest.raises(Refused, match="not saved by a graph"):
        saver.prune(["s"])
    assert len(saver.states.metadata("s")) == 2
