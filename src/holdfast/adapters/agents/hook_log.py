"""The log of the hooks, which may neither fail nor print: errors are written here. Its size is limited."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.event import plain
from holdfast.adapters.agents.protocol import state_folder

MAX_BYTES = 256 << 10
_LINE_MAX = 1000


def log_file(environ: Mapping[str, str]) -> Path:
    """The path of the log."""
    return Path(state_folder(environ)) / "hook.log"


def log(environ: Mapping[str, str], agent: str, text: str, *, now: datetime) -> None:
    """Add a line; a full file is renamed, replacing the previous one. Never fails."""
    path = log_file(environ)
    line = f"{now.isoformat(timespec='seconds')} {agent}: {plain(text, _LINE_MAX)}\n"
    with contextlib.suppress(OSError):
        durable.make_folder(path.parent)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_BYTES:
                path.replace(path.with_suffix(".log.1"))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode("utf-8", "replace"))
        finally:
            os.close(fd)
