"""Translation of `OSError` into `Unavailable`, with a hint for the usual causes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator

from holdfast.errors import Unavailable

_FULL = "Free some disk space; pruning, and deleting all but the newest checkpoint, need none."
_TOO_MANY_FILES = "Close some files, or raise the limit (ulimit -n)."
_DENIED = "Check the permissions, or choose another folder."
_HINTS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: "The disk is read-only: checkpoints can be read and exported there, but not saved.",
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
}


@contextlib.contextmanager
def os_errors(path: str | os.PathLike[str], action: str = "", *, outcome: str = "") -> Iterator[None]:
    """Raise Unavailable in place of an OSError of the block.

    The message has the `action`, such as "writing to", with the `path`; without one, the file that the system names.
    `outcome` is a sentence that ends the hint: what the failure left behind.
    """
    try:
        yield
    except OSError as error:
        raise unavailable(error, path, action, outcome=outcome) from error


def unavailable(error: OSError, path: str | os.PathLike[str], action: str = "", *, outcome: str = "") -> Unavailable:
    """Return the error that `os_errors` raises."""
    named = error.filename if isinstance(error.filename, str | bytes) else path
    what = f"{action} {os.fspath(path)} failed" if action else os.fsdecode(named)
    hint = _HINTS.get(error.errno or 0, "Check the disk and the permissions there.")
    if isinstance(error, PermissionError):
        hint = _other_owner(named, path) or hint
    return Unavailable(f"{what}: {error.strerror or error}", hint=f"{hint} {outcome}".rstrip())


def _other_owner(file: str | bytes | os.PathLike[str], folder: str | os.PathLike[str]) -> str:
    """Say how to take over a file below `folder` that another user made, as `sudo` does; empty if that is not it."""
    import shlex  # start-up cost, for this error only

    with contextlib.suppress(OSError, ValueError):
        name, above = os.fsdecode(file), os.fspath(folder)
        if (
            sys.platform != "win32"
            and os.path.commonpath([name, above]) == above
            and os.lstat(name).st_uid != (me := os.geteuid())
        ):
            return f"Another user owns it, as after sudo. Take it over: sudo chown -R {me} {shlex.quote(above)}"
    return ""
