"""The command that agents run: a small script at a path that never changes.

Agents that ask the user to trust a hook ask again when its text changes. So the entries name this script, and only the
script names the interpreter: Holdfast can be upgraded, or installed elsewhere, and the entries stay as they are. It
also starts faster than the script that pip writes, and if Holdfast was removed or is broken it succeeds silently.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import holdfast
from holdfast import durable
from holdfast.adapters.agents.protocol import state_folder
from holdfast.adapters.agents.settings.ownership import give_ours, make_ours

_CODE = """\
import sys
sys.path.append({!r})
try:
 from holdfast.cli.start import main
 code = main()
except Exception:
 code = 0
sys.exit(code)
"""


def shim_path(environ: Mapping[str, str]) -> Path:
    """The path of the script."""
    return Path(state_folder(environ)) / "bin" / "holdfast"


def shim_text(python: str) -> str:
    """The script. -P prevents imports from the agent's working directory, and -E those from its environment variables,
    which are meant for the project's Python. Holdfast is found by the path of this installation.

    It is called without arguments by programs that read the settings of Claude Code and do not support `args`: an old
    version of it, Copilot, VS Code. Printing help with status 2 would block each of their tools.
    """
    ours = str(Path(holdfast.__file__).parent.parent)
    quoted, code = shlex.quote(python), shlex.quote(_CODE.format(ours))
    lines = (
        "#!/bin/sh",
        f"[ -x {quoted} ] || exit 0",
        "[ $# -gt 0 ] || set -- hook claude-code",
        f'exec {quoted} -E -P -c {code} "$@"',
    )
    return "\n".join(lines) + "\n"


def write_shim(environ: Mapping[str, str], python: str) -> None:
    """Write the script, or update it for this interpreter."""
    path, text = shim_path(environ), shim_text(python)
    if is_current(environ, python):
        return
    make_ours(path.parent)
    with durable.Lock(path.parent / "lock"):
        durable.write_atomically(path, text.encode(), mode=0o700)
    give_ours(environ)  # the agent runs as that user


def is_current(environ: Mapping[str, str], python: str) -> bool:
    """Whether the script exists and names this interpreter."""
    try:
        path = shim_path(environ)
        return path.read_text("utf-8") == shim_text(python) and bool(path.stat().st_mode & 0o100)
    except (OSError, UnicodeDecodeError):
        return False
