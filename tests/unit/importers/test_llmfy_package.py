"""What the real llmfy writes."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any, TypedDict

import pytest
from llmfy import END, START, FlowEngine
from llmfy.flow_engine.checkpointer.redis_checkpointer import RedisCheckpointer
from llmfy.flow_engine.checkpointer.sql_checkpointer import SQLCheckpointer

from unit.importers.scenes import bytes_and_times, run

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore:Call to deprecated close")]


@dataclasses.dataclass
class User:
    name: str


class Notes(TypedDict, total=False):
    step: int
    user: Any


def engine(checkpointer: Any) -> FlowEngine:
    flow = FlowEngine(Notes, checkpointer=checkpointer, types=[User])

    async def one(state: Notes) -> dict[str, Any]:
        return {"step": state.get("step", 0) + 1, "user": User("Ada")}

    flow.add_node("one", one)
    flow.add_edge(START, "one")
    flow.add_edge("one", END)
    return flow.build()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def test_real_flow_continues(tmp_path: Path, request: pytest.FixtureRequest, compress: bool, store: str) -> None:
    from holdfast.compat.llmfy import checkpointers

    (tmp_path / "in").mkdir()
    if store == "sqlite":
        url = f"sqlite+aiosqlite:///{tmp_path}/in/llmfy.db"
        make = lambda: SQLCheckpointer(url, compress=compress)  # noqa: E731
        source = url
    else:
        server, prefix = request.getfixturevalue("redis_url"), f"import_{tmp_path.name}:"
        make = lambda: RedisCheckpointer(server, prefix=prefix, compress=compress)  # noqa: E731
        source = f"{server}?prefix={prefix}"
    target = f"sqlite:///{tmp_path}/out.db"

    async def work() -> Any:
        theirs = make()
        await engine(theirs).invoke({"step": 1}, session_id="s1")
        wanted = await theirs.list("s1")
        await theirs.close()
        return wanted

    wanted = asyncio.run(work())
    before = bytes_and_times(tmp_path / "in")
    done = run(source, target)
    assert (done.added, done.not_carried) == (len(wanted), ())
    assert bytes_and_times(tmp_path / "in") == before

    async def after() -> tuple[Any, Any]:
        ours = checkpointers.SQLCheckpointer(target)
        found = await ours.list("s1")
        state = await engine(ours).get_state("s1")
        await ours.close()
        return found, state

    found, state = asyncio.run(after())
    assert [each.state for each in found] == [each.state for each in wanted]
    assert [each.metadata.checkpoint_id for each in found] == [each.metadata.checkpoint_id for each in wanted]
    assert state["user"] == User("Ada")
