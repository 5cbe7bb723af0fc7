"""Running somebody's command, for `guard` and `bisect`."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.cli import output
from holdfast.errors import NotFound, Unavailable

INTERRUPTED = 130


def run(
    words: Sequence[str], *, folder: Path | None = None, environ: Mapping[str, str] | None = None, aside: bool
) -> int:
    """Run a command with our streams and return its exit status, that of a shell if a signal ended it.

    aside: what it prints goes to stderr, because stdout is for the answer. Ctrl-C is for the command to answer.
    """
    import subprocess  # start-up cost, for these commands only

    output.flush()
    try:
        process = subprocess.Popen(
            list(words), cwd=folder, env=os.environ | (environ or {}), stdout=2 if aside else None
        )
    except FileNotFoundError:
        raise NotFound(f"there is no command {words[0]}", hint="Nothing was run.") from None
    except OSError as error:
        raise Unavailable(f"{words[0]} cannot be run: {error.strerror}", hint="Nothing was run.") from None
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # it got the same signal; what it makes of it is its answer
            status = process.wait()
            return status if status >= 0 else 128 - status


def shown(words: Sequence[str]) -> str:
    """Return a command as it would be typed."""
    return shlex.join(words)
