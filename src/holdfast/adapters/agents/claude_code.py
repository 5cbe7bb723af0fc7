"""Claude Code: hooks in `settings.json`, in exec form; the conversation is a file of lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents.agent import TIMEOUT_S, Agent, Entry, Places, Scope, grouped, read_common, with_id
from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields

NAME = "claude-code"

_READING = (
    "Read", "Grep", "Glob", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoRead", "TodoWrite", "BashOutput",
    "TaskOutput", "ToolSearch", "AskUserQuestion", "ExitPlanMode", "EnterPlanMode", "TaskCreate", "TaskGet", "TaskList",
    "TaskUpdate",
)  # fmt: skip
_TOOLS = f"^(?!(?:{'|'.join(_READING)})$)"  # any tool that is not known to change nothing, unheard-of ones too
_EVENTS: dict[str, str | None] = {
    "SessionStart": None,
    "UserPromptSubmit": None,
    "PreToolUse": _TOOLS,
    "PostToolUse": _TOOLS,
    "PostToolUseFailure": _TOOLS,
    "PostToolBatch": None,  # all that is told of a tool that the user denied
    "SubagentStart": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Stop": None,
    "SessionEnd": None,
}
KINDS = {
    "SessionStart": Kind.START,
    "UserPromptSubmit": Kind.PROMPT,
    "PreToolUse": Kind.BEFORE,
    "PostToolUse": Kind.AFTER,
    "PostToolUseFailure": Kind.AFTER,
    "PermissionDenied": Kind.AFTER,
    "PostToolBatch": Kind.BATCH,
    "SubagentStart": Kind.SUB_START,
    "SubagentStop": Kind.SUB_STOP,
    "PreCompact": Kind.COMPACT,
    "Stop": Kind.STOP,
    "StopFailure": Kind.STOP,
    "SessionEnd": Kind.END,
}


def _settings(places: Places, scope: Scope) -> Path:
    if scope is Scope.USER:
        return _data(places) / "settings.json"
    return places.project / ".claude" / "settings.local.json"  # the private one: our entry names a path of this machine


def _data(places: Places) -> Path:
    return places.chosen("CLAUDE_CONFIG_DIR", ".claude")


def _entries(words: Sequence[str]) -> list[Entry]:
    handler = {"type": "command", "command": words[0], "args": list(words[1:]), "timeout": TIMEOUT_S}
    return grouped(_EVENTS, handler)


def _read(fields: Fields, environ: Mapping[str, str]) -> Event:
    if fields.text("cursor_version"):
        from holdfast.adapters.agents import cursor  # Cursor runs the hooks of Claude Code too

        return cursor.AGENT.read(fields, environ)
    if fields.text("timestamp") and "CLAUDE_CODE_ENTRYPOINT" not in environ:
        from holdfast.adapters.agents import copilot  # so do Copilot and VS Code, which say when

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
    """It tells its children what it is: `claude-code_2-1-325_…`."""
    _, _, rest = environ.get("AI_AGENT", "").partition("claude-code_")
    return rest.partition("_")[0].replace("-", ".")


def _forked(name: str, data: bytes, old: str, new: str) -> tuple[str, bytes]:
    return f"{new}.jsonl", with_id(data, "sessionId", old, new)


AGENT = Agent(
    name=NAME,
    title="Claude Code",
    settings=_settings,
    entries=_entries,
    read=_read,
    data=_data,
    frame={},
    resume="claude --resume {}",
    forked=_forked,
    not_covered=(
        "Files outside the project folder are not saved.",
        "A command in the background goes on after its tool has ended; what it changes while the agent works is the"
        " agent's, and what it changes between two turns is taken for the user's.",
        "The conversation is written late by the agent: the last lines before a tool may be missing.",
    ),
)
