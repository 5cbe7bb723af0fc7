"""Checkpoints in a Pydantic AI agent, driven by the package's own function model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast import Workspace
from holdfast.adapters.pydantic_ai import PydanticAICheckpoints

from .scenes import WRITES, AdapterContract

pytestmark = pytest.mark.extras


async def _play(checkpoints: PydanticAICheckpoints, project: Path, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    waiting = list(enumerate(calls))

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not waiting:
            return ModelResponse(parts=[TextPart("done")])
        number, (name, arguments) = waiting.pop(0)
        return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id=f"call-{number}")])

    agent = Agent(FunctionModel(model), name="kelp", capabilities=[checkpoints])

    @agent.tool_plain
    def write(text: str) -> str:
        (project / "a.txt").write_text(text)
        return "ok"

    @agent.tool_plain
    def look() -> str:
        return (project / "a.txt").read_text()

    assert (await agent.run("go", conversation_id="c1")).output == "done"


class TestPydanticAI(AdapterContract):
    make = PydanticAICheckpoints
    play = staticmethod(_play)


def test_the_conversation_is_the_session_and_the_run_the_turn(project: Path, ws: Workspace) -> None:
    import asyncio

    checkpoints = PydanticAICheckpoints(project)
    asyncio.run(_play(checkpoints, project, WRITES))
    newest, oldest = ws.list()
    assert newest.session == oldest.session == "c1"
    assert newest.metadata["turn"] == oldest.metadata["turn"]
    assert (oldest.step, newest.step) == (1, 2)
