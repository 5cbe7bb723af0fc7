"""What every agent's file says: where its settings are, what our entry looks like, how an event of it is read."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from holdfast.adapters.agents.event import Event, Kind
from holdfast.adapters.agents.fields import Fields, label

TIMEOUT_S = 60
"""How long an agent is asked to wait for us; `client` answers before."""


class Scope(StrEnum):
    """Whose settings."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something of ours in a list of the settings: `{"hooks": {EVENT: [entry]}}`."""

    event: str
    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Places:
    """What the paths of settings depend on."""

    home: Path
    environ: Mapping[str, str]
    project: Path
    python: str = ""
    """The interpreter that runs us."""

    def chosen(self, variable: str, default: str) -> Path:
        """A folder that a variable may name, else one in the home folder."""
        return Path(self.environ.get(variable) or self.home / default)


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent."""

    name: str
    title: str
    settings: Callable[[Places, Scope], Path]
    """The file that our entries go into."""
    entries: Callable[[Sequence[str]], list[Entry]]
    """Our entries, given the words of the command; none for an agent that takes a file of our own."""
    read: Callable[[Fields, Mapping[str, str]], Event]
    data: Callable[[Places], Path]
    """The folder of the agent's own; that it is there means that somebody uses the agent."""
    frame: Mapping[str, Any]
    """What else its settings must have, where the file is new."""
    own_file: Callable[[Sequence[str]], str] | None = None
    """The whole text of a file that is ours alone."""
    speaks: bool = True
    """Whether `{"systemMessage": …}` on stdout is shown to the user."""
    resume: str = ""
    """The command that goes on with a conversation, with `{}` for its id; empty where there is none."""
    forked: Callable[[str, bytes, str, str], tuple[str, bytes]] | None = None
    """Given the name and the content of a conversation, its id and a new one: the same under the new id."""
    not_covered: tuple[str, ...] = ()
    """What our hooks do not see of this agent, in sentences."""


def command_line(words: Sequence[str]) -> str:
    """A command for agents that hand it to a shell: quoted where a shell needs it, and nowhere else."""
    return shlex.join(words)


def grouped(events: Mapping[str, str | None], handler: Mapping[str, Any]) -> list[Entry]:
    """Entries as Claude Code, Gemini and Codex have them: a matcher, and handlers below it."""
    return [
        Entry(event, {**({} if matcher is None else {"matcher": matcher}), "hooks": [dict(handler)]})
        for event, matcher in events.items()
    ]


def with_id(data: bytes, key: str, old: str, new: str, *, lines: int = -1) -> bytes:
    """A text of JSON in which a key has another id wherever it had the old one, or in the first lines only.

    Within texts quotes are escaped, so that what a conversation says of such keys is not touched.
    """
    pattern = re.compile(rb'(?<!\\)("%s"\s*:\s*)"%s"' % (key.encode(), re.escape(old.encode())))
    parts = data.splitlines(keepends=True)
    count = len(parts) if lines < 0 else lines
    return b"".join(pattern.sub(rb'\1"%s"' % new.encode(), part) for part in parts[:count]) + b"".join(parts[count:])


_SHELL_WORDS = ("command", "cmd", "script")
_PATH_WORDS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "target_file")


def about(arguments: Fields, prompt: str = "") -> tuple[str, str]:
    """What a tool is about, for people, and the file that it is about."""
    path = arguments.text(*_PATH_WORDS)
    return label(arguments.text(*_SHELL_WORDS) or os.path.basename(path) or prompt), path


def read_common(
    agent: str,
    fields: Fields,
    *,
    kinds: Mapping[str, Kind],
    reading: frozenset[str],
    delegating: frozenset[str],
    folders: tuple[str, ...] = (),
    version: str = "",
) -> Event:
    """Read an event whose fields are named as most agents name them."""
    name = fields.text("hook_event_name", "hookEventName", "event")
    tool = fields.text("tool_name", "toolName", "tool")
    arguments = fields.inner("tool_input", "toolArgs", "tool_args", "args")
    subject, path = about(arguments, fields.text("prompt"))
    return Event(
        agent=agent,
        kind=kinds.get(name, Kind.OTHER),
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
        permission_mode=fields.text("permission_mode"),
        reads=tool in reading,
        delegates=tool in delegating,
        background=arguments.flag("run_in_background") or arguments.flag("is_background"),
    )
