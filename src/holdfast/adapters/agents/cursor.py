"""Cursor: hooks in `hooks.json`. It runs the hooks of Claude Code too: such events are recognised by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents import claude_code
from holdfast.adapters.agents.base import (
    TIMEOUT_S,
    Agent,
    HookEntry,
    SettingsPaths,
    SettingsScope,
    command_line,
    read_common,
    uses_git,
)
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, markdown_for_model

NAME = "cursor"

_EVENTS = {
    "sessionStart": EventKind.START,
    "beforeSubmitPrompt": EventKind.PROMPT,
    "preToolUse": EventKind.BEFORE,
    "postToolUse": EventKind.AFTER,
    "postToolUseFailure": EventKind.AFTER,
    "subagentStart": EventKind.SUB_START,
    "subagentStop": EventKind.SUB_STOP,
    "preCompact": EventKind.COMPACT,
    "stop": EventKind.STOP,
    "sessionEnd": EventKind.END,
}
_KINDS = {
    **claude_code.KINDS,
    **_EVENTS,
    "beforeShellExecution": EventKind.BEFORE,
    "afterShellExecution": EventKind.AFTER,
    "beforeMCPExecution": EventKind.BEFORE,
    "afterMCPExecution": EventKind.AFTER,
    "afterFileEdit": EventKind.AFTER,
}
_READING = frozenset({"Read", "Grep", "Glob", "LS", "WebSearch", "WebFetch", "SemanticSearch"})


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    folder = places.data("cursor") if scope is SettingsScope.USER else places.project / ".cursor"
    return folder / "hooks.json"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    return [HookEntry(event, {"command": command_line(words), "timeout": TIMEOUT_S}) for event in _EVENTS]


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
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
    event = replace(event, sub_sessions=True)
    if event.name == "afterFileEdit" and not event.path:
        path = fields.text("file_path")
        event = replace(event, path=path, subject=path.rpartition("/")[2], tool=event.tool or "Write")
    if event.name.endswith("ShellExecution"):
        command = fields.text("command")
        event = replace(event, tool=event.tool or "Shell", subject=event.subject or fields.first_line("command"))
        event = replace(event, uses_git=uses_git(command))
    return event


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = (places.data("cursor") if scope is SettingsScope.USER else places.project / ".cursor") / "commands"
    return {folder / f"holdfast-{each.name}.md": markdown_for_model(each, program) for each in SLASH_COMMANDS}


AGENT = Agent(
    name=NAME,
    title="Cursor",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={"version": 1},
    speaks=False,
    commands=_commands,
    not_covered=(
        "Files outside the folders of the workspace are not saved.",
        "Tab completions are attributed to the user.",
        "A sub-agent's events do not name the chat that started it. If two chats start sub-agents at the same moment, "
        "each sub-agent has turns of its own.",
        "Its conversation is saved for reading; Cursor cannot resume from it.",
        "In a window with several folders, each of them is saved.",
    ),
)
