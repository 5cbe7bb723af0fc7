"""Checkpoints in a PraisonAI agent, driven by the package's own scripted model."""

from __future__ import annotations

import asyncio
import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

with mock.patch.multiple(warnings, warn=warnings.warn, warn_explicit=warnings.warn_explicit):
    from praisonaiagents import Agent  # it replaces both for the whole process
    from praisonaiagents.hooks import HookEvent, HookResult

from openai.types.chat import ChatCompletion

from holdfast import Workspace
from holdfast.adapters.praisonai import PraisonAICheckpoints

from .scenes import WRITES, AdapterContract

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("no_telemetry")]


@pytest.fixture
def no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PRAISONAI_TELEMETRY_DISABLED", "PRAISONAI_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "true")


def _agent(checkpoints: PraisonAICheckpoints, project: Path, calls: Sequence[tuple[str, dict[str, Any]]]) -> Agent:
    def write(text: str) -> str:
        """Write a.txt."""
        (project / "a.txt").write_text(text)
        return "ok"

    def look() -> str:
        """Read a.txt."""
        return (project / "a.txt").read_text()

    agent = Agent(
        name="kelp", instructions="Work.", model="scripted", api_key="none", tools=[write, look], hooks=checkpoints
    )
    agent._openai_client._async_client = ScriptedClient(calls)
    return agent


class ScriptedClient:
    """A client of OpenAI's library that asks no server: it calls these tools, one after the other, and ends."""

    def __init__(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._calls = list(enumerate(calls))
        self.last_request: dict[str, Any] = {}
        self.chat = self.completions = self

    async def create(self, **request: Any) -> ChatCompletion:
        self.last_request = request
        message: dict[str, Any] = {"role": "assistant", "content": "done"}
        if self._calls:
            number, (name, arguments) = self._calls.pop(0)
            call = {"name": name, "arguments": json.dumps(arguments)}
            message |= {"content": None, "tool_calls": [{"id": f"call-{number}", "type": "function", "function": call}]}
        choice = {
            "index": 0,
            "finish_reason": "tool_calls" if message["content"] is None else "stop",
            "message": message,
        }
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return ChatCompletion.model_validate(answer)


async def _play(checkpoints: PraisonAICheckpoints, project: Path, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    assert await _agent(checkpoints, project, calls).achat("go") == "done"


class TestPraisonAI(AdapterContract):
    make = PraisonAICheckpoints
    play = staticmethod(_play)

    def test_who_saved_before_what_is_in_the_record(self, project: Path, ws: Workspace) -> None:
        """As for the others, except that PraisonAI does not say which call of the model it is."""
        asyncio.run(_play(PraisonAICheckpoints(project, session="s1"), project, WRITES[:1]))
        [made] = ws.list()
        assert (made.actor, made.session, made.metadata["before"]) == (None, "s1", "write")
        assert made.metadata["saved_by"] == "kelp" and "tool_use" not in made.metadata

    def test_if_strict_a_save_that_fails_keeps_the_tool_from_running(self, project: Path, ws: Workspace) -> None:
        """PraisonAI raises nothing: it tells the agent that the tool was blocked."""

        async def scene() -> None:
            checkpoints = PraisonAICheckpoints(project, strict=True, on_failure=lambda tool, error: 1 / 0)
            await checkpoints.service.initialize()
            shutil.rmtree(ws.store)
            agent = _agent(checkpoints, project, WRITES)
            assert await agent.achat("go") == "done"
            told = agent._openai_client._async_client.last_request["messages"]
            assert "write was blocked" in next(each["content"] for each in told if each["role"] == "tool")
            await checkpoints.close()

        asyncio.run(scene())
        assert (project / "a.txt").read_text() == "0\n"


def test_a_synchronous_program_is_served_too(project: Path, ws: Workspace) -> None:
    agent = _agent(PraisonAICheckpoints(project), project, [])
    assert agent.execute_tool("write", {"text": "1\n"}) == "ok"
    assert agent.execute_tool("write", {"text": "2\n"}) == "ok"
    assert [each.message for each in reversed(ws.list())] == ["before write"] * 2
    ws.restore(ws.list()[-1].id)
    assert (project / "a.txt").read_text() == "0\n"


def test_hooks_of_the_program_run_too(project: Path, ws: Workspace) -> None:
    checkpoints = PraisonAICheckpoints(project)
    asked = []

    @checkpoints.on(HookEvent.BEFORE_TOOL)
    def veto(given: Any) -> HookResult:
        asked.append((given.tool_name, len(ws.list())))
        return HookResult.deny("no")

    asyncio.run(_play(checkpoints, project, WRITES[:1]))
    assert asked == [("write", 1)] and (project / "a.txt").read_text() == "0\n"
