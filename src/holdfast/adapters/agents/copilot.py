"""GitHub Copilot CLI: a hooks file of our own; its events do not say their names, so our command does.

VS Code reads the same file, and names events and fields as Claude Code does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.agent import TIMEOUT_S, Agent, Entry, Places, Scope, command_line, read_common
from holdfast.adapters.agents.claude_code import KINDS
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields

NAME = "copilot"

_EVENTS = {
    "sessionStart": Kind.START,
    "userPromptSubmitted": Kind.PROMPT,
    "preToolUse": Kind.BEFORE,
    "postToolUse": Kind.AFTER,
    "postToolUseFailure": Kind.AFTER,
    "subagentStart": Kind.SUB_START,
    "subagentStop": Kind.SUB_STOP,
    "preCompact": Kind.COMPACT,
    "agentStop": Kind.STOP,
    "sessionEnd": Kind.END,
}
_KINDS = {**KINDS, **_EVENTS}
_OF_A_SUB_AGENT = {Kind.PROMPT: Kind.SUB_START, Kind.STOP: Kind.SUB_STOP}
_SESSION = re.compile(r"[\w-]+")
_READING = frozenset({"view", "glob", "grep", "read_bash", "list_bash", "web_fetch", "report_intent", "ask_user"})


def _settings(places: Places, scope: Scope) -> Path:
    if scope is Scope.USER:
        return _data(places) / "hooks" / "holdfast.json"
    return places.project / ".github" / "hooks" / "holdfast.json"


def _data(places: Places) -> Path:
    return places.chosen("COPILOT_HOME", ".copilot")


def _entries(words: Sequence[str]) -> list[Entry]:
    line = command_line(words)
    return [
        # it denies the tool when a hook fails, also for want of the program
        Entry(event, {"type": "command", "bash": f"{line} {event} || true", "timeoutSec": TIMEOUT_S})
        for event in _EVENTS
    ]


def _read(fields: Fields, environ: Mapping[str, str]) -> Event:
    event = read_common(
        NAME,
        fields,
        kinds=_KINDS,
        reading=_READING,
        delegating=frozenset({"task"}),
        version=environ.get("COPILOT_CLI_BINARY_VERSION", ""),
    )
    parent = fields.text("parentAgentId", "parent_agent_id")
    if event.sub_id and parent:  # it has a session, prompts and turns of its own, which are part of its parent's
        event = replace(event, session=parent, kind=_OF_A_SUB_AGENT.get(event.kind, event.kind))
    return event if event.transcript else replace(event, transcript=_transcript(event.session, environ))


def _transcript(session: str, environ: Mapping[str, str]) -> str:
    """Where the conversation of a session is, which most events do not say."""
    data = environ.get("COPILOT_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".copilot")
    path = os.path.join(data, "session-state", session, "events.jsonl")
    return path if _SESSION.fullmatch(session) and os.path.isfile(path) else ""


AGENT = Agent(
    name=NAME,
    title="GitHub Copilot CLI",
    settings=_settings,
    entries=_entries,
    read=_read,
    data=_data,
    frame={"version": 1},
    speaks=False,
    not_covered=(
        "Its events have no id of the tool: one that runs beside another of the same name is told by its order.",
        "Of a tool that you deny it tells no end: what you change until its turn ends is taken for the agent's.",
        "Hooks of a project run only where Copilot trusts the folder.",
        "Its conversation is kept for reading; Copilot cannot be made to resume from it.",
        "Files outside the project folder are not saved.",
        "The agent in the cloud runs on another machine.",
    ),
)
