"""For whom a command runs: for this process itself or, in the background helper, for another one.

`current` is None in a process of its own. Commands ask here for what differs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.cli.served import Served
    from holdfast.workspace import Workspace

current: Served | None = None
wants_helper = False
"""Whether the configuration of an opened workspace says that commands are to use a helper."""


class NeedsTerminal(BaseException):
    """A command that runs in the helper has to ask somebody, or to show more than fits: it runs alone instead."""


def pid() -> int:
    """The process that runs the command."""
    return os.getpid() if current is None else current.pid


def opened(workspace: Workspace) -> None:
    """Note a workspace that scans: in the helper it uses the watch that is there."""
    if current is not None:
        current.share_watch(workspace)


def need_terminal() -> None:
    """In the helper: stop, and have the command run alone."""
    if current is not None:
        _stop(current)


def _stop(served: Served) -> NoReturn:
    served.discard_output()
    raise NeedsTerminal


def show_now() -> list[tuple[TextIO, OSError]]:
    """In the helper: write what was held back, and everything from here on at once; return the streams that failed."""
    return [] if current is None else current.release_output()


def in_thread(function: Callable[[], None]) -> Callable[[], None]:
    """The same function, for a thread that the command starts."""
    return function if current is None else current.in_thread(function)
