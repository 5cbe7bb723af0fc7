"""The agent sessions of a workspace on disk: one small file in its store, changed under its own lock.

Each change is a new file with a higher number; the previous one is removed afterwards. Nothing is renamed or synced: a
kill leaves the old file or the new one whole (P3), a checksum detects a torn one, and after a power loss no tool is
running. Renaming over the old file would write to the disk each time, which would be most of what a hook waits for.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from holdfast import durable
from holdfast.adapters.agents.attribution import (
    AgentSession,
    AgentSessions,
    AgentTurn,
    LastEvent,
    OpenToolCall,
    SubAgent,
)
from holdfast.adapters.agents.parent_process import session_folder

FORMAT = 2
_ALSO = {"float": "int"}  # in JSON, a number without a fraction
_PREFIX = "windows-"  # of the files' names, which are stored


class SessionFile:
    """Reads and writes the sessions. Keep `lock` from reading to writing (P9)."""

    def __init__(self, store: Path) -> None:
        self._folder = session_folder(store)
        durable.make_folder(self._folder)
        self.lock = durable.Lock(self._folder / "lock")

    def read(self) -> AgentSessions:
        """The sessions; none if there is no valid file."""
        return read_sessions(self._folder)

    def write(self, known: AgentSessions) -> None:
        """Replace them."""
        before = _numbers(self._folder)
        text = json.dumps({"format": FORMAT, **_plain(known)}, separators=(",", ":")).encode()
        fd = durable.disk().create(str(_path(self._folder, before[0] + 1 if before else 1)))
        try:
            durable.disk().write(fd, b"%08x\n%s\n" % (crc32(text), text))
        finally:
            os.close(fd)
        for number in before:
            durable.disk().unlink(str(_path(self._folder, number)))


def read_sessions(folder: Path) -> AgentSessions:
    """Read the newest file that is whole. If none is, changes are attributed to the user."""
    for number in _numbers(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            return _decoded(_path(folder, number).read_bytes())
    return AgentSessions()


def _decoded(data: bytes) -> AgentSessions:
    checksum, text = data.splitlines()
    stored = durable.parse_json(text)
    if int(checksum, 16) != crc32(text) or stored["format"] != FORMAT:
        raise ValueError("torn, or another format")
    sessions = {key: _session(value) for key, value in stored["sessions"].items()}
    fired = {agent: _checked(LastEvent(**value)) for agent, value in stored["fired"].items()}
    return _checked(AgentSessions(sessions, fired, stored.get("branch", "")))


def _session(value: dict[str, Any]) -> AgentSession:
    texts = {name: tuple(value[name]) for name in ("seen", "told")}
    calls = {name: tuple(_checked(OpenToolCall(**each)) for each in value[name]) for name in ("open", "background")}
    turns = tuple(_checked(AgentTurn(**{**each, "sub_ids": tuple(each["sub_ids"])})) for each in value.get("turns", ()))
    subs = tuple(_checked(SubAgent(**each)) for each in value.get("sub_agents", ()))
    return _checked(AgentSession(**{**value, **texts, **calls, "turns": turns, "sub_agents": subs}))


_Made = TypeVar("_Made", AgentSessions, AgentSession, AgentTurn, OpenToolCall, SubAgent, LastEvent)


def _checked(made: _Made) -> _Made:
    """Return what was made of stored values. TypeError if a field is of another type than the class says."""
    for field in fields(made):
        value = getattr(made, field.name)
        kind = str(field.type)
        if type(value).__name__ not in (kind, kind.partition("[")[0], _ALSO.get(kind)):
            raise TypeError(f"{field.name} is of a wrong type")
        if kind == "tuple[str, ...]" and not all(type(each) is str for each in value):
            raise TypeError(f"{field.name} is no list of texts")
    return made


def _plain(known: AgentSessions) -> dict[str, Any]:
    sessions = {
        key: {
            **_fields(session),
            "open": [*map(_fields, session.open)],
            "background": [*map(_fields, session.background)],
            "turns": [*map(_fields, session.turns)],
            "sub_agents": [*map(_fields, session.sub_agents)],
        }
        for key, session in known.sessions.items()
    }
    fired = {agent: _fields(fired) for agent, fired in known.fired.items()}
    return {"sessions": sessions, "fired": fired, "branch": known.branch}


def _fields(value: AgentSession | AgentTurn | OpenToolCall | SubAgent | LastEvent) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _numbers(folder: Path) -> list[int]:
    """The numbers of the existing files, newest first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    ends = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    return sorted((int(end) for end in ends if end.isdigit()), reverse=True)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number}"
