"""The windows of a workspace on disk: one small file in its store, changed under a lock of its own.

Each change is a new file with a higher number; the one before goes afterwards. Nothing is renamed or synced: a kill
leaves the old file or the new one whole (P3), a checksum tells a torn one, and after a power loss no tool is running.
A rename over the old file would have the disk written to each time, which is most of what a hook would wait for.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32

from holdfast import durable
from holdfast.adapters.agents.owner import is_within
from holdfast.adapters.agents.windows import Fired, Session, Window, Windows

FORMAT = 2
_PREFIX = "windows-"


class Ledger:
    """Reads and writes the windows. Whoever changes them holds `lock` from the reading to the writing (P9)."""

    def __init__(self, store: Path) -> None:
        self._folder = ledger_folder(store)
        durable.make_folder(self._folder)
        self.lock = durable.Lock(self._folder / "lock")

    def read(self) -> Windows:
        """The windows; none where there is no file, or none that makes sense."""
        return read_windows(self._folder)

    def write(self, windows: Windows) -> None:
        """Replace them."""
        before = _numbers(self._folder)
        text = json.dumps({"format": FORMAT, **_plain(windows)}, separators=(",", ":")).encode()
        fd = durable.disk().create(str(_path(self._folder, before[0] + 1 if before else 1)))
        try:
            durable.disk().write(fd, b"%08x\n%s\n" % (crc32(text), text))
        finally:
            os.close(fd)
        for number in before:
            durable.disk().unlink(str(_path(self._folder, number)))


def ledger_folder(store: Path) -> Path:
    """Where the windows of a store are."""
    return store / "holdfast" / "agents"


def tool_around(store: Path, pid: int) -> tuple[Session, Window, list[str]] | None:
    """The tool of an agent that a process runs in: the latest that is open in a session that the process comes from;
    and who else has one open, and may have changed something meanwhile."""
    sessions = read_windows(ledger_folder(store)).sessions.values()
    for session in sorted(sessions, key=lambda each: each.at, reverse=True):
        if session.open and is_within(pid, session.owner):
            tool = session.open[-1]
            actors = {window.actor for each in sessions for window in each.open}
            return session, tool, sorted(actors - {tool.actor})
    return None


def read_windows(folder: Path) -> Windows:
    """Read the newest file that is whole. What cannot be read is forgotten: then changes are taken for the user's."""
    for number in _numbers(folder):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            return _decoded(_path(folder, number).read_bytes())
    return Windows()


def _decoded(data: bytes) -> Windows:
    checksum, text = data.splitlines()
    said = json.loads(text)
    if int(checksum, 16) != crc32(text) or said["format"] != FORMAT:
        raise ValueError("it is torn, or of another format")
    sessions = {key: _session(value) for key, value in said["sessions"].items()}
    return Windows(sessions, {agent: Fired(**value) for agent, value in said["fired"].items()})


def _session(value: dict[str, Any]) -> Session:
    texts = {name: tuple(value[name]) for name in ("seen", "told")}
    windows = {name: tuple(Window(**each) for each in value[name]) for name in ("open", "background")}
    return Session(**{**value, **texts, **windows})


def _plain(windows: Windows) -> dict[str, Any]:
    sessions = {
        key: {
            **_fields(session),
            "open": [*map(_fields, session.open)],
            "background": [*map(_fields, session.background)],
        }
        for key, session in windows.sessions.items()
    }
    return {"sessions": sessions, "fired": {agent: _fields(fired) for agent, fired in windows.fired.items()}}


def _fields(noun: Session | Window | Fired) -> dict[str, Any]:
    return {field.name: getattr(noun, field.name) for field in fields(noun)}


def _numbers(folder: Path) -> list[int]:
    """The numbers of the files that are there, newest first."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    ends = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
    return sorted((int(end) for end in ends if end.isdigit()), reverse=True)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{_PREFIX}{number}"
