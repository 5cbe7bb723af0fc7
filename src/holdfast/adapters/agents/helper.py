"""The background helper: keeps workspaces watched between events, so that a hook costs what changed.

It begins as the child of a hook that found no helper, and ends by itself when nobody asked for a while. It may be
killed at any moment: whoever asked gets no answer and does the work itself. It serves only its own user, and only as
long as the code that it runs is the code on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast import durable
from holdfast.adapters.agents import client
from holdfast.adapters.agents.folders import socket_folder
from holdfast.adapters.agents.hook import Call, answer, open_workspace
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    import _socket

    from holdfast.workspace import Workspace

IDLE_S = 900.0
_OPENING_S = 30.0
_STUCK_S = 3600.0
_MOST_WORKSPACES = 8
_MOST_BYTES = 64 << 20
_CONFIGURATION = ("holdfast.toml", "pyproject.toml")


def work_and_stay(connection: _socket.socket, request: list[bytes]) -> None:
    """Do the work of one hook; then, unless there is one already, be the helper."""
    code = Code()
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]
    call = _call(request)
    helper = Helper(request[0], code, dict(call.environ))
    if call.environ.get("HOLDFAST_HELPER") == "0":
        _send(connection, answer(call))
        return
    _send(connection, answer(call, opened=helper.opened))
    helper.serve()


class Code:
    """The code of this package as it was when we began."""

    def __init__(self) -> None:
        root = Path(holdfast.__file__).parent
        self._files = {os.fspath(path): _mark(os.fspath(path)) for path in root.rglob("*.py")}

    def is_current(self) -> bool:
        """Whether what is on disk is still what we run."""
        return all(_mark(path) == mark for path, mark in self._files.items())


class Helper:
    """Answers hooks until it is idle."""

    def __init__(self, identity: bytes, code: Code, environ: dict[str, str]) -> None:
        self._identity = identity
        self._code = code
        self._environ = environ
        self._workspaces: dict[Path, tuple[tuple[object, ...], Workspace]] = {}
        self._guard = threading.Lock()
        """Held for moments: whatever may take long is done without it, so that no workspace holds up another."""
        self._openings: dict[Path, threading.Lock] = {}
        self._busy = 0
        self._asked_at = time.monotonic()

    def opened(self, folder: Path, environ: Mapping[str, str]) -> Workspace:
        """A watched workspace; opened anew where its folder, its store or its configuration is another one."""
        with self._guard:
            opening = self._openings.setdefault(folder, threading.Lock())
        if not opening.acquire(timeout=_OPENING_S):
            raise Unavailable(
                f"{folder} is still being opened for an event before", hint="See whether its disk answers."
            )
        try:
            return self._opened(folder, environ)
        finally:
            opening.release()

    def _opened(self, folder: Path, environ: Mapping[str, str]) -> Workspace:
        with self._guard:
            key, workspace = self._workspaces.pop(folder, ((), None))
        now = _workspace_mark(folder, workspace)
        if workspace is None or key != now:
            if workspace is not None:
                workspace.close()
            workspace = open_workspace(folder, environ, watch=True)
            now = _workspace_mark(folder, workspace)
        with self._guard:
            self._workspaces[folder] = (now, workspace)
            surplus = [*self._workspaces][:-_MOST_WORKSPACES]
            closing = [self._workspaces.pop(each)[1] for each in surplus]
        for oldest in closing:
            oldest.close()
        return workspace

    def serve(self) -> None:
        """Listen until idle. Returns at once if another helper of this identity is there."""
        with contextlib.ExitStack() as files:
            folder = self._folder()
            files.callback(os.close, folder)
            name = client.socket_name(self._identity)
            lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
            files.callback(os.close, lock)
            files.callback(self._close)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            os.ftruncate(lock, 0)
            os.write(lock, b"%d\n" % os.getpid())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)  # of one that was killed: we have its lock
            listener = files.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(f"/proc/self/fd/{folder}/{name}")
            listener.listen(64)
            try:
                self._accept(listener)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    def _close(self) -> None:
        """Close every workspace."""
        with self._guard:
            while self._workspaces:
                _, (_, workspace) = self._workspaces.popitem()
                workspace.close()

    def _folder(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return client.open_folder(self._environ)
        durable.make_folder(Path(socket_folder(self._environ)))
        return client.open_folder(self._environ)

    def _accept(self, listener: socket.socket) -> None:
        idle_s = float(self._environ.get("HOLDFAST_HELPER_IDLE_S", IDLE_S))
        listener.settimeout(min(idle_s, 5.0))
        while (idle := time.monotonic() - self._asked_at) < idle_s or (self._busy and idle < _STUCK_S):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            if not self._code.is_current():
                _send(connection, None)
                return
            with self._guard:
                self._busy += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(60.0)
            request = _received(connection) if client.is_ours(connection) else None
            if request is None or request[0] != self._identity:
                _send(connection, None)
                return
            _send(connection, answer(_call(request), opened=self.opened))
        except (OSError, ValueError, IndexError):
            pass  # whoever asked is gone, or does the work itself
        finally:
            connection.close()
            with self._guard:
                self._busy -= 1
                self._asked_at = time.monotonic()


def _received(connection: socket.socket) -> list[bytes] | None:
    """The fields of a request, or None for what is none."""
    data = b""
    while b"\n" not in data:
        piece = connection.recv(1 << 16)
        if not piece or len(data) > 1 << 17:
            return None
        data += piece
    line, _, rest = data.partition(b"\n")
    lengths = [int(word) for word in line.split()]
    total = sum(lengths)
    if total > _MOST_BYTES or len(lengths) != 8:
        return None
    pieces, have = [rest], len(rest)
    while have < total:
        piece = connection.recv(1 << 20)
        if not piece:
            return None
        pieces.append(piece)
        have += len(piece)
    rest, fields, at = b"".join(pieces), [], 0
    for length in lengths:
        fields.append(rest[at : at + length])
        at += length
    return fields


def _call(request: list[bytes]) -> Call:
    _, agent, event, cwd, parent, deadline, environ, data = request
    pairs = (os.fsdecode(pair).partition("=") for pair in environ.split(b"\0") if pair)
    return Call(
        agent=os.fsdecode(agent),
        event_name=os.fsdecode(event),
        data=data,
        cwd=os.fsdecode(cwd),
        parent=int(parent),
        deadline=float(deadline),
        environ={key: value for key, _, value in pairs},
    )


def _send(connection: _socket.socket, said: bytes | None) -> None:
    with contextlib.suppress(OSError):  # whoever asked may be gone
        connection.sendall(b"no\n" if said is None else b"ok\n" + said)
    connection.close()


def _workspace_mark(folder: Path, workspace: Workspace | None) -> tuple[object, ...]:
    """Changes when a workspace has to be opened anew."""
    store = () if workspace is None else _mark(os.fspath(workspace.store), content=False)
    files = tuple(_mark(os.fspath(folder / name)) for name in _CONFIGURATION)
    return _mark(os.fspath(folder), content=False), store, files


def _mark(path: str, *, content: bool = True) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    if not content:
        return found.st_dev, found.st_ino
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
