"""Codex: hooks in a `hooks.json` that allows no unknown field; the user has to trust each entry once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

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
from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, markdown_for_model

NAME = "codex"

_EVENTS: dict[str, str | None] = {  # no matcher: every tool; the hook skips read-only ones
    "SessionStart": None,
    "UserPromptSubmit": None,
    "PreToolUse": None,
    "PostToolUse": None,
    "SubagentStart": None,
    "SubagentStop": None,
    "PreCompact": None,
    "Stop": None,
    "SessionEnd": None,
}
_LAST_TIMEOUT_S = 3
_NAMESPACES = ("", "collaboration", "multi_agent_v1")  # prefixes of tool names, without a separator
_OF_SUB_AGENTS = (
    "spawn_agent", "wait_agent", "wait", "send_input", "send_message", "followup_task", "resume_agent",
    "interrupt_agent", "close_agent", "list_agents",
)  # fmt: skip
_DELEGATING = frozenset({"Agent", *(space + name for space in _NAMESPACES for name in _OF_SUB_AGENTS)})
_READING = frozenset(
    {"update_plan", "view_image", "web_search", "request_user_input", "read_file", "list_dir", "grep_files"}
)


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    folder = places.data("codex") if scope is SettingsScope.USER else places.project / ".codex"
    return folder / "hooks.json"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    handler = {"type": "command", "command": command_line(words)}
    last = {"SessionEnd": None}  # it waits at most three seconds, and warns about a longer timeout
    others = {event: matcher for event, matcher in _EVENTS.items() if event not in last}
    return [
        *grouped(others, {**handler, "timeout": TIMEOUT_S}),
        *grouped(last, {**handler, "timeout": _LAST_TIMEOUT_S}),
    ]


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    event = read_common(
        NAME,
        fields,
        kinds=KINDS,
        reading=_READING,
        delegating=_DELEGATING,
    )
    # a command that continues in the background reports its end only when it has ended
    return replace(event, still_running=True) if event.kind is EventKind.STOP else event


def trusted_hash(event: str, group: Mapping[str, Any], handler: Mapping[str, Any]) -> str:
    """The hash that Codex stores when the user accepts a hook; with any other it does not run."""
    matcher = {} if group.get("matcher") is None else {"matcher": group["matcher"]}
    hashed = {"event_name": event, **matcher, "hooks": [{"timeout": 600, "async": False, **handler}]}
    spelled = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{sha256(spelled.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _forked(name: str, data: bytes, old: str, new: str) -> tuple[str, bytes]:
    """A rollout has its id in its name and in its first line."""
    stem = name.removesuffix(".jsonl").removesuffix(old).rstrip("-") or "rollout"
    for key in ("id", "session_id"):
        data = with_id(data, key, old, new, lines=1)
    return f"{stem}-{new}.jsonl", data


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    """Skills, which the user calls as `$holdfast-undo`: current versions read no prompts of users."""
    folder = (places.data("codex") if scope is SettingsScope.USER else places.project / ".codex") / "skills"
    files: dict[Path, str] = {}
    for each in SLASH_COMMANDS:
        name = f"holdfast-{each.name}"
        head = {"name": name, "description": f"{each.description}. Only when the user types ${name}."}
        files[folder / name / "agents" / "openai.yaml"] = "policy:\n  allow_implicit_invocation: false\n"
        files[folder / name / "SKILL.md"] = markdown_for_model(each, program, head)
    return files


AGENT = Agent(
    name=NAME,
    title="Codex",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    resume="codex resume {}",
    forked=_forked,
    commands=_commands,
    not_covered=(
        "Files outside the project folder are not saved.",
        "The conversation is saved only if Codex names its file.",
    ),
)
