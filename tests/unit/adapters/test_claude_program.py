"""The real agent program that comes with the Claude Agent SDK, in a home of its own; only the model is made up."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

from holdfast import Workspace
from holdfast.adapters.claude_agent import ClaudeAgentCheckpoints

from .messages_api import Call, served

pytestmark = [pytest.mark.agents, pytest.mark.extras]

TIME_LIMIT_S = 300  # many times what it takes; only so that a program that hangs is not waited for
PATIENT = {"CLAUDE_CODE_MCP_STARTUP_WAIT_MS": f"{TIME_LIMIT_S}000", "MCP_TIMEOUT": f"{TIME_LIMIT_S}000"}
"""A server of tools is waited for: else the program begins, and knows none of the tools of one that starts slowly."""


def test_the_real_program_saves_before_it_runs_a_command(project: Path, ws: Workspace) -> None:
    async def scene() -> None:
        checkpoints = ClaudeAgentCheckpoints(project)
        await _run(project, [_shell("echo 1 > a.txt")], hooks=checkpoints.hooks())
        assert (project / "a.txt").read_text() == "1\n"
        await checkpoints.rewind()
        assert (project / "a.txt").read_text() == "0\n"
        await checkpoints.close()

    asyncio.run(scene())
    [made] = ws.list()
    assert (made.actor, made.message, made.metadata["tool_use"]) == (None, "before Bash", "call-0")
    assert made.metadata["saved_by"] == "claude"
    assert made.session and made.metadata["turn"]


def test_strict_real_program_runs_nothing_unsaved(project: Path, ws: Workspace) -> None:
    async def scene() -> list[Any]:
        checkpoints = ClaudeAgentCheckpoints(project, strict=True)
        await checkpoints.service.initialize()
        shutil.rmtree(ws.store)
        results = await _run(project, [_shell("echo 1 > a.txt")], hooks=checkpoints.hooks())
        await checkpoints.close()
        return results

    [told] = asyncio.run(scene())
    assert (project / "a.txt").read_text() == "0\n"
    assert "Holdfast could not save a checkpoint before Bash" in str(told)


def test_the_real_program_uses_the_tools_of_the_server(project: Path, ws: Workspace) -> None:
    """It reads the configuration that the page on the server shows, and takes the schemas and the answers."""
    ws.save("good", name="good")
    server = {"command": sys.executable, "args": ["-m", "holdfast.cli", "mcp"]}  # as `holdfast`, wherever that is
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"holdfast": server}}))

    def restore(results: list[Any]) -> dict[str, Any]:
        return {"checkpoint": "good", "paths": ["a.txt"], "digest": _answer(results[-1])["digest"]}

    calls: list[Call] = [
        _shell("echo 1 > a.txt"),
        ("mcp__holdfast__checkpoint_save", lambda _: {"message": "mine"}),
        ("mcp__holdfast__checkpoint_preview", lambda _: {"checkpoint": "good", "paths": ["a.txt"]}),
        ("mcp__holdfast__checkpoint_restore", restore),
    ]
    results = asyncio.run(_run(project, calls, allowed_tools=["Bash", "mcp__holdfast"]))
    assert _answer(results[-1])["ok"], results
    assert (project / "a.txt").read_text() == "0\n"
    saved = next(each for each in ws.list() if each.message == "mine")
    assert (saved.actor, saved.metadata["saved_by"]) == (None, "claude-code")


def _shell(command: str) -> Call:
    return "Bash", lambda _: {"command": command, "description": "a command"}


def _answer(result: Any) -> dict[str, Any]:
    text = result if isinstance(result, str) else result[0]["text"]
    found: dict[str, Any] = json.loads(text)
    return found


async def _run(project: Path, calls: Sequence[Call], **options: Any) -> list[Any]:
    with served(calls) as (address, results):
        environ = {"ANTHROPIC_BASE_URL": address, "ANTHROPIC_API_KEY": "none", "DISABLE_AUTOUPDATER": "1"} | PATIENT
        chosen = ClaudeAgentOptions(
            cwd=project,
            env=environ | {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
            setting_sources=["project"],
            settings=json.dumps({"enableAllProjectMcpServers": True}),
            **{"allowed_tools": ["Bash"], **options},
        )

        async def prompts() -> Any:
            said = {"role": "user", "content": "go"}
            yield {"type": "user", "message": said, "parent_tool_use_id": None, "session_id": "s"}

        async with asyncio.timeout(TIME_LIMIT_S):
            found = [each async for each in query(prompt=prompts(), options=chosen)]
        assert [each.result for each in found if isinstance(each, ResultMessage)] == ["done"]
        return list(results)
