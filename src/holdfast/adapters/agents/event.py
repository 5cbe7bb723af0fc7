"""Events of agents: reading what a hook received, and the common form of all agents' events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_BYTES = 32 << 20
"""Input above this is not parsed; fields are searched near its beginning and its end."""
MESSAGE_MAX_CHARS = 2000
"""What is kept of the message that ends a turn."""
_WHOLE_MAX_CHARS = 1 << 20
"""Longer texts are no message."""
_TEXT_MAX = 4096
_LINE_MAX = 64 << 10
_LABEL_MAX = 100
_FIELD = re.compile(rb'"(\w{2,40})"\s*:\s*"((?:[^"\\]|\\.){0,4000})"')
_EDGE_BYTES = 64 << 10


class EventFields:
    """The fields of an event. Unknown fields are ignored; a missing or invalid one is empty."""

    def __init__(self, values: Mapping[str, Any], *, is_whole: bool = True) -> None:
        self._values = values
        self.is_whole = is_whole
        """False if the input was not a JSON object, and these are the fields that were found in it."""

    @classmethod
    def parse(cls, data: bytes) -> EventFields:
        """Read an event; never fails. If it is not a JSON object, string fields near its edges are used."""
        try:
            if len(data) <= MAX_BYTES:
                values = json.loads(data.decode("utf-8-sig", "surrogateescape"), strict=False)
                if isinstance(values, dict):
                    return cls(values)
        except (ValueError, RecursionError):
            pass
        return cls(_salvaged(data), is_whole=False)

    def named(self, event: str) -> EventFields:
        """The same with the name of the event, unless it has one."""
        return EventFields({"hook_event_name": event, **self._values}, is_whole=self.is_whole)

    def text(self, *names: str) -> str:
        """The first of these fields that is a string, or a number as a string."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str) and value:
                return plain(value, _TEXT_MAX)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)[:_TEXT_MAX]
        return ""

    def message(self, *names: str) -> str:
        """The first of these fields that is a text, with its lines; whole, because half a key is not redacted."""
        values = (self._values.get(name) for name in names)
        return next((lines_of(value) for value in values if isinstance(value, str) and value.strip()), "")

    def first_line(self, *names: str) -> str:
        """The first line, that is not blank, of the first of these fields that is a text; whole, as `message`."""
        values = (self._values.get(name) for name in names)
        return next((first_line(value) for value in values if isinstance(value, str) and value), "")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self._values.get(name)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def count(self, name: str) -> int | None:
        """The length of a list; None if there is no list."""
        value = self._values.get(name)
        return len(value) if isinstance(value, list) else None

    def flag(self, name: str) -> bool:
        """Whether a field is true."""
        return self._values.get(name) is True

    def inner(self, *names: str) -> EventFields:
        """The fields of a nested object; a string that contains JSON is parsed."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str) and value.startswith("{"):
                try:
                    value = json.loads(value)
                except (ValueError, RecursionError):
                    continue
            if isinstance(value, dict):
                return EventFields(value)
        return EventFields({})


def plain(text: str, most: int = _LABEL_MAX) -> str:
    """A text that can be stored and shown: no surrogates, no control characters, shortened."""
    text = text[:most].encode("utf-8", "replace").decode()
    return "".join(each if each.isprintable() else " " for each in text)


def lines_of(text: str) -> str:
    """A message that can be stored and shown: its lines, without control characters. Empty if it is a megabyte."""
    if len(text) > _WHOLE_MAX_CHARS:
        return ""
    return "\n".join(plain(line, _WHOLE_MAX_CHARS) for line in text.strip().splitlines())


def shortened(text: str) -> str:
    """A message that is redacted, cut at a blank if it is long: half a key would not be found any more."""
    if len(text) <= MESSAGE_MAX_CHARS:
        return text
    return text[: MESSAGE_MAX_CHARS - 1].rsplit(None, 1)[0] + "…"


def first_line(text: str) -> str:
    """The first line of a text that is not blank; whole, so that it can be redacted before `label` cuts it."""
    return plain(next((line for line in text.strip().splitlines() if line.strip()), ""), _LINE_MAX)


def label(text: str) -> str:
    """The first line of a text, short. Redact the line before: it is cut at a blank, but a long word is cut, too."""
    line = first_line(text)
    if len(line) <= _LABEL_MAX:
        return line
    whole_words = line[: _LABEL_MAX - 1].rsplit(None, 1)[0]
    return (whole_words if len(whole_words) > _LABEL_MAX // 2 else line[: _LABEL_MAX - 1]) + "…"


def _salvaged(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for edge in (data[-_EDGE_BYTES:], data[:_EDGE_BYTES]):  # the first occurrence wins
        for match in reversed(list(_FIELD.finditer(edge))):
            try:
                found[match[1].decode()] = json.loads(b'"%s"' % match[2])
            except ValueError:
                continue
    return found


class EventKind(StrEnum):
    """What happened."""

    START = "start"  # a session began, or was resumed
    PROMPT = "prompt"  # the user sent a prompt
    BEFORE = "before"  # a tool is about to run
    AFTER = "after"  # a tool ran, or failed
    BATCH = "batch"  # every tool of a step has ended
    SUB_START = "sub-start"
    SUB_STOP = "sub-stop"
    COMPACT = "compact"  # the conversation is about to be shortened
    STOP = "stop"  # the agent's turn is over
    END = "end"  # the session is over
    OTHER = "other"  # not relevant for attribution


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """One event of one agent."""

    agent: str
    kind: EventKind
    name: str
    """The agent's name for it."""
    session: str = ""
    turn: str = ""
    tool: str = ""
    tool_use: str = ""
    sub: str = ""
    """Which sub-agent, for people: its type, or its id."""
    sub_id: str = ""
    cwd: str = ""
    folders: tuple[str, ...] = ()
    """The folders of the project, if the agent reports them."""
    path: str = ""
    """The file that the tool is about."""
    subject: str = ""
    """What the tool call or the prompt is about, in one line for people; the hook redacts and shortens it."""
    transcript: str = ""
    version: str = ""
    model: str = ""
    """The model that the agent uses, if it reports that."""
    permission_mode: str = ""
    reads: bool = False
    """The tool is known to change no file."""
    delegates: bool = False
    """The tool starts a sub-agent."""
    starts: str = ""
    """The type of the sub-agent that the tool starts, if it names one."""
    sub_sessions: bool = False
    """Sub-agents of this agent have sessions of their own, and their events name no parent."""
    closing: str = ""
    """What the agent said at the end of its turn, if it reports that."""
    background: bool = False
    """What the tool started continues after it has ended."""
    uses_git: bool = False
    """The tool is a command that names git, and so may switch the branch."""
    still_running: bool | None = None
    """At the end of a turn: whether open tool calls continue. None: unknown."""

    @property
    def actor(self) -> str:
        """The actor of checkpoints."""
        return f"{self.agent}/{self.sub or self.sub_id}" if self.sub_id or self.sub else self.agent

    @property
    def key(self) -> str:
        """Equal if one event is received twice; empty if that cannot be detected."""
        which = self.tool_use or (self.turn if self.kind is EventKind.PROMPT else "")  # a turn may stop more than once
        return f"{self.kind} {which} {self.sub_id}" if which else ""
