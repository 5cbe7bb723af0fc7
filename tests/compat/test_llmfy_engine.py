"""llmfy's own flow engine, of the real package, with our checkpointers passed in."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from llmfy import END, START, FlowEngine

from .names import names_of

pytestmark = pytest.mark.extras

ours = names_of("llmfy")


def append(old: list[str] | None, new: list[str]) -> list[str]:
    return (old or []) + new


class Notes(TypedDict, total=False):
    log: Annotated[list[str], append]
    step: int
    user: Any


@dataclasses.dataclass
class User:
    name: str


Open = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "memory":
        return lambda: ours.InMemoryCheckpointer()
    if request.param == "sqlite":
        return lambda: ours.SQLCheckpointer(f"sqlite:///{tmp_path / 'state.db'}")
    url = request.getfixturevalue("redis_url")
    return lambda: ours.RedisCheckpointer(url, prefix=f"engine_{tmp_path.name}:")


def build(checkpointer: Any, *, fails: list[str] | None = None, types: list[type] | None = None) -> FlowEngine:
    """A flow of three nodes; a node fails as often as it is named in `fails`."""
    flow = FlowEngine(Notes, checkpointer=checkpointer, types=types)

    def node(name: str) -> Callable[[Notes], Any]:
        async def run(state: Notes) -> dict[str, Any]:
            if fails and name in fails:
                fails.remove(name)
                raise RuntimeError(f"{name} fails")
            return {"log": [name], "step": state.get("step", 0) + 1}

        return run

    for name in ("one", "two", "three"):
        flow.add_node(name, node(name))
    for start, end in ((START, "one"), ("one", "two"), ("two", "three"), ("three", END)):
        flow.add_edge(start, end)
    return flow.build()


async def _in(opened: Open, use: Callable[[Any], Any]) -> None:
    checkpointer = opened()
    await use(checkpointer)
    await checkpointer.close()


def test_continuation_merges_through_reducers(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer)
        first = await flow.invoke({"log": [], "step": 0}, session_id="user-1")
        assert first["log"] == ["one", "two", "three"] and first["step"] == 3
        second = await flow.invoke({"log": ["again"]}, session_id="user-1")
        assert second["log"] == ["one", "two", "three", "again", "one", "two", "three"] and second["step"] == 6

    asyncio.run(_in(opened, use))


def test_state_history_and_reset(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer)
        assert await flow.get_state("u") is None
        await flow.invoke({"log": []}, session_id="u")
        assert (await flow.get_state("u"))["step"] == 3
        listed = await flow.list_checkpoints("u")
        assert [each.metadata.node for each in listed] == ["three", "two", "one"]
        assert [each.metadata.prev_node for each in listed] == ["two", "one", START]
        assert len({each.metadata.run_id for each in listed}) == 1
        chosen = await flow.get_checkpoint("u", listed[1].metadata.checkpoint_id)
        assert chosen.state["step"] == 2
        await flow.reset_session("u")
        assert await flow.get_state("u") is None
        assert (await flow.invoke({"log": []}, session_id="u"))["step"] == 3

    asyncio.run(_in(opened, use))


def test_a_flow_that_failed_twice_goes_on_where_it_was(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer, fails=["three", "three"])
        for _ in range(2):
            with pytest.raises(Exception, match="three fails"):
                await flow.invoke({"log": []}, session_id="u")
        assert (await flow.invoke({"log": []}, session_id="u"))["log"] == ["one", "two", "three"]

    asyncio.run(_in(opened, use))


def test_concurrent_sessions_stay_apart(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer)
        await asyncio.gather(*(flow.invoke({"log": [f"u{n}"]}, session_id=f"u{n}") for n in range(8)))
        for n in range(8):
            assert (await flow.get_state(f"u{n}"))["log"] == [f"u{n}", "one", "two", "three"]

    asyncio.run(_in(opened, use))


def test_streaming_saves_each_step(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer)
        async for _ in flow.stream({"log": []}, session_id="u"):
            pass
        assert len(await flow.list_checkpoints("u")) == 3

    asyncio.run(_in(opened, use))


def test_registered_classes_come_back(opened: Open) -> None:
    async def use(checkpointer: Any) -> None:
        flow = build(checkpointer, types=[User])
        await flow.invoke({"log": [], "user": User("kelp")}, session_id="u")
        assert (await flow.get_state("u"))["user"] == User("kelp")

    asyncio.run(_in(opened, use))
