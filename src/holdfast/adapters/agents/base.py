"""What each agent's module defines: where its settings are, its hook entries, and how its events are read."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from holdfast.adapters.agents.event import AgentEvent, EventFields, EventKind, label
from holdfast.adapters.agents.names import AGENT_NAMES, data_folder
from holdfast.adapters.agents.slash_commands import is_slash_command
from holdfast.errors import NotFound

TIMEOUT_S = 60
"""How long agents are configured to wait for a hook; `client` answers earlier."""


class SettingsScope(StrEnum):
    """Whose settings."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class HookEntry:
    """An entry of Holdfast in the settings: `{"hooks": {EVENT: [entry]}}`."""

    event: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SettingsPaths:
    """What the paths of settings depend on."""

    home: Path
    environ: Mapping[str, str]
    project: Path
    python: str = ""
    """The interpreter that runs Holdfast."""

    def data(self, agent: str) -> Path:
        """The agent's own folder; it exists if the agent is in use."""
        return data_folder(agent, self.home, self.environ)


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent."""

    name: str
    title: str
    settings: Callable[[SettingsPaths, SettingsScope], Path]
    """The file that the entries go into."""
    entries: Callable[[Sequence[str]], list[HookEntry]]
    """The entries, given the command; none for an agent with a file of its own for us (`own_file`)."""
    read: Callable[[EventFields, Mapping[str, str]], AgentEvent]
    frame: Mapping[str, Any]
    """What else a new settings file must contain."""
    own_file: Callable[[Sequence[str]], str] | None = None
    """The content of a file that belongs to Holdfast alone."""
    speaks: bool = True
    """Whether `{"systemMessage": …}` on stdout is shown to the user."""
    resume: str = ""
    """The command that resumes a conversation, with `{}` for its id; empty if there is none."""
    forked: Callable[[str, bytes, str, str], tuple[str, bytes]] | None = None
    """Given the name and the content of a conversation, its id and a new id: name and content with the new id."""
    commands: Callable[[SettingsPaths, SettingsScope, Sequence[str]], Mapping[Path, str]] | None = None
    """The files of its slash commands, by path, given the program that they run; see `slash_commands`."""
    plugin: Callable[[SettingsPaths, SettingsScope, Sequence[str], Sequence[str]], Mapping[Path, str]] | None = None
    """The files of a plugin with hooks, commands and MCP server, by path, those with the hooks last; given the command
    of a hook and the program of a slash command."""
    not_covered: tuple[str, ...] = ()
    """What the hooks of this agent do not cover, in sentences."""


def command_line(words: Sequence[str]) -> str:
    """A command for agents that run it in a shell, quoted only where needed."""
    return shlex.join(words)


def grouped(events: Mapping[str, str | None], handler: Mapping[str, Any]) -> list[HookEntry]:
    """Entries in the form of Claude Code, Gemini and Codex: a matcher with handlers."""
    return [
        HookEntry(event, {**({} if matcher is None else {"matcher": matcher}), "hooks": [dict(handler)]})
        for event, matcher in events.items()
    ]


def with_id(data: bytes, key: str, old: str, new: str, *, lines: int = -1) -> bytes:
    """Replace the id under a key in JSON text, everywhere or in the first lines only.

    Inside strings quotes are escaped, so that such a key in the text of a conversation does not match.
    """
    pattern = re.compile(rb'(?<!\\)("%s"\s*:\s*)"%s"' % (key.encode(), re.escape(old.encode())))
    parts = data.splitlines(keepends=True)
    count = len(parts) if lines < 0 else lines
    return b"".join(pattern.sub(rb'\1"%s"' % new.encode(), part) for part in parts[:count]) + b"".join(parts[count:])


_SHELL_WORDS = ("command", "cmd", "script")
_GIT = re.compile(r"(?<![\w-])(?:git|gh|hub|jj|sl|tig|lazygit)(?![\w-])")
_PATH_WORDS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "target_file")


def about(arguments: EventFields, prompt: str = "") -> tuple[str, str]:
    """A line that describes a tool call, not yet shortened, and the file it is about."""
    path = arguments.text(*_PATH_WORDS)
    return arguments.first_line(*_SHELL_WORDS) or os.path.basename(path) or prompt, path


def uses_git(command: str) -> bool:
    """Whether a command names git or a program that uses it, and so may switch the branch."""
    return _GIT.search(command) is not None


def read_common(
    agent: str,
    fields: EventFields,
    *,
    kinds: Mapping[str, EventKind],
    reading: frozenset[str],
    delegating: frozenset[str],
    folders: tuple[str, ...] = (),
    version: str = "",
) -> AgentEvent:
    """Read an event with the field names that most agents use."""
    name = fields.text("hook_event_name", "hookEventName", "event")
    tool = fields.text("tool_name", "toolName", "tool")
    arguments = fields.inner("tool_input", "toolArgs", "tool_args", "args")
    subject, path = about(arguments, fields.first_line("prompt"))
    kind = kinds.get(name, EventKind.OTHER)
    if kind is EventKind.PROMPT and is_slash_command(fields.text("prompt")):
        kind = EventKind.OTHER
    return AgentEvent(
        agent=agent,
        kind=kind,
        name=name,
        session=fields.text("session_id", "sessionId", "conversation_id", "sessionID"),
        turn=fields.text("prompt_id", "turn_id", "generation_id"),
        tool=tool,
        tool_use=fields.text("tool_use_id", "toolUseId", "tool_call_id", "callID"),
        sub=label(fields.text("agent_type", "subagent_type", "agentType")),
        sub_id=fields.text("agent_id", "subagent_id", "agentId"),
        cwd=fields.text("cwd"),
        folders=tuple(folder for folder in folders if folder),
        path=path,
        subject=subject,
        transcript=fields.text("transcript_path", "transcriptPath"),
        version=version,
        model=label(fields.text("model")),
        permission_mode=fields.text("permission_mode"),
        closing=fields.message("last_assistant_message", "prompt_response") if kind is EventKind.STOP else "",
        reads=tool in reading,
        delegates=tool in delegating,
        starts=label(arguments.text("subagent_type", "agent_type")) if tool in delegating else "",
        background=arguments.flag("run_in_background") or arguments.flag("is_background"),
        uses_git=uses_git(arguments.text(*_SHELL_WORDS)),
    )


def find_agent(name: str) -> Agent:
    """An agent by its name; its module is imported on first use. NotFound if there are no hooks for it."""
    if name not in AGENT_NAMES:
        raise NotFound(f"unknown agent {name!r}", hint=f"The agents are {', '.join(AGENT_NAMES)}.")
    module = importlib.import_module(f"holdfast.adapters.agents.{name.replace('-', '_')}")
    agent: Agent = module.AGENT
    return agent
