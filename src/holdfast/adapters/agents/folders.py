"""Where the hooks keep what belongs to no workspace. Imports nothing but `os`: the client has milliseconds."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def own_folder(environ: Mapping[str, str]) -> str:
    """The folder of the log, of backups of settings, and of what was installed."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "holdfast", "agents")


def socket_folder(environ: Mapping[str, str]) -> str:
    """The folder of the helper's socket: private to the user."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "holdfast") if os.path.isabs(runtime) else os.path.join(own_folder(environ), "run")
