"""What the system refuses, said plainly."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import HoldfastError, Unavailable

_FULL = "Make room: pruning, and deleting all but the newest, need none"
_FEWER = "Close some files, or raise the limit (ulimit -n)"
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "Checkpoints there can be read and exported, not made",
    errno.EMFILE: _FEWER,
    errno.ENFILE: _FEWER,
}


@contextlib.contextmanager
def plain_errors(store: Path) -> Iterator[None]:
    """What the system refuses becomes one sentence and a hint."""
    try:
        yield
    except HoldfastError:
        raise
    except OSError as error:
        place = error.filename or store
        hint = _HINTS.get(error.errno or 0, "Check the disk and the permissions there")
        raise Unavailable(
            f"{os.fsdecode(place) if isinstance(place, str | bytes) else place}: {error.strerror or error}",
            hint=f"{hint}; nothing was saved or changed.",
        ) from error
