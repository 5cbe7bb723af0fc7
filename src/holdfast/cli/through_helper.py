"""A command that the background helper runs for this process: what is sent to it, and when the command runs alone.

Only a few commands go there, and only if nothing about this process is unusual. The helper writes to this process's own
stdout and stderr. Until it has promised to run the command, which it must within `WAIT_S`, the command can still run
alone; the helper begins only after this process has confirmed, so no command ever runs twice.

This imports only what Python has loaded anyway, `_socket` and `protocol`: it stands before every command.
"""

from __future__ import annotations

import _socket
import os
import sys
import time

from holdfast.adapters.agents import protocol

TYPE_CHECKING = False  # `typing` is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_S = 0.05
"""The most that a helper which does not answer may cost."""
_READING = ("status", "log", "diff")
_COMMANDS = (*_READING, "save", "restore", "undo")
_WITH_VALUE = ("-C", "--directory", "--store", "--color")
_HARMLESS = (
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHASHSEED",
    "PYTHONSTARTUP",
    "PYTHONPYCACHEPREFIX",
    "PYTHONNOUSERSITE",
    "PYTHONSAFEPATH",
    "PYTHON_HISTORY",
    # Not of Python: of make and node-gyp, and of the images of Python for containers
    *("PYTHON", "PYTHON_VERSION", "PYTHON_SHA256", "PYTHON_PIP_VERSION", "PYTHON_SETUPTOOLS_VERSION"),
    *("PYTHON_GET_PIP_URL", "PYTHON_GET_PIP_SHA256"),
)
"""Variables that do not change what a command prints."""
_ALONE_WITH = ("HOLDFAST_DEBUG", "_HOLDFAST_COMPLETE")
_INTERRUPTED = 130


def ask(words: Sequence[str], *, wait_s: float = WAIT_S) -> int | None:
    """Have the helper run a command and return its exit code; None if the command has to run alone, as it has to if the
    helper does not accept it within `wait_s`."""
    command = command_of(words)
    if command not in _COMMANDS or any(_means_this_process(word) for word in words) or not _is_usual():
        return None
    here = folder = -1
    try:
        folder = protocol.open_socket_folder(os.environ)
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return _Asked(words, command, wait_s).run(folder, [0, 1, 2, here])
    except OSError:
        return None  # there is no helper, or it said nothing in time, and so it does nothing
    finally:
        for fd in (folder, here):
            if fd >= 0:
                os.close(fd)


def command_of(words: Sequence[str]) -> str:
    """The command among the words; `status` if there is none, which is what `holdfast` alone shows."""
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif not word.startswith("-"):
            return word
    return "" if words else "status"


def _means_this_process(word: str) -> bool:
    """Whether a word names an open file of this process, as `<(...)` of a shell does, or may do so."""
    return word == "-" or word.endswith("=-") or "/dev/" in word or "/proc/" in word


def _is_usual() -> bool:
    """Whether this process writes as the helper would: UTF-8, all three streams open, no options of Python."""
    environ = os.environ
    if environ.get("HOLDFAST_HELPER") == "0" or any(name in environ for name in _ALONE_WITH):
        return False
    if any(name.startswith("PYTHON") and name not in _HARMLESS for name in environ):
        return False
    flags = sys.flags
    if flags.optimize or flags.dev_mode or flags.verbose or flags.inspect or flags.utf8_mode or sys.warnoptions:
        return False
    if not os.path.isabs(environ.get("HOME", "")):
        return False
    return all(stream is not None and stream.encoding == "utf-8" for stream in (sys.stdin, sys.stdout, sys.stderr))


class _Asked:
    """One command, and how far the helper is with it."""

    def __init__(self, words: Sequence[str], command: str, wait_s: float) -> None:
        self._wait_s = wait_s
        self._words = words
        self._command = command
        self._is_confirmed = self._is_begun = self._has_output = False

    def run(self, folder: int, fds: list[int]) -> int | None:
        """Return the exit code; None if the command has to run alone. OSError if the helper did not accept it."""
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            self._offer(connection, folder)
            self._is_confirmed = True  # first: from here on Ctrl-C is for the helper
            protocol.confirm(connection, fds)
            return self._code(self._answer(connection))
        except KeyboardInterrupt:
            if not self._is_confirmed:
                return _INTERRUPTED
            return self._interrupt(connection)
        finally:
            connection.close()

    def _offer(self, connection: _socket.socket, folder: int) -> None:
        """Send the command and wait for the promise to run it. OSError if there is none in time."""
        end = time.monotonic() + self._wait_s
        identity = protocol.identity(os.environ)
        connection.settimeout(self._wait_s)
        connection.connect(protocol.socket_path(folder, protocol.socket_name(identity)))
        if not protocol.is_same_user(connection):
            raise OSError("the socket of another user")
        environ = b"\0".join(key + b"=" + value for key, value in os.environb.items())
        words = b"".join(os.fsencode(word) + b"\0" for word in self._words)
        connection.sendall(protocol.pack_request([identity, protocol.COMMAND, environ, words]))
        connection.settimeout(max(end - time.monotonic(), 0.001))
        if connection.recv(1) != protocol.PROMISED:
            raise OSError("the helper does not run this command")
        connection.settimeout(None)

    def _answer(self, connection: _socket.socket) -> bytes:
        """What the helper says at the end; empty if it died."""
        answer = b""
        while not answer.endswith(b"\n"):
            piece = connection.recv(64)
            if not piece:
                return b""
            answer += piece
            while answer[:1] in (protocol.BEGUN, protocol.WRITES):
                self._is_begun = True
                self._has_output |= answer[:1] == protocol.WRITES
                answer = answer[1:]
        return answer

    def _code(self, answer: bytes) -> int | None:
        if answer == protocol.ALONE:  # it did nothing, and wrote nothing
            return None
        if answer:
            return int(answer)
        if not self._is_begun or (self._command in _READING and not self._has_output):
            return None
        from holdfast.cli.main import helper_died  # start-up cost, only then

        return helper_died(self._words)

    def _interrupt(self, connection: _socket.socket) -> int:
        """Pass Ctrl-C on and wait for the end; after a second one, do not wait."""
        try:
            connection.sendall(protocol.INTERRUPT)
            answer = self._answer(connection)
        except (OSError, KeyboardInterrupt):
            return _INTERRUPTED
        return _INTERRUPTED if answer in (b"", protocol.ALONE) else int(answer)
