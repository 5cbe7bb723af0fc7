"""Claude Code: hooks in `settings.json`, in exec form; the conversation is a file of lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import holdfast
from holdfast.adapters.agents.base import (
    TIMEOUT_S,
    Agent,
    HookEntry,
    SettingsPaths,
    SettingsScope,
    grouped,
    read_common,
    with_id,
)
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, markdown_with_stdin

NAME = "claude-code"

_READING = (
    "Read", "Grep", "Glob", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoRead", "TodoWrite", "BashOutput",
    "TaskOutput", "ToolSearch", "AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "TaskCreate", "TaskGet", "TaskList",
    "TaskUpdate",
)  # fmt: skip
_TOOLS = f"^(?!(?:{'|'.join(_READING)})$)"  # any tool that is not known to be read-only, unknown ones too
_EVENTS: dict[str, str | None] = {
    "SessionStart": None,
    "UserPromptSubmit": None,
    "PreToolUse": _TOOLS,
    "PostToolUse": _TOOLS,
    "PostToolUseFailure": _TOOLS,
    "PostToolBatch": None,  # the only event after the user denies a tool
    "SubagentStart": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Stop": None,
    "SessionEnd": None,
}
KINDS = {
    "SessionStart": EventKind.START,
    "UserPromptSubmit": EventKind.PROMPT,
    "PreToolUse": EventKind.BEFORE,
    "PostToolUse": EventKind.AFTER,
    "PostToolUseFailure": EventKind.AFTER,
    "PermissionDenied": EventKind.AFTER,
    "PostToolBatch": EventKind.BATCH,
    "SubagentStart": EventKind.SUB_START,
    "SubagentStop": EventKind.SUB_STOP,
    "PreCompact": EventKind.COMPACT,
    "Stop": EventKind.STOP,
    "StopFailure": EventKind.STOP,
    "SessionEnd": EventKind.END,
}


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    if scope is SettingsScope.USER:
        return places.data("claude-code") / "settings.json"
    return places.project / ".claude" / "settings.local.json"  # the private one: the entry names a path on this machine


def _entries(words: Sequence[str]) -> list[HookEntry]:
    handler = {"type": "command", "command": words[0], "args": list(words[1:]), "timeout": TIMEOUT_S}
    return grouped(_EVENTS, handler)


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    if fields.text("cursor_version"):
        from holdfast.adapters.agents import cursor  # Cursor runs the hooks of Claude Code too

        return cursor.AGENT.read(fields, environ)
    if fields.text("timestamp") and "CLAUDE_CODE_ENTRYPOINT" not in environ:
        from holdfast.adapters.agents import copilot  # so do Copilot and VS Code, which say so

        return copilot.AGENT.read(fields, environ)
    event = read_common(
        NAME,
        fields,
        kinds=KINDS,
        reading=frozenset(_READING),
        delegating=frozenset({"Task", "Agent"}),
        folders=(environ.get("CLAUDE_PROJECT_DIR", ""),),
        version=_version(environ),
    )
    running = fields.count("background_tasks")
    return event if running is None else replace(event, still_running=running > 0)


def _version(environ: Mapping[str, str]) -> str:
    """The version in AI_AGENT, which it sets for child processes: `claude-code_2-1-325_…`."""
    _, _, rest = environ.get("AI_AGENT", "").partition("claude-code_")
    return rest.partition("_")[0].replace("-", ".")


def _forked(name: str, data: bytes, old: str, new: str) -> tuple[str, bytes]:
    return f"{new}.jsonl", with_id(data, "sessionId", old, new)


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = places.data("claude-code") if scope is SettingsScope.USER else places.project / ".claude"
    return {
        folder / "commands" / "holdfast" / f"{each.name}.md": markdown_with_stdin(each, program)
        for each in SLASH_COMMANDS
    }


def _plugin(
    places: SettingsPaths, scope: SettingsScope, words: Sequence[str], program: Sequence[str]
) -> dict[Path, str]:
    """A plugin in the folder of skills, where current versions load it without a marketplace."""
    folder = (
        (places.data("claude-code") if scope is SettingsScope.USER else places.project / ".claude")
        / "skills"
        / "holdfast"
    )
    about = {
        "name": "holdfast",
        "version": holdfast.__version__,
        "description": "Saves checkpoints before and after every tool; /holdfast:undo takes back the last turn.",
        "author": {"name": "Holdfast"},
    }
    hooks: dict[str, list[object]] = {}
    for entry in _entries(words):
        hooks.setdefault(entry.event, []).append(entry.value)
    files = {folder / ".claude-plugin" / "plugin.json": _json(about)}
    files |= {folder / "commands" / f"{each.name}.md": markdown_with_stdin(each, program) for each in SLASH_COMMANDS}
    files[folder / ".mcp.json"] = _json({"mcpServers": {"holdfast": {"command": words[0], "args": ["mcp"]}}})
    return {**files, folder / "hooks" / "hooks.json": _json({"hooks": hooks})}


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


AGENT = Agent(
    name=NAME,
    title="Claude Code",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    resume="claude --resume {}",
    forked=_forked,
    commands=_commands,
    plugin=_plugin,
    not_covered=(
        "Files outside the project folder are not saved.",
        "A background command continues after its tool has ended; what it changes during a turn is attributed to the"
        " agent, and what it changes between turns to the user.",
        "The agent writes its conversation with a delay: the last lines before a tool call may be missing.",
    ),
)
