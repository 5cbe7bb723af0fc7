"""The log of the hooks: they may neither fail nor speak, so what went wrong is written here. It never grows large."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.fields import plain
from holdfast.adapters.agents.folders import own_folder

MOST_BYTES = 256 << 10
_LINE_MAX = 1000


def log_file(environ: Mapping[str, str]) -> Path:
    """Where the log is."""
    return Path(own_folder(environ)) / "hook.log"


def log(environ: Mapping[str, str], agent: str, text: str, *, now: datetime) -> None:
    """Add a line; the file before last is dropped when it is full. Never fails."""
    path = log_file(environ)
    line = f"{now.isoformat(timespec='seconds')} {agent}: {plain(text, _LINE_MAX)}\n"
    with contextlib.suppress(OSError):
        durable.make_folder(path.parent)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MOST_BYTES:
                path.replace(path.with_suffix(".log.1"))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode("utf-8", "replace"))
        finally:
            os.close(fd)
