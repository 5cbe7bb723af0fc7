"""Running the user's command, for `guard` and `bisect`."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.cli import streams
from holdfast.errors import NotFound, Refused, Unavailable


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    """As a shell would tell it: 128 and the number of the signal that ended it."""
    interrupted: bool
    """Whether there was a Ctrl-C meanwhile, whatever the command made of it."""


def run(
    words: Sequence[str], *, folder: Path | None = None, environ: Mapping[str, str] | None = None, aside: bool
) -> Ended:
    """Run a command with our streams, and wait for it; Ctrl-C is for the command to answer.

    aside: what it prints goes to stderr, because stdout is for the answer.
    """
    import subprocess  # start-up cost, for these commands only

    streams.flush()
    try:
        with _Interrupts() as interrupts:
            process = subprocess.Popen(
                list(words), cwd=folder, env=os.environ | (environ or {}), stdout=2 if aside else None
            )
            try:
                status = process.wait()
            except KeyboardInterrupt:  # of the caller, who took SIGTERM for it; it would go on without us
                process.terminate()
                process.wait()
                raise
    except FileNotFoundError:
        raise NotFound(f"there is no command {shown(words[:1])}", hint="Nothing was run.") from None
    except OSError as error:
        what = f"{shown(words[:1])} cannot be run: {error.strerror}"
        raise Unavailable(what, hint="Nothing was run.") from None
    except ValueError:
        raise Refused(f"{words[0]!r} cannot be run", hint="A command has no NUL; nothing was run.") from None
    return Ended(status if status >= 0 else 128 - status, interrupts.seen)


class _Interrupts:
    """For its time Ctrl-C is noted and does nothing else; the command on the same terminal gets it too."""

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def __enter__(self) -> _Interrupts:
        with contextlib.suppress(ValueError):  # not the main thread, where Ctrl-C does not arrive
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, *_: object) -> None:
        self.seen = True


def shown(words: Sequence[str]) -> str:
    """Return a command as it would be typed."""
    return shlex.join(words)
