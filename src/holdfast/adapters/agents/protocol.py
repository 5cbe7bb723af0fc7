"""What the clients and the helper share: the folders, the name of the socket, and what goes over it.

The request of a hook is eight fields: the identity, the agent, the name of the event, the working directory, the
caller's pid, the deadline, the environment, and what the agent wrote to stdin. A reply is `ok`, a newline and what goes
to stdout; anything else means that the helper did not do the work.

The request of a command is four fields: the identity, `COMMAND`, the environment and the words. Then, a byte each: the
helper's promise to run it, the client's confirmation, that the helper has begun, that it writes to stdout or stderr; at
last a line with the exit code, or `ALONE`. The helper does nothing before the confirmation. With that come the open
files: stdin, stdout, stderr and the working directory; not before, since a helper that is stopped would keep them open,
and who reads the client's output would wait for it. The client may send `INTERRUPT` at any time.

This imports only what Python has loaded anyway, and `_socket`: every hook loads it, and most of what a hook costs is
starting Python.
"""

from __future__ import annotations

import _socket
import os
import sys

import holdfast

TYPE_CHECKING = False  # `typing` is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Mapping

HOOK_FIELDS, COMMAND_FIELDS = 8, 4
COMMAND = b"command"
PROMISED, CONFIRMED, BEGUN, WRITES, INTERRUPT = b"p", b"c", b"b", b"w", b"i"
ALONE = b"alone\n"
_MAX_FILES = 8
_MAX_HEADER_BYTES = 1 << 17
_MAX_REQUEST_BYTES = 64 << 20
_OK = b"ok\n"


def state_folder(environ: Mapping[str, str]) -> str:
    """The folder of the log, of backups of settings, and of what was installed."""
    state = environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "holdfast", "agents")


def socket_folder(environ: Mapping[str, str]) -> str:
    """The folder of the helper's socket: private to the user."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "holdfast") if os.path.isabs(runtime) else os.path.join(state_folder(environ), "run")


def open_socket_folder(environ: Mapping[str, str]) -> int:
    """Open the folder of the sockets. OSError unless it exists and only this user can enter it."""
    path = socket_folder(environ)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise OSError(f"{path} is not private")
    return fd


def identity(environ: Mapping[str, str]) -> bytes:
    """What client and helper must have in common: the code, the interpreter, the user, and where stores are."""
    parts = [holdfast.__version__, holdfast.__file__ or "", sys.executable or "", sys.version, str(os.geteuid())]
    parts += [environ.get(name, "") for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOLDFAST_STORE_ROOT")]
    return os.fsencode("\n".join(parts))


def socket_name(identity: bytes) -> str:
    """The name of the socket of a helper with this identity."""
    return f"{int.from_bytes(identity, 'big') % ((1 << 61) - 1):016x}"  # without importing hashlib


def socket_path(folder_fd: int, name: str) -> str:
    """The path of a socket in an open folder: short, since the kernel takes 107 bytes, however long the folder's is."""
    if not sys.platform.startswith("linux"):
        raise OSError("there is no helper on this system")  # hooks do the work themselves
    return f"/proc/self/fd/{folder_fd}/{name}"


def is_listening(environ: Mapping[str, str]) -> bool:
    """Whether there is a helper."""
    try:
        folder = open_socket_folder(environ)
    except OSError:
        return False
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        connection.connect(socket_path(folder, socket_name(identity(environ))))
        return True
    except OSError:
        return False
    finally:
        connection.close()
        os.close(folder)


def is_same_user(connection: _socket.socket) -> bool:
    """Whether the process at the other end runs as this user."""
    if sys.platform != "linux":
        return False  # `socket_path` has refused
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(found[4:8], sys.byteorder) == os.geteuid()


def pid_of(connection: _socket.socket) -> int:
    """The process at the other end; 0 if the system does not tell."""
    if sys.platform != "linux":
        return 0
    return int.from_bytes(connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)[:4], sys.byteorder)


def pack_request(fields: list[bytes]) -> bytes:
    """A request as it goes over the socket: the lengths of the fields in a line, then the fields."""
    return b" ".join(b"%d" % len(field) for field in fields) + b"\n" + b"".join(fields)


def confirm(connection: _socket.socket, fds: list[int]) -> None:
    """Send a confirmation, and with it open files."""
    files = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    connection.sendmsg([CONFIRMED], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])


def receive_confirmation(connection: _socket.socket, fds: list[int]) -> bool:
    """Whether the client confirms. Open files that come with it are added to `fds`; the caller closes them."""
    room = _socket.CMSG_SPACE(4 * _MAX_FILES)
    data, ancillary, _, _ = connection.recvmsg(1, room, getattr(_socket, "MSG_CMSG_CLOEXEC", 0))
    for level, kind, files in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            fds += [int.from_bytes(files[at : at + 4], sys.byteorder) for at in range(0, len(files) - 3, 4)]
    return data == CONFIRMED


def receive_request(connection: _socket.socket) -> list[bytes] | None:
    """The fields of a request; None if the connection ends early, or this is no request. ValueError for bad lengths."""
    data = b""
    while b"\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece or len(data) > _MAX_HEADER_BYTES:
            return None
        data += piece
    header, _, rest = data.partition(b"\n")
    lengths = [int(word) for word in header.split()]
    total = sum(lengths)
    if total > _MAX_REQUEST_BYTES or len(lengths) not in (HOOK_FIELDS, COMMAND_FIELDS):
        return None
    pieces, received = [rest], len(rest)
    while received < total:
        piece = connection.recv(1 << 20)
        if not piece:
            return None
        pieces.append(piece)
        received += len(piece)
    body, fields, at = b"".join(pieces), [], 0
    for length in lengths:
        fields.append(body[at : at + length])
        at += length
    return fields


def pack_reply(output: bytes | None) -> bytes:
    """A reply as it goes over the socket; None if the work was not done."""
    return b"no\n" if output is None else _OK + output


def receive_reply(connection: _socket.socket) -> bytes | None:
    """What goes to stdout; None if the helper did not do the work."""
    reply = b""
    while piece := connection.recv(1 << 16):
        reply += piece
    return reply[len(_OK) :] if reply.startswith(_OK) else None
