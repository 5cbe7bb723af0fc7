"""Checkpoints in a run of the OpenAI Agents SDK, driven by the package's own scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, UserError, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast import Workspace
from holdfast.adapters.openai_agents import OpenAIAgentsCheckpoints

from .scenes import AdapterContract

pytestmark = pytest.mark.extras


def _agent(project: Path, calls: Sequence[tuple[str, dict[str, Any]]], name: str = "kelp") -> Agent[Any]:
    @function_tool
    def write(text: str) -> str:
        (project / "a.txt").write_text(text)
        return "ok"

    @function_tool
    def look() -> str:
        return (project / "a.txt").read_text()

    steps = [
        [function_call(tool, json.dumps(arguments), call_id=f"call-{number}")]
        for number, (tool, arguments) in enumerate(calls)
    ]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    return Agent(name=name, model=model, tools=[write, look])


async def _play(
    checkpoints: OpenAIAgentsCheckpoints, project: Path, calls: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    agent = _agent(project, calls)
    try:
        done = await Runner.run(agent, "go", hooks=checkpoints, run_config=RunConfig(tracing_disabled=True))
    except UserError as error:  # what the SDK makes of an error in a hook
        assert error.__cause__ is not None
        raise error.__cause__ from None
    assert done.final_output == "done"


class TestOpenAIAgents(AdapterContract):
    make = OpenAIAgentsCheckpoints
    play = staticmethod(_play)


def test_arguments_that_are_no_object_are_none(project: Path, ws: Workspace) -> None:
    asked = []

    async def scene() -> None:
        checkpoints = OpenAIAgentsCheckpoints(project, when=lambda tool, arguments: bool(asked.append(arguments)))
        agent = _agent(project, [])
        assert isinstance(agent.model, ScriptedModel)
        script = [[function_call("look", text, call_id=f"{at}")] for at, text in enumerate(("{", "[1]", ""))]
        agent.model = ScriptedModel([*script, [assistant_message("done")]])
        await Runner.run(agent, "go", hooks=checkpoints, run_config=RunConfig(tracing_disabled=True))
        await checkpoints.close()

    asyncio.run(scene())
    assert asked and all(arguments == {} for arguments in asked)
