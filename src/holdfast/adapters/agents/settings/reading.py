"""Reading the settings file of somebody else, which may be anything."""

from __future__ import annotations

import errno
from pathlib import Path

from holdfast import durable
from holdfast.errors import Refused

_MOST_BYTES = 8 << 20


def read_bytes(path: Path) -> bytes | None:
    """What a settings file holds; None where there is none. Refused for what is no file, or too large a one."""
    try:
        return durable.read_file(path, max_bytes=_MOST_BYTES)
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise Refused(f"{path} is a folder", hint="Move it away, and try again.") from None
    except OSError as error:
        if error.errno == errno.EFBIG:
            size = f"{_MOST_BYTES >> 20} MiB"
            raise Refused(f"{path} is larger than {size}", hint="It does not look like settings.") from None
        if error.errno == errno.EINVAL:
            raise Refused(f"{path} is not a file", hint="Move it away, and try again.") from None
        raise


def decode(path: Path, data: bytes | None) -> str:
    """Its text. Refused where it is none."""
    try:
        return (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{path} is not UTF-8", hint="Nothing was changed. Save it as UTF-8, and try again.") from None
