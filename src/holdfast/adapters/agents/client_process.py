"""Whether the helper may act for another process: only for one that could do the same itself, in the same way.

A process in a sandbox or a container must not get out of it through the helper, and a limit that a process runs under
must hold for what is done in its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.durable.platform.processes import rights_of

_VARIABLES = ("TZ", "TZDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "HOLDFAST_NATIVE", "TMPDIR", "TEMP", "TMP")
"""Variables that C code, or a module once it is used, has read: they cannot be other ones later."""


def acts_alike(pid: int, environ: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a process has the same rights, limits and view of the system as this one. `environ` is its environment,
    `own` the one that this process was started with."""
    try:
        if any(environ.get(name) != own.get(name) for name in _VARIABLES):
            return False
        return rights_of(pid) == rights_of(os.getpid())
    except (OSError, ValueError):  # it is gone, or may not be looked at
        return False
