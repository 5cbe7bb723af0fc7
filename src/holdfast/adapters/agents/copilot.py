"""GitHub Copilot CLI: a hooks file of our own; its events do not say their names, so our command does.

VS Code reads the same file, and names events and fields as Claude Code does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.base import (
    TIMEOUT_S,
    Agent,
    HookEntry,
    SettingsPaths,
    SettingsScope,
    command_line,
    read_common,
)
from holdfast.adapters.agents.claude_code import KINDS
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind

NAME = "copilot"

_EVENTS = {
    "sessionStart": EventKind.START,
    "userPromptSubmitted": EventKind.PROMPT,
    "preToolUse": EventKind.BEFORE,
    "postToolUse": EventKind.AFTER,
    "postToolUseFailure": EventKind.AFTER,
    "subagentStart": EventKind.SUB_START,
    "subagentStop": EventKind.SUB_STOP,
    "preCompact": EventKind.COMPACT,
    "agentStop": EventKind.STOP,
    "sessionEnd": EventKind.END,
}
_KINDS = {**KINDS, **_EVENTS}
_OF_A_SUB_AGENT = {EventKind.PROMPT: EventKind.SUB_START, EventKind.STOP: EventKind.SUB_STOP}
_SESSION = re.compile(r"[\w-]+")
_READING = frozenset({"view", "glob", "grep", "read_bash", "list_bash", "web_fetch", "report_intent", "ask_user"})


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    if scope is SettingsScope.USER:
        return places.data("copilot") / "hooks" / "holdfast.json"
    return places.project / ".github" / "hooks" / "holdfast.json"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    line = command_line(words)
    return [
        # it denies the tool when a hook fails, or its program is missing
        HookEntry(event, {"type": "command", "bash": f"{line} {event} || true", "timeoutSec": TIMEOUT_S})
        for event in _EVENTS
    ]


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    event = read_common(
        NAME,
        fields,
        kinds=_KINDS,
        reading=_READING,
        delegating=frozenset({"task"}),
        version=environ.get("COPILOT_CLI_BINARY_VERSION", ""),
    )
    parent = fields.text("parentAgentId", "parent_agent_id")
    if event.sub_id and parent:  # its own session, prompts and turns are part of its parent's
        event = replace(event, session=parent, kind=_OF_A_SUB_AGENT.get(event.kind, event.kind))
    return event if event.transcript else replace(event, transcript=_transcript(event.session, environ))


def _transcript(session: str, environ: Mapping[str, str]) -> str:
    """The path of a session's conversation, which most events lack."""
    data = environ.get("COPILOT_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".copilot")
    path = os.path.join(data, "session-state", session, "events.jsonl")
    return path if _SESSION.fullmatch(session) and os.path.isfile(path) else ""


AGENT = Agent(
    name=NAME,
    title="GitHub Copilot CLI",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={"version": 1},
    speaks=False,
    not_covered=(
        "Its events have no tool ids: parallel calls of one tool are matched by their order.",
        "It reports no end of a tool that you deny: your changes until its turn ends are attributed to the agent.",
        "Hooks of a project run only if Copilot trusts the folder.",
        "Its conversation is saved for reading; Copilot cannot resume from it.",
        "Files outside the project folder are not saved.",
        "The cloud agent runs on another machine and is not covered.",
    ),
)
