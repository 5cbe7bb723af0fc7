"""What an agent starts for each event: hands it to the background helper, and is gone.

Nothing is imported here but what Python has loaded anyway, `_socket` and `select`: starting Python is most of what a
hook costs. If no helper answers, a child is forked that does the work and then stays as the helper. Either way the
answer comes when the checkpoint is durable, or when the agent would stop waiting. The exit status is 0, whatever
happens.
"""

from __future__ import annotations

import _socket
import os
import sys

import holdfast
from holdfast.adapters.agents.folders import socket_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

WAIT_S = 45.0
"""How long an answer is waited for; agents are asked to wait for `agent.TIMEOUT_S`."""
_LEAST_WAIT_S, _MOST_WAIT_S = 0.1, 3600.0
_MOST_BYTES = 32 << 20
_EDGE_BYTES = 64 << 10
_PAUSE_S, _MOST_PAUSES = 0.5, 20
_PASSED_ON = (
    "HOME",
    "XDG_",
    "HOLDFAST_",
    "CLAUDE",
    "GEMINI_",
    "CODEX_",
    "CURSOR_",
    "COPILOT_",
    "OPENCODE_",
    "AI_AGENT",
)
_SPEAKING = ("claude-code", "gemini", "codex")
_STILL_SAVING = (
    b'{"systemMessage": "Holdfast is still saving this project. The checkpoint goes on in the background; it is marked '
    b'incomplete, because the tool may begin before all was read."}\n'
)
_NOT_SAVED = b'{"systemMessage": "Holdfast could not save a checkpoint; see: holdfast doctor"}\n'


def run(words: Sequence[str]) -> NoReturn:
    """Deal with the event on stdin, and end the process: with 0, and nothing on stdout but one JSON object."""
    try:
        _open_all_three()
        try:
            said = _ask(words)
        except Exception as error:
            said = _not_saved(words[0], dict(os.environ), repr(error))
        if said:
            os.write(1, said)
    except BaseException:  # the agent's turn must not fail because of us
        pass
    os._exit(0)  # skips tidying up that takes longer than all of the above


def _open_all_three() -> None:
    """Have stdin, stdout and stderr, where the agent closed them: a socket of ours must not take their place."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is this one


def _ask(words: Sequence[str]) -> bytes:
    import time

    home = os.environ.get("HOME", "/")
    if home and not os.path.isabs(home):
        os.environ["HOME"] = os.path.abspath(home)  # from here, not from where the helper is
    environ = {key: value for key, value in os.environ.items() if key.startswith(_PASSED_ON)}
    try:
        wait_s = float(environ.get("HOLDFAST_HOOK_WAIT_S", WAIT_S))
    except ValueError:
        wait_s = WAIT_S
    if not 0 <= wait_s <= _MOST_WAIT_S:  # no number at all, too
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
    said = _ask_helper(request, environ, deadline - time.time())
    if said is not None:
        return said
    try:
        said = _ask_child(request, deadline - time.time())
    except TimeoutError:
        return _STILL_SAVING if words[0] in _SPEAKING else b""
    except OSError as error:
        return _not_saved(words[0], environ, str(error))
    return _not_saved(words[0], environ, "the process that saves was ended") if said is None else said


def identity(environ: dict[str, str]) -> bytes:
    """What a helper must have in common with us: the code, the interpreter, the user, and where stores are."""
    parts = [holdfast.__version__, holdfast.__file__ or "", sys.executable or "", sys.version, str(os.geteuid())]
    parts += [environ.get(name, "") for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOLDFAST_STORE_ROOT")]
    return os.fsencode("\n".join(parts))


def socket_name(about: bytes) -> str:
    """The name of the socket of a helper with this identity."""
    return f"{int.from_bytes(about, 'big') % ((1 << 61) - 1):016x}"


def open_folder(environ: dict[str, str]) -> int:
    """Open the folder of sockets. OSError unless it is there and only this user can enter it."""
    path = socket_folder(environ)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise OSError(f"{path} is not private")
    return fd


def is_ours(connection: _socket.socket) -> bool:
    """Whether the other end belongs to this user."""
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(found[4:8], sys.byteorder) == os.geteuid()


def pack(fields: list[bytes]) -> bytes:
    """Fields as they go over a socket: their lengths in a line, then all of them."""
    return b" ".join(b"%d" % len(field) for field in fields) + b"\n" + b"".join(fields)


def _ask_helper(request: list[bytes], environ: dict[str, str], wait_s: float) -> bytes | None:
    """Ask the helper; None if there is none, or it did not answer."""
    if environ.get("HOLDFAST_HELPER") == "0":
        return None
    try:
        folder = open_folder(environ)
    except OSError:
        return None
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(max(wait_s, _LEAST_WAIT_S))
        connection.connect(f"/proc/self/fd/{folder}/{socket_name(request[0])}")  # short, however long the path is
        if not is_ours(connection):
            return None
        connection.sendall(pack(request))
        return _reply(connection)
    except OSError:
        return None
    finally:
        connection.close()
        os.close(folder)


def _not_saved(agent: str, environ: dict[str, str], why: str) -> bytes:
    """Say that there is no checkpoint (P4): in the log, and to the user where the agent lets us."""
    from datetime import UTC, datetime

    from holdfast.adapters.agents.log import log

    log(environ, agent, f"no checkpoint was made: {why}", now=datetime.now(UTC))
    return _NOT_SAVED if agent in _SPEAKING else b""


def _ask_child(request: list[bytes], wait_s: float) -> bytes | None:
    """Have a child do the work, which then stays as the helper; None if it died. TimeoutError if the time is up."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            _detach(theirs.fileno())
            from holdfast.adapters.agents.helper import work_and_stay

            work_and_stay(theirs, request)
        finally:
            os._exit(0)
    theirs.close()
    ours.settimeout(max(wait_s, _LEAST_WAIT_S))
    return _reply(ours)


def _reply(connection: _socket.socket) -> bytes | None:
    found = b""
    while piece := connection.recv(1 << 16):
        found += piece
    return found[3:] if found.startswith(b"ok\n") else None


def _detach(kept: int) -> None:
    """Leave the agent: it waits until nobody holds its pipes, and ends what is in its session."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)
    os.chdir("/")


def _read_all() -> bytes:
    """All of stdin; of what is too large the beginning and the end, but read to its end: the agent is writing."""
    pieces: list[bytes] = []
    total, last = 0, b""
    try:
        while piece := _next(pieces):
            total += len(piece)
            if total <= _MOST_BYTES:
                pieces.append(piece)
            else:
                last = (last + piece)[-_EDGE_BYTES:]
    except OSError:
        pass  # what came until then has to do
    if total <= _MOST_BYTES:
        return b"".join(pieces)
    return b"".join(pieces)[:_EDGE_BYTES] + b"\n" + last


def _next(pieces: list[bytes]) -> bytes:
    """What comes next on stdin; nothing at its end, and where all has come but the agent leaves the pipe open."""
    import select

    pauses = 0
    while not select.select([0], [], [], _PAUSE_S)[0]:
        pauses += 1
        if pauses >= _MOST_PAUSES or _is_whole(b"".join(pieces)):
            return b""
    return os.read(0, 1 << 20)


def _is_whole(data: bytes) -> bool:
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
