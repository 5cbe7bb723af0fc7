"""Errors of the system, as errors of ours."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import Unavailable

_HINTS = {
    errno.ENOSPC: "Free some space and save again; every earlier checkpoint is as it was.",
    errno.EDQUOT: "Free some space and save again; every earlier checkpoint is as it was.",
    errno.EROFS: "Choose a folder that can be written to.",
    errno.EACCES: "Choose a folder that you may use, or change its permissions.",
    errno.EPERM: "Choose a folder that you may use, or change its permissions.",
}


@contextlib.contextmanager
def system_errors(doing: str, path: Path) -> Iterator[None]:
    """Raise Unavailable, with what was being done, where the system says no."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "Fix that and try again.")
        raise Unavailable(f"{doing} {path} failed: {error.strerror or error}", hint=hint) from error
