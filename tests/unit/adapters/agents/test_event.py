"""How events are read: who tells them, in which session, and where the conversation is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.agents.base import find_agent
from holdfast.adapters.agents.codex import trusted_hash
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.hook import HookCall, handle_event
from holdfast.errors import Unavailable

TOLD = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_use_id": "t"}
SUB = {"sessionId": "a1", "agentId": "a1", "agentType": "explorer", "parentAgentId": "s"}


def read(agent: str, said: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> AgentEvent:
    return find_agent(agent).read(EventFields(said), environ or {})


def test_event_with_a_timestamp_is_copilots_without_claude_code() -> None:
    dated = {**TOLD, "timestamp": "2026-11-16T12:20:34.246Z"}
    assert read("claude-code", TOLD).agent == "claude-code"
    assert read("claude-code", dated).agent == "copilot"
    assert read("claude-code", dated, {"CLAUDE_CODE_ENTRYPOINT": "cli"}).agent == "claude-code"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("userPromptSubmitted", EventKind.SUB_START),
        ("agentStop", EventKind.SUB_STOP),
        ("preToolUse", EventKind.BEFORE),
        ("postToolUseFailure", EventKind.AFTER),
    ],
)
def test_copilot_subagent_events_belong_to_the_parent_session(name: str, kind: EventKind) -> None:
    found = read("copilot", {**SUB, "hook_event_name": name})
    assert (found.session, found.kind, found.actor, found.sub_id) == ("s", kind, "copilot/explorer", "a1")
    assert read("copilot", {"sessionId": "s", "hook_event_name": "agentStop"}).kind is EventKind.STOP


def test_the_conversation_of_copilot_is_found_by_its_session(tmp_path: Path) -> None:
    for data in (tmp_path / ".copilot", tmp_path / "elsewhere"):
        (data / "session-state" / "s").mkdir(parents=True)
        (data / "session-state" / "s" / "events.jsonl").touch()
    (tmp_path / ".copilot" / "events.jsonl").touch()
    at_home, chosen = {"HOME": str(tmp_path)}, {"COPILOT_HOME": str(tmp_path / "elsewhere")}
    own = tmp_path / ".copilot" / "session-state" / "s" / "events.jsonl"
    assert read("copilot", {"sessionId": "s"}, at_home).transcript == str(own)
    assert read("copilot", SUB, at_home).transcript == str(own)
    assert "elsewhere" in read("copilot", {"sessionId": "s"}, chosen).transcript
    assert read("copilot", {"sessionId": "s", "transcriptPath": "/given"}, at_home).transcript == "/given"
    for session in ("", "..", "none", "s/../.."):
        assert read("copilot", {"sessionId": session}, at_home).transcript == ""


def test_failed_save_is_reported_only_to_agents_that_show_it(project: Path, home: Path) -> None:
    """Copilot takes whatever a hook says for a refusal of the tool; also a hook of Claude Code's that it runs."""

    def opened(folder: Path, environ: Mapping[str, str]) -> Any:
        raise Unavailable("the disk is gone", hint="")

    def said(event: Mapping[str, Any]) -> bytes:
        data = json.dumps({**event, "cwd": str(project)}).encode()
        return handle_event(HookCall("claude-code", "", data, str(project), 1, 9e9, {"HOME": str(home)}), opened=opened)

    assert b"the disk is gone" in said(TOLD)
    assert said({**TOLD, "timestamp": "2026-11-16T12:20:34.246Z"}) == b""


def test_what_codex_trusts_is_the_event_the_matcher_and_the_hook() -> None:
    hook = {"type": "command", "command": "x"}
    first = trusted_hash("stop", {}, hook)
    assert first == trusted_hash("stop", {"matcher": None}, {**hook, "timeout": 600, "async": False})
    others = [
        trusted_hash("session_end", {}, hook),
        trusted_hash("stop", {"matcher": "x"}, hook),
        trusted_hash("stop", {}, {**hook, "timeout": 60}),
        trusted_hash("stop", {}, {**hook, "command": "ü"}),
    ]
    assert len({first, *others}) == 5
