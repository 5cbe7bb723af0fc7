"""The windows of a workspace on disk: one small file in its store, replaced in one step, under a lock of its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.adapters.agents.windows import Fired, Session, Window, Windows

FORMAT = 1


class Ledger:
    """Reads and writes the windows. Whoever changes them holds `lock` from the reading to the writing (P9)."""

    def __init__(self, store: Path, *, timeout_s: float = 600.0) -> None:
        self._folder = store / "holdfast" / "agents"
        self._path = self._folder / "windows.json"
        durable.make_folder(self._folder)
        self.lock = durable.Lock(self._folder / "lock", timeout_s=timeout_s)

    def read(self) -> Windows:
        """The windows; none where there is no file, or one that makes no sense."""
        return read_windows(self._path)

    def write(self, windows: Windows) -> None:
        """Replace them."""
        text = json.dumps({"format": FORMAT, **asdict(windows)}, separators=(",", ":"))
        durable.write_atomically(self._path, text.encode())


def windows_file(store: Path) -> Path:
    """Where the windows of a store are."""
    return store / "holdfast" / "agents" / "windows.json"


def read_windows(path: Path) -> Windows:
    """Read a file of windows. What cannot be read is forgotten: then changes are taken for the user's."""
    try:
        said = json.loads(path.read_bytes())
        if said["format"] != FORMAT:
            return Windows()
        sessions = {key: _session(value) for key, value in said["sessions"].items()}
        fired = {agent: Fired(**value) for agent, value in said["fired"].items()}
        return Windows(sessions, fired)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Windows()


def _session(value: dict[str, Any]) -> Session:
    texts = {name: tuple(value[name]) for name in ("background", "seen", "told")}
    return Session(**{**value, **texts, "open": tuple(Window(**each) for each in value["open"])})
