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


def _whose(place: object, store: Path) -> str:
    """How to get back what another user made in the store, as `sudo holdfast` does; empty if that is not it."""
    import shlex  # start-up cost, for this error only

    with contextlib.suppress(OSError, TypeError, ValueError):
        file = Path(os.fsdecode(place))  # type: ignore[arg-type]  # no path: TypeError
        if file.is_relative_to(store) and file.lstat().st_uid != (me := os.geteuid()):
            return f"It is another user's, as after sudo; make it yours: sudo chown -R {me} {shlex.quote(str(store))}"
    return ""


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
        if isinstance(error, PermissionError):
            hint = _whose(place, store) or hint
        raise Unavailable(
            f"{os.fsdecode(place) if isinstance(place, str | bytes) else place}: {error.strerror or error}",
            hint=f"{hint}; nothing was saved or changed.",
        ) from error
