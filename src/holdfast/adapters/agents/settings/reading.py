"""Reading the settings file of somebody else, which may be anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import Refused

_MOST_BYTES = 8 << 20


def read_bytes(path: Path) -> bytes | None:
    """What a settings file holds; None where there is none. Refused for what is no file, or too large a one."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Refused(f"{path} is not a file", hint="Move it away, and try again.")
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refused(f"{path} is a folder", hint="Move it away, and try again.") from None
    if len(data) > _MOST_BYTES:
        raise Refused(f"{path} is larger than {_MOST_BYTES >> 20} MiB", hint="It does not look like settings.")
    return data


def decode(path: Path, data: bytes | None) -> str:
    """Its text. Refused where it is none."""
    try:
        return (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{path} is not UTF-8", hint="Nothing was changed. Save it as UTF-8, and try again.") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would hold us up
