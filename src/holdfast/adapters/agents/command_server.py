"""Commands that the helper runs for other processes: one at a time, each in a thread with the client's surroundings.

A client sends its words, its environment and its open files. The command runs as if the client ran it: with the
client's working directory, umask and environment, and its output goes to the client's own files. What runs it is given
by the command line, which is a layer above this one.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.agents import protocol
from holdfast.adapters.agents.client_process import acts_alike
from holdfast.durable.platform.processes import separate_thread, umask_of

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

_FILES = 4
_CONFIRM_S = 10.0
_LOOK_S = 0.2
_BUG, _INTERRUPTED = 1, 130


class ClientCommand(NamedTuple):
    """A command of a client."""

    words: list[str]
    files: list[int]
    """Its stdin, stdout and stderr."""
    pid: int
    opened: Callable[[Path], Workspace]
    """A watched workspace of the same user, to share its watch."""
    writes: Callable[[], None]
    """To be called before something is written to its files."""


Runner = Callable[[ClientCommand], int | None]
"""Runs a command and returns its exit code; None if it did and wrote nothing because it needs a terminal."""


class CommandServer:
    """Runs commands of clients that could run them themselves."""

    def __init__(
        self, run: Runner, opened: Callable[[Path, Mapping[str, str]], Workspace], retire: Callable[[], None]
    ) -> None:
        """`opened` gives a watched workspace; `retire` is called after a command was interrupted, which can leave
        anything half done in this process: it has to end."""
        self._run = run
        self._opened = opened
        self._retire = retire
        self._own = dict(os.environ)
        self._is_busy = threading.Lock()
        self._environ = os.environ = ThreadEnviron(os.environ)  # type: ignore[assignment]

    @property
    def is_running(self) -> bool:
        """Whether a command is under way. A client that is gone ends it."""
        return self._is_busy.locked()

    def serve(self, connection: socket.socket, request: list[bytes]) -> None:
        """Run a command, if this is one that can be run here now; the client runs any other alone."""
        _, kind, pairs, words = request
        environ = {
            key: value for key, _, value in (os.fsdecode(pair).partition("=") for pair in pairs.split(b"\0") if pair)
        }
        pid = protocol.pid_of(connection)
        if kind != protocol.COMMAND or not acts_alike(pid, environ, self._own):
            return
        if not self._is_busy.acquire(blocking=False):
            return
        files: list[int] = []
        try:
            umask = umask_of(pid)
            connection.sendall(protocol.PROMISED)
            connection.settimeout(_CONFIRM_S)
            if not protocol.receive_confirmation(connection, files) or len(files) != _FILES:
                return  # the client is gone, or runs it alone
            connection.sendall(protocol.BEGUN)
            command = ClientCommand(
                words=[os.fsdecode(word) for word in words.split(b"\0")[:-1]],
                files=files[:3],
                pid=pid,
                opened=lambda folder: self._opened(folder, environ),
                writes=lambda: connection.sendall(protocol.WRITES),
            )
            code = self._run_beside(connection, command, _Surroundings(files[3], umask, environ, self._environ))
            connection.sendall(protocol.ALONE if code is None else b"%d\n" % code)
        finally:
            self._is_busy.release()
            for fd in files:
                os.close(fd)

    def _run_beside(self, connection: socket.socket, command: ClientCommand, surroundings: _Surroundings) -> int | None:
        """Run a command in a thread. Interrupt it when the client says so, or is gone."""
        codes: list[int | None] = []
        ended, end = socket.socketpair()
        with ended, end:

            def work() -> None:
                try:
                    if not surroundings.enter():
                        codes.append(None)
                    else:
                        codes.append(self._run(command))
                finally:
                    end.send(b".")

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            listened: list[socket.socket] = [connection, ended]
            while thread.is_alive():
                ready, _, _ = select.select(listened, [], [], _LOOK_S)
                if ended in ready:
                    thread.join()
                elif ready:  # Ctrl-C, or nobody is there any more: once is enough
                    listened.remove(connection)
                    self._retire()
                    _interrupt(thread)
        if codes:
            return codes[0]
        return _BUG if connection in listened else _INTERRUPTED


class _Surroundings(NamedTuple):
    """What a thread takes over from a client."""

    folder: int
    umask: int
    environ: dict[str, str]
    environs: ThreadEnviron

    def enter(self) -> bool:
        """Let this thread, and no other, have them for the rest of its life; False if that cannot be."""
        if not separate_thread():
            return False
        try:
            os.fchdir(self.folder)
        except OSError:
            return False
        os.umask(self.umask)
        self.environs.set(self.environ)
        return True


def can_serve() -> bool:
    """Whether threads can have a working directory of their own here: in some containers they cannot."""
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(separate_thread()))
    thread.start()
    thread.join()
    return found == [True]


class ThreadEnviron(MutableMapping[str, str]):
    """`os.environ`, with other variables in a thread that runs a command for a client."""

    def __init__(self, own: MutableMapping[str, str]) -> None:
        self._own = own
        self._local = threading.local()

    def set(self, variables: MutableMapping[str, str]) -> None:
        """Let this thread see these variables from now on."""
        self._local.variables = variables

    @property
    def variables(self) -> MutableMapping[str, str]:
        """The variables of this thread."""
        found: MutableMapping[str, str] | None = getattr(self._local, "variables", None)
        return self._own if found is None else found

    def __getitem__(self, name: str) -> str:
        return self.variables[name]

    def __setitem__(self, name: str, value: str) -> None:
        self.variables[name] = value

    def __delitem__(self, name: str) -> None:
        del self.variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def copy(self) -> dict[str, str]:
        """A copy, as `os.environ.copy()` makes one."""
        return dict(self.variables)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**self.variables, **other}

    def __ror__(self, other: Mapping[str, str]) -> dict[str, str]:
        return {**other, **self.variables}


def _interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
