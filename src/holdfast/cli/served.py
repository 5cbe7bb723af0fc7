"""Running a command in the background helper, for another process: the same program, with that process's streams.

Output is held back until the end, unless it is long or the command shows progress. So a command that turns out to need
a terminal, for a question or a pager, can still run alone instead. `through_helper` is the other side.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from holdfast.cli import caller, main
from holdfast.errors import HoldfastError, Refused

if TYPE_CHECKING:
    from holdfast.adapters.agents.command_server import ClientCommand
    from holdfast.workspace import Workspace

_HELD_MAX_BYTES = 1 << 18
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def load() -> Callable[[ClientCommand], int | None]:
    """Load all that commands need, and return what runs one."""
    import holdfast.cli.commands.restore
    import holdfast.cli.commands.save
    import holdfast.cli.commands.undo
    import holdfast.cli.fast_log
    import holdfast.cli.fast_restore
    import holdfast.cli.fast_save
    import holdfast.cli.group
    import holdfast.cli.status_output
    import holdfast.cli.turns
    import holdfast.workspace.engine
    import holdfast.workspace.location
    import holdfast.workspace.restore.restore
    import holdfast.workspace.stored.diff  # noqa: F401  loaded for the first command

    threading.excepthook = lambda _: None  # a failing thread must not write to the streams of a client
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    gc.freeze()  # what is loaded stays: collections need not look at it
    return run


def run(command: ClientCommand) -> int | None:
    """Run a command and return its exit code; None if it has to run alone, and has done and written nothing."""
    served = Served(command)
    streams = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
    before = {name: getattr(sys, name) for name in streams}
    made = (served.stdin, served.stdout, served.stderr)
    try:
        for name, stream in zip(streams, made + made, strict=True):
            setattr(sys, name, stream)
        caller.current = served
        return main.main(command.words)
    except caller.NeedsTerminal:
        return None
    finally:
        caller.current = None
        for name, stream in before.items():
            setattr(sys, name, stream)
        served.close()


class Served:
    """The process that a command runs for: its streams, and the workspaces that were opened for it."""

    def __init__(self, command: ClientCommand) -> None:
        self.pid = command.pid
        self.thread = threading.get_ident()
        self._opened = command.opened
        self._writes = command.writes
        self._environ = os.environ
        self._variables = getattr(os.environ, "variables", None)
        self._workspaces: list[Workspace] = []
        self._held: list[tuple[int, bytes]] | None = []
        self._held_bytes = 0
        self._is_discarded = False
        stdin, stdout, stderr = command.files
        self.stdin = _Input(stdin)
        self.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(stdout, self)), "utf-8", "strict", "\n", os.isatty(stdout)
        )
        self.stderr = io.TextIOWrapper(
            io.BufferedWriter(_Output(stderr, self)), "utf-8", "backslashreplace", "\n", line_buffering=True
        )

    def write(self, fd: int, data: bytes) -> int | None:
        """Write to a stream of the process, or hold it back."""
        if self._is_discarded:
            return len(data)
        if self._held is None:
            try:
                return os.write(fd, data)
            except BlockingIOError:
                return None
        self._held.append((fd, data))
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_MAX_BYTES:
            for _, error in self.release_output():
                raise error
        return len(data)

    def release_output(self) -> list[tuple[TextIO, OSError]]:
        """Write what was held back, in its order, and hold back no more; return the streams that failed, and why."""
        failed: dict[int, OSError] = {}
        if self._held is None or self._is_discarded:
            return []
        held, self._held = self._held, None
        if held:
            self._writes()
        for fd, data in held:
            try:
                if fd not in failed:
                    _write_all(fd, data)
            except OSError as error:
                failed[fd] = error
        return [(self.stdout if fd == self.stdout.fileno() else self.stderr, error) for fd, error in failed.items()]

    def discard_output(self) -> None:
        """Drop what was held back and all that follows. Refused if something was written already."""
        if self._held is None:
            raise Refused("needs a terminal", hint="Run it again with HOLDFAST_HELPER=0.")
        self._is_discarded = True

    def share_watch(self, workspace: Workspace) -> None:
        """Let a workspace use the helper's watch of the same folder."""
        self._workspaces.append(workspace)
        with contextlib.suppress(HoldfastError, OSError):  # it works without
            workspace.share_watch(self._opened(workspace.path))

    def in_thread(self, function: Callable[[], None]) -> Callable[[], None]:
        """The same function, with the variables of the process in whatever thread calls it."""

        def bound() -> None:
            self._environ.set(self._variables)  # type: ignore[attr-defined]  # `ThreadEnviron`, in the helper
            function()

        return bound

    def close(self) -> None:
        """Close what the command opened."""
        for workspace in self._workspaces:
            with contextlib.suppress(HoldfastError, OSError):
                workspace.close()


class _Output(io.RawIOBase):
    """A stream of the process."""

    def __init__(self, fd: int, served: Served) -> None:
        self._fd = fd
        self._served = served

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, data: object) -> int | None:
        return self._served.write(self._fd, bytes(data))  # type: ignore[call-overload]  # any buffer


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:  # the process made it so
            select.select([], [fd], [])


class _Input:
    """The stdin of the process: it can be looked at. A command that reads it runs alone."""

    encoding = "utf-8"
    closed = False

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._fd)

    def fileno(self) -> int:
        """Its number in this process."""
        return self._fd

    def __getattr__(self, name: str) -> object:
        caller.need_terminal()
        raise AttributeError(name)
