"""Cursor: hooks in `hooks.json`. It runs the hooks of Claude Code too: such events are told apart by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents import claude_code
from holdfast.adapters.agents.agent import TIMEOUT_S, Agent, Entry, Places, Scope, command_line, read_common
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields

NAME = "cursor"

_EVENTS = {
    "sessionStart": Kind.START,
    "beforeSubmitPrompt": Kind.PROMPT,
    "preToolUse": Kind.BEFORE,
    "postToolUse": Kind.AFTER,
    "postToolUseFailure": Kind.AFTER,
    "subagentStart": Kind.SUB_START,
    "subagentStop": Kind.SUB_STOP,
    "preCompact": Kind.COMPACT,
    "stop": Kind.STOP,
    "sessionEnd": Kind.END,
}
_KINDS = {
    **claude_code.KINDS,
    **_EVENTS,
    "beforeShellExecution": Kind.BEFORE,
    "afterShellExecution": Kind.AFTER,
    "beforeMCPExecution": Kind.BEFORE,
    "afterMCPExecution": Kind.AFTER,
    "afterFileEdit": Kind.AFTER,
}
_READING = frozenset({"Read", "Grep", "Glob", "LS", "WebSearch", "WebFetch", "SemanticSearch"})


def _settings(places: Places, scope: Scope) -> Path:
    folder = _data(places) if scope is Scope.USER else places.project / ".cursor"
    return folder / "hooks.json"


def _data(places: Places) -> Path:
    return places.home / ".cursor"


def _entries(words: Sequence[str]) -> list[Entry]:
    return [Entry(event, {"command": command_line(words), "timeout": TIMEOUT_S}) for event in _EVENTS]


def _read(fields: Fields, environ: Mapping[str, str]) -> Event:
    folders = fields.texts("workspace_roots") or (environ.get("CURSOR_PROJECT_DIR", ""),)
    event = read_common(
        NAME,
        fields,
        kinds=_KINDS,
        reading=_READING,
        delegating=frozenset({"Task"}),
        folders=folders,
        version=fields.text("cursor_version"),
    )
    if event.name == "afterFileEdit" and not event.path:
        path = fields.text("file_path")
        event = replace(event, path=path, subject=path.rpartition("/")[2], tool=event.tool or "Write")
    if event.name.endswith("ShellExecution"):
        event = replace(event, tool=event.tool or "Shell", subject=event.subject or fields.text("command")[:100])
    return event


AGENT = Agent(
    name=NAME,
    title="Cursor",
    settings=_settings,
    entries=_entries,
    read=_read,
    data=_data,
    frame={"version": 1},
    speaks=False,
    not_covered=(
        "Files outside the folders of the workspace are not saved.",
        "What Tab completes is the user's.",
        "A sub-agent has a session of its own: `undo --agent` takes back its work, or that of its sender, by itself.",
        "Its conversation is kept for reading; Cursor cannot be made to resume from it.",
        "In a window of several folders, a checkpoint is made in each of them.",
    ),
)
