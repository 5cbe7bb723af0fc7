"""Checkpoints in the Claude Agent SDK, with a transport that speaks as the agent's program does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ResultMessage, Transport

from holdfast import HoldfastError, Workspace
from holdfast.adapters.claude_agent import ClaudeAgentCheckpoints

from .scenes import WRITES, AdapterContract

pytestmark = pytest.mark.extras


class _Agent(Transport):
    """Stands in for the program: asks the hooks before each tool, runs the tool unless it is denied."""

    def __init__(self, project: Path, calls: Sequence[tuple[str, dict[str, Any]]], **said: Any) -> None:
        self.project = project
        self.calls = calls
        self.said = {"agent_type": "kelp", "session_id": "c1", "prompt_id": "p1", **said}
        self.answers: list[dict[str, Any]] = []
        self.hooks: dict[str, Any] = {}
        self._to_sdk: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._from_sdk: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._playing: asyncio.Task[None] | None = None

    async def connect(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        await self._to_sdk.put(None)

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            self.hooks = message["request"].get("hooks") or {}
            answer = {"hook_on_failure_supported": True, "hooks_applied": True, "commands": []}
            done = {"subtype": "success", "request_id": message["request_id"], "response": answer}
            await self._to_sdk.put({"type": "control_response", "response": done})
        elif message["type"] == "control_response":
            await self._from_sdk.put(message["response"])
        else:
            self._playing = asyncio.create_task(self._play())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._to_sdk.get()) is not None:
            yield message

    async def _play(self) -> None:
        for number, (tool, arguments) in enumerate(self.calls):
            given = {
                **self.said,
                "hook_event_name": "PreToolUse",
                "transcript_path": "",
                "cwd": str(self.project),
                "tool_name": tool,
                "tool_input": arguments,
                "tool_use_id": f"call-{number}",
            }
            denied = False
            for matcher in self.hooks["PreToolUse"]:
                for callback in matcher["hookCallbackIds"]:
                    answer = await self._ask(callback, given, f"call-{number}")
                    self.answers.append(answer)
                    denied |= answer.get("hookSpecificOutput", {}).get("permissionDecision") == "deny"
            if tool == "write" and not denied:
                (self.project / "a.txt").write_text(arguments["text"])
        result = {"duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1, "session_id": "c1"}
        await self._to_sdk.put({"type": "result", "subtype": "success", "result": "done", **result})

    async def _ask(self, callback: str, given: dict[str, Any], tool_use: str) -> dict[str, Any]:
        asked = {"subtype": "hook_callback", "callback_id": callback, "input": given, "tool_use_id": tool_use}
        await self._to_sdk.put({"type": "control_request", "request_id": f"r-{tool_use}", "request": asked})
        response = await self._from_sdk.get()
        assert response["subtype"] == "success", response
        answer: dict[str, Any] = response["response"]
        return answer


async def _run(checkpoints: ClaudeAgentCheckpoints, agent: _Agent, **hooks: Any) -> _Agent:
    options = ClaudeAgentOptions(hooks=checkpoints.hooks(hooks))
    async with ClaudeSDKClient(options, transport=agent) as client:
        await client.query("go")
        results = [message async for message in client.receive_response() if isinstance(message, ResultMessage)]
    assert [result.result for result in results] == ["done"]
    return agent


async def _play(
    checkpoints: ClaudeAgentCheckpoints, project: Path, calls: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    agent = await _run(checkpoints, _Agent(project, calls))
    denied = [answer for answer in agent.answers if "hookSpecificOutput" in answer]
    if denied:  # the SDK's way to keep a tool from running
        assert len(denied) == len(calls)
        raise HoldfastError(denied[0]["hookSpecificOutput"]["permissionDecisionReason"])


class TestClaudeAgent(AdapterContract):
    make = ClaudeAgentCheckpoints
    play = staticmethod(_play)


def test_the_session_turn_and_sub_agent_are_in_the_record(project: Path, ws: Workspace) -> None:
    asyncio.run(_run(ClaudeAgentCheckpoints(project), _Agent(project, WRITES[:1], agent_id="sub-7")))
    [made] = ws.list()
    assert (made.session, made.metadata["turn"], made.metadata["agent"]) == ("c1", "p1", "sub-7")


def test_without_a_kind_of_agent_the_actor_is_claude(project: Path, ws: Workspace) -> None:
    asyncio.run(_run(ClaudeAgentCheckpoints(project), _Agent(project, WRITES[:1], agent_type=None, prompt_id=None)))
    [made] = ws.list()
    assert made.metadata["saved_by"] == "claude" and "turn" not in made.metadata


def test_the_user_is_told_of_a_save_that_failed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))  # a home folder is refused as a workspace
    agent = asyncio.run(_run(ClaudeAgentCheckpoints(project), _Agent(project, [("\x1b[31mwrite", {})])))
    [answer] = agent.answers
    assert "home folder" in answer["systemMessage"] and answer["systemMessage"].isprintable()


def test_the_hooks_of_the_program_stay(project: Path, ws: Workspace) -> None:
    seen: list[str] = []

    async def own(given: Any, tool_use: str | None, context: Any) -> Any:
        seen.append(given["tool_name"])
        return {}

    agent = _Agent(project, WRITES)
    asyncio.run(_run(ClaudeAgentCheckpoints(project), agent, PreToolUse=[HookMatcher("write", [own])], Stop=[]))
    assert seen == ["write", "look", "write"]
    assert [matcher["matcher"] for matcher in agent.hooks["PreToolUse"]] == [None, "write"]
    assert agent.hooks["PreToolUse"][0]["timeout"] == 600
    assert len(ws.list()) == 2


@pytest.mark.parametrize(("strict", "then"), [(True, "block"), (False, None)])
def test_strict_hook_that_is_cut_off_blocks_the_tool(strict: bool, then: str | None, project: Path) -> None:
    [matcher] = ClaudeAgentCheckpoints(project, strict=strict).hooks()["PreToolUse"]
    assert matcher.on_failure == then
