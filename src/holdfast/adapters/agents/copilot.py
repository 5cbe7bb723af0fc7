"""GitHub Copilot CLI: a hooks file of our own; its events do not say their names, so our command does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.adapters.agents.agent import Agent, Entry, Places, Scope, command_line, read_common
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields

NAME = "copilot"
_TIMEOUT_S = 60

_EVENTS = {
    "sessionStart": Kind.START,
    "userPromptSubmitted": Kind.PROMPT,
    "preToolUse": Kind.BEFORE,
    "postToolUse": Kind.AFTER,
    "agentStop": Kind.STOP,
    "sessionEnd": Kind.END,
}
_KINDS = {**_EVENTS, "errorOccurred": Kind.STOP, "subagentStop": Kind.SUB_STOP, "preCompact": Kind.COMPACT}
_READING = frozenset({"view", "glob", "grep", "read_bash", "list_bash", "web_fetch", "report_intent", "ask_user"})


def _settings(places: Places, scope: Scope) -> Path:
    if scope is Scope.USER:
        return _data(places) / "hooks" / "holdfast.json"
    return places.project / ".github" / "hooks" / "holdfast.json"


def _data(places: Places) -> Path:
    return places.chosen("COPILOT_HOME", ".copilot")


def _entries(words: Sequence[str]) -> list[Entry]:
    line = command_line(words)
    return [Entry(event, {"type": "command", "bash": f"{line} {event}", "timeoutSec": _TIMEOUT_S}) for event in _EVENTS]


def _read(fields: Fields, environ: Mapping[str, str]) -> Event:
    return read_common(NAME, fields, kinds=_KINDS, reading=_READING, delegating=frozenset({"task"}))


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
        "It does not say where the conversation is: none is kept.",
        "Files outside the project folder are not saved.",
        "The agent in the cloud runs on another machine.",
    ),
)
