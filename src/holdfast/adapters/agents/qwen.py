"""Qwen Code: hooks in `settings.json`, with the event names of Claude Code and the tools of Gemini CLI."""

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
    with_id,
)
from holdfast.adapters.agents.claude_code import KINDS
from holdfast.adapters.agents.event import AgentEvent, EventFields
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, markdown_with_braces

NAME = "qwen"

_EVENTS: dict[str, str | None] = {  # no matcher: every tool; the hook skips read-only ones
    "SessionStart": None,
    "UserPromptSubmit": None,
    "PreToolUse": None,
    "PostToolUse": None,
    "PostToolUseFailure": None,
    "SubagentStart": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Stop": None,
    "SessionEnd": None,
}
_READING = frozenset(
    {
        "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content", "web_fetch",
        "web_search", "todo_write", "ask_user_question", "exit_plan_mode", "skill", "tool_search",
    }
)  # fmt: skip


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    return _folder(places, scope) / "settings.json"


def _folder(places: SettingsPaths, scope: SettingsScope) -> Path:
    return places.data("qwen") if scope is SettingsScope.USER else places.project / ".qwen"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    handler = {
        "type": "command",
        "name": "holdfast",
        "command": command_line(words),
        "timeout": TIMEOUT_S * 1000,
        "description": "Saves a checkpoint when files changed",
    }
    return grouped(_EVENTS, handler)


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = _folder(places, scope) / "commands" / "holdfast"
    return {folder / f"{each.name}.md": markdown_with_braces(each, program) for each in SLASH_COMMANDS}


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    return read_common(
        NAME,
        fields,
        kinds=KINDS,
        reading=_READING,
        delegating=frozenset({"agent", "task"}),
        folders=(environ.get("QWEN_PROJECT_DIR", ""),),
    )


def _forked(name: str, data: bytes, old: str, new: str) -> tuple[str, bytes]:
    return f"{new}.jsonl", with_id(data, "sessionId", old, new)


AGENT = Agent(
    name=NAME,
    title="Qwen Code",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    commands=_commands,
    resume="qwen --resume {}",
    forked=_forked,
    not_covered=(
        "Files outside the project folder are not saved.",
        "It reports no end of a tool that you deny: your changes until its turn ends are attributed to the agent.",
    ),
)
