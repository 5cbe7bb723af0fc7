"""The process that an agent starts for each event: passes the event to the background helper, and exits.

It imports only what Python has loaded anyway, `_socket` and `select`: most of what a hook costs is starting Python. If
no helper answers, it forks a child that does the work and then stays as the helper. Either way the answer comes when
the checkpoint is durable, or when the agent would stop waiting. The exit status is always 0.
"""

from __future__ import annotations

import _socket
import os

from holdfast.adapters.agents.protocol import (
    identity,
    is_same_user,
    open_socket_folder,
    pack_request,
    receive_reply,
    socket_name,
    socket_path,
)

TYPE_CHECKING = False  # `typing` is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from holdfast.adapters.agents.command_server import Runner

WAIT_S = 45.0
"""How long to wait for an answer; agents are configured to wait for `base.TIMEOUT_S`, which is longer."""
_MIN_WAIT_S, _MAX_WAIT_S = 0.1, 3600.0
_MAX_INPUT_BYTES = 32 << 20
_EDGE_BYTES = 64 << 10
_PAUSE_S, _MAX_PAUSES = 0.5, 20
_FORWARDED_VARIABLES = (
    "HOME",
    "XDG_",
    "HOLDFAST_",
    "CLAUDE",
    "GEMINI_",
    "CODEX_",
    "CURSOR_",
    "COPILOT_",
    "OPENCODE_",
    "KILO_",
    "QWEN_",
    "FACTORY_",
    "AI_AGENT",
)
"""Prefixes of the environment variables that the helper needs."""
_SHOW_MESSAGES = ("claude-code", "gemini", "codex", "qwen", "droid")
_STILL_SAVING = (
    b'{"systemMessage": "Holdfast is still saving this project. The checkpoint continues in the background and is '
    b'marked incomplete, because the tool may start before every file was read."}\n'
)
_NOT_SAVED = b'{"systemMessage": "Holdfast could not save a checkpoint; see: holdfast doctor"}\n'


def run(words: Sequence[str], runner: Callable[[], Runner]) -> NoReturn:
    """Handle the event on stdin and exit with status 0, with nothing on stdout but at most one JSON object.

    `runner` loads what the helper runs commands with.
    """
    try:
        _open_standard_streams()
        try:
            output = _handle(words, runner)
        except Exception as error:
            output = _report_failure(words[0], dict(os.environ), repr(error))
        if output:
            os.write(1, output)
    except BaseException:  # the agent's turn must not fail because of a hook
        pass
    os._exit(0)  # skips the interpreter's clean-up, which takes longer than all of the above


def _open_standard_streams() -> None:
    """Open stdin, stdout and stderr if the agent closed them, so that no socket gets their numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one


def _handle(words: Sequence[str], runner: Callable[[], Runner]) -> bytes:
    import time

    home = os.environ.get("HOME", "/")
    if home and not os.path.isabs(home):
        os.environ["HOME"] = os.path.abspath(home)  # relative to this process, not to the helper
    environ = {key: value for key, value in os.environ.items() if key.startswith(_FORWARDED_VARIABLES)}
    try:
        wait_s = float(environ.get("HOLDFAST_HOOK_WAIT_S", WAIT_S))
    except ValueError:
        wait_s = WAIT_S
    if not 0 <= wait_s <= _MAX_WAIT_S:  # false for NaN, too
        wait_s = WAIT_S
    deadline = time.time() + wait_s
    request = [
        identity(environ),
        os.fsencode(words[0]),
        os.fsencode(words[1] if len(words) > 1 else ""),
        os.fsencode(_cwd()),
        b"%d" % os.getppid(),
        b"%.3f" % deadline,
        b"\0".join(os.fsencode(f"{key}={value}") for key, value in environ.items()),
        _read_all(),
    ]
    output = _ask_helper(request, environ, deadline - time.time())
    if output is not None:
        return output
    try:
        output = _ask_child(request, deadline - time.time(), runner)
    except TimeoutError:
        return _STILL_SAVING if words[0] in _SHOW_MESSAGES else b""
    except OSError as error:
        return _report_failure(words[0], environ, str(error))
    if output is None:
        return _report_failure(words[0], environ, "the process that saves was killed")
    return output


def _ask_helper(request: list[bytes], environ: dict[str, str], wait_s: float) -> bytes | None:
    """Send the request to the helper; None if none is running, or it did not answer."""
    if environ.get("HOLDFAST_HELPER") == "0":
        return None
    try:
        folder = open_socket_folder(environ)
    except OSError:
        return None
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(max(wait_s, _MIN_WAIT_S))
        connection.connect(socket_path(folder, socket_name(request[0])))
        if not is_same_user(connection):
            return None
        connection.sendall(pack_request(request))
        return receive_reply(connection)
    except OSError:
        return None
    finally:
        connection.close()
        os.close(folder)


def _report_failure(agent: str, environ: dict[str, str], reason: str) -> bytes:
    """Report that no checkpoint was saved (P4): in the log, and to the user if the agent shows messages of hooks."""
    from datetime import UTC, datetime

    from holdfast.adapters.agents.hook_log import log

    log(environ, agent, f"no checkpoint was saved: {reason}", now=datetime.now(UTC))
    return _NOT_SAVED if agent in _SHOW_MESSAGES else b""


def _ask_child(request: list[bytes], wait_s: float, runner: Callable[[], Runner]) -> bytes | None:
    """Fork a child that does the work and then stays as the helper; None if it died. TimeoutError after `wait_s`."""
    own, child = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            own.close()
            _detach(child.fileno())
            from holdfast.adapters.agents.helper import work_and_stay  # start-up cost: the agent waits for the parent

            work_and_stay(child, request, runner)
        finally:
            os._exit(0)
    try:
        child.close()
        own.settimeout(max(wait_s, _MIN_WAIT_S))
        return receive_reply(own)
    finally:
        own.close()  # Python warns of one that is dropped open


def _detach(keep_fd: int) -> None:
    """Become independent of the agent, which waits until its pipes are closed, and kills what is in its session."""
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(devnull, fd)
    os.closerange(3, keep_fd)
    os.closerange(keep_fd + 1, 1024)
    os.chdir("/")


def _read_all() -> bytes:
    """All of stdin; if too large, its beginning and its end. Read it all in any case: the agent waits to write it."""
    pieces: list[bytes] = []
    total, last = 0, b""
    try:
        while piece := _read_next(pieces):
            total += len(piece)
            if total <= _MAX_INPUT_BYTES:
                pieces.append(piece)
            else:
                last = (last + piece)[-_EDGE_BYTES:]
    except OSError:
        pass  # use what was read until then
    if total <= _MAX_INPUT_BYTES:
        return b"".join(pieces)
    return b"".join(pieces)[:_EDGE_BYTES] + b"\n" + last


def _read_next(pieces: list[bytes]) -> bytes:
    """The next piece of stdin; empty at its end, or if the JSON is complete and the agent leaves the pipe open."""
    import select

    pauses = 0
    while not select.select([0], [], [], _PAUSE_S)[0]:
        pauses += 1
        if pauses >= _MAX_PAUSES or _is_json(b"".join(pieces)):
            return b""
    return os.read(0, 1 << 20)


def _is_json(data: bytes) -> bool:
    import json

    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"
