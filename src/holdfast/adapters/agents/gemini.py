"""Gemini CLI: hooks in `settings.json`, as a command line; times are in milliseconds."""

from __future__ import annotations

import json
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
    with_id,
)
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, toml

NAME = "gemini"

_READING = (
    "read_file", "read_many_files", "list_directory", "glob", "search_file_content", "grep_search", "google_web_search",
    "web_fetch", "ask_user", "write_todos", "get_internal_docs", "activate_skill", "enter_plan_mode", "exit_plan_mode",
)  # fmt: skip
_TOOLS = f"^(?!(?:{'|'.join(_READING)})$)"
# not PreCompress: it fires at every turn, even if nothing is compressed
_EVENTS: dict[str, str | None] = {
    "SessionStart": None,
    "BeforeAgent": None,
    "BeforeTool": _TOOLS,
    "AfterTool": _TOOLS,
    "AfterAgent": None,
    "SessionEnd": None,
}
_KINDS = {
    "SessionStart": EventKind.START,
    "BeforeAgent": EventKind.PROMPT,
    "BeforeTool": EventKind.BEFORE,
    "AfterTool": EventKind.AFTER,
    "AfterAgent": EventKind.STOP,
    "SessionEnd": EventKind.END,
}


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    folder = places.data("gemini") if scope is SettingsScope.USER else places.project / ".gemini"
    return folder / "settings.json"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    handler = {
        "type": "command",
        "name": "holdfast",
        "command": command_line(words),
        "timeout": TIMEOUT_S * 1000,
        "description": "Saves a checkpoint when files changed",
    }
    return grouped(_EVENTS, handler)


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    return read_common(
        NAME,
        fields,
        kinds=_KINDS,
        reading=frozenset(_READING),
        delegating=frozenset(),
        folders=(environ.get("GEMINI_PROJECT_DIR", ""),),
    )


def _forked(name: str, data: bytes, old: str, new: str) -> tuple[str, bytes]:
    """The name of a session ends with the first eight characters of its id."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem.rpartition('-')[0]}-{new[:8]}{dot}{suffix}", with_id(data, "sessionId", old, new)


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    """An extension for the user; a project can only have commands."""
    files: dict[Path, str] = {}
    folder = places.project / ".gemini"
    if scope is SettingsScope.USER:
        folder = places.data("gemini") / "extensions" / "holdfast"
        about = {"name": "holdfast", "version": "1.0.0", "description": "Checkpoints: undo, timeline, restore, status"}
        files[folder / "gemini-extension.json"] = json.dumps(about, indent=2) + "\n"
    names = {folder / "commands" / "holdfast" / f"{each.name}.toml": toml(each, program) for each in SLASH_COMMANDS}
    return {**files, **names}


AGENT = Agent(
    name=NAME,
    title="Gemini CLI",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    resume="gemini --resume {}",
    forked=_forked,
    commands=_commands,
    not_covered=(
        "Files outside the project folder are not saved.",
        "Its events have no tool ids: parallel calls of one tool are matched by their order.",
        "Its sub-agents cannot be distinguished: their changes are attributed to the agent.",
    ),
)
