"""Droid of Factory: hooks in `settings.json`, as a command line, with the event names of Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.adapters.agents.base import (
    TIMEOUT_S,
    Agent,
    HookEntry,
    SettingsPaths,
    SettingsScope,
    command_line,
    grouped,
    read_common,
)
from holdfast.adapters.agents.claude_code import KINDS
from holdfast.adapters.agents.event import AgentEvent, EventFields
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, script

NAME = "droid"

_EVENTS: dict[str, str | None] = {  # no matcher: every tool; the hook skips read-only ones
    "SessionStart": None,
    "UserPromptSubmit": None,
    "PreToolUse": None,
    "PostToolUse": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Stop": None,
    "SessionEnd": None,
}
_READING = frozenset({"Read", "LS", "Grep", "Glob", "WebSearch", "FetchUrl", "TodoWrite", "AskUser", "ExitSpecMode"})


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    return _folder(places, scope) / "settings.json"


def _folder(places: SettingsPaths, scope: SettingsScope) -> Path:
    return places.data("droid") if scope is SettingsScope.USER else places.project / ".factory"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    return grouped(_EVENTS, {"type": "command", "command": command_line(words), "timeout": TIMEOUT_S})


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = _folder(places, scope) / "commands"
    return {folder / f"holdfast-{each.name}": script(each, program) for each in SLASH_COMMANDS}


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    return read_common(
        NAME,
        fields,
        kinds=KINDS,
        reading=_READING,
        delegating=frozenset({"Task"}),
        folders=(environ.get("FACTORY_PROJECT_DIR", ""),),
    )


AGENT = Agent(
    name=NAME,
    title="Droid",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    commands=_commands,
    not_covered=(
        "Files outside the project folder are not saved.",
        "Its events have no tool ids: parallel calls of one tool are matched by their order.",
        "It reports no end of a tool that fails or that you deny: your changes until its turn ends are attributed to"
        " the agent.",
        "Its sub-agents have no names: their changes are attributed to the agent.",
        "Its conversation is saved for reading; Holdfast cannot have Droid resume it.",
    ),
)
