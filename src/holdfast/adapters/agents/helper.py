"""The background helper: keeps workspaces watched between events, so that the cost of a hook follows what changed.

It starts as the child of a hook that found no helper, and exits when it has been idle for a while. It may be killed at
any moment: a client that gets no answer has the work done by a child of its own. It serves only its own user, and only
as long as the code that it runs is the code on disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from holdfast import durable
from holdfast.adapters.agents import protocol
from holdfast.adapters.agents.command_server import CommandServer, Runner, can_serve
from holdfast.adapters.agents.hook import HookCall, Opened, after_save, handle_event, open_workspace
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    import _socket

    from holdfast.workspace import Workspace

IDLE_S = 900.0
_OPEN_TIMEOUT_S = 30.0
_STUCK_S = 3600.0
_MAX_WORKSPACES = 8
_SCAN_MAX_BYTES = 64 << 20
_CONFIGURATION = ("holdfast.toml", "pyproject.toml")


def work_and_stay(connection: _socket.socket, request: list[bytes], runner: Callable[[], Runner]) -> None:
    """Do the work of one hook; then become the helper, unless there is one already. `runner` loads what runs commands
    of the command line."""
    code = Code()
    _forget_git()
    call = _call(request)
    helper = Helper(request[0], code, dict(call.environ))
    if call.environ.get("HOLDFAST_HELPER") == "0":
        _answer(connection, call, open_workspace)
        return
    _answer(connection, call, helper.opened)
    helper.scan_pending()
    helper.serve(runner)


def stay(environ: dict[str, str], runner: Callable[[], Runner]) -> None:
    """Become the helper, unless there is one already."""
    _forget_git()
    Helper(protocol.identity(environ), Code(), environ).serve(runner)


def _answer(connection: _socket.socket, call: HookCall, opened: Opened) -> None:
    """Handle an event and send the answer; then, when no agent waits any more, do what follows a save."""
    used: list[Workspace] = []

    def noted(folder: Path, environ: Mapping[str, str]) -> Workspace:
        used.append(workspace := opened(folder, environ))
        return workspace

    _send(connection, handle_event(call, opened=noted))
    for workspace in used:
        with contextlib.suppress(HoldfastError):  # the checkpoint is saved; the next event does this again
            after_save(workspace)


def _forget_git() -> None:
    """Forget what git told the process that started this one."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]


class Code:
    """The code of this package as it was when this process started."""

    def __init__(self) -> None:
        root = Path(holdfast.__file__).parent
        self._files = {os.fspath(path): _signature(os.fspath(path)) for path in root.rglob("*.py")}

    def is_current(self) -> bool:
        """Whether the code on disk is still what runs here."""
        return all(_signature(path) == signature for path, signature in self._files.items())


class Helper:
    """Answers hooks until it has been idle for a while."""

    def __init__(
        self, identity: bytes, code: Code, environ: dict[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._identity = identity
        self._code = code
        self._environ = environ
        self._workspaces: dict[Path, tuple[tuple[object, ...], Workspace]] = {}
        self._lock = threading.Lock()
        """Never locked for long: what may take long is done without it, so that no workspace delays another."""
        self._openings: dict[Path, threading.Lock] = {}
        self._busy = 0
        self._commands: CommandServer | None = None
        self._is_retiring = False
        self._clock = clock
        self._last_request_at = clock()

    def opened(self, folder: Path, environ: Mapping[str, str]) -> Workspace:
        """A watched workspace; reopened if its folder, its store or its configuration was replaced."""
        with self._lock:
            opening = self._openings.setdefault(folder, threading.Lock())
        if not opening.acquire(timeout=_OPEN_TIMEOUT_S):
            raise Unavailable(
                f"{folder} is still being opened for an earlier event", hint="Check whether its disk responds."
            )
        try:
            return self._opened(folder, environ)
        finally:
            opening.release()

    def _opened(self, folder: Path, environ: Mapping[str, str]) -> Workspace:
        with self._lock:
            key, workspace = self._workspaces.pop(folder, ((), None))
        now = _workspace_signature(folder, workspace)
        if workspace is None or key != now:
            if workspace is not None:
                workspace.close()
            workspace = open_workspace(folder, environ, watch=True)
            workspace.defer_scans()
            now = _workspace_signature(folder, workspace)
        with self._lock:
            self._workspaces[folder] = (now, workspace)
            oldest = [*self._workspaces][:-_MAX_WORKSPACES]
            closing = [self._workspaces.pop(each)[1] for each in oldest]
        for each in closing:
            each.close()
        return workspace

    def serve(self, runner: Callable[[], Runner] | None = None) -> None:
        """Listen until idle. Returns at once if another helper with this identity is running."""
        with contextlib.ExitStack() as files:
            folder = self._folder()
            files.callback(os.close, folder)
            name = protocol.socket_name(self._identity)
            lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
            files.callback(os.close, lock)
            files.callback(self._close)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if runner is not None and can_serve():
                self._commands = CommandServer(runner(), self.opened, self._retire)
            os.ftruncate(lock, 0)
            os.write(lock, b"%d\n" % os.getpid())
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)  # left by a killed helper: its lock was free
            listener = files.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(protocol.socket_path(folder, name))
            own = _identity_of(name, folder)
            listener.listen(64)
            place = os.path.join(protocol.socket_folder(self._environ), name)
            try:
                self._accept(listener, lambda: _identity_of(place) == own)
            finally:
                with contextlib.suppress(OSError):
                    if _identity_of(name, folder) == own:  # not that of a helper which came after it was removed
                        os.unlink(name, dir_fd=folder)

    def _close(self) -> None:
        """Close every workspace."""
        with self._lock:
            while self._workspaces:
                _, (_, workspace) = self._workspaces.popitem()
                workspace.close()

    def _folder(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return protocol.open_socket_folder(self._environ)
        durable.make_folder(Path(protocol.socket_folder(self._environ)))
        return protocol.open_socket_folder(self._environ)

    def _retire(self) -> None:
        """End once nothing is under way."""
        self._is_retiring = True

    def _accept(self, listener: socket.socket, is_reachable: Callable[[], bool]) -> None:
        idle_s = float(self._environ.get("HOLDFAST_HELPER_IDLE_S", IDLE_S))
        listener.settimeout(min(idle_s, 5.0))
        while not self._is_over(idle_s):
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if not is_reachable():
                    self._retire()  # nobody finds it any more, and its lock may keep others away
                continue
            if not self._code.is_current():
                _send(connection, None)
                self._retire()  # not at once: a command of somebody else may be under way
                continue
            with self._lock:
                self._busy += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _is_over(self, idle_s: float) -> bool:
        if self._is_retiring and not self._busy:
            return True
        idle = self._clock() - self._last_request_at
        if self._commands is not None and self._commands.is_running:
            return False  # however long it takes
        return idle >= (_STUCK_S if self._busy else idle_s)

    def scan_pending(self) -> None:
        """Look for secrets in what saves left for later; the agent has its answer."""
        with self._lock:
            workspaces = [workspace for _, workspace in self._workspaces.values()]
        for workspace in workspaces:
            with contextlib.suppress(HoldfastError):
                workspace.scan_pending(_SCAN_MAX_BYTES)

    def _answer(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(60.0)
            request = protocol.receive_request(connection) if protocol.is_same_user(connection) else None
            if request is None or request[0] != self._identity:
                _send(connection, None)
                return
            if len(request) == protocol.COMMAND_FIELDS:
                if self._commands is not None and not self._is_retiring:
                    self._commands.serve(connection, request)
                return
            _answer(connection, _call(request), self.opened)
            self.scan_pending()
        except (OSError, ValueError, IndexError):
            pass  # the client is gone, or has the work done by its own child
        finally:
            connection.close()
            with self._lock:
                self._busy -= 1
                self._last_request_at = self._clock()


def _call(request: list[bytes]) -> HookCall:
    _, agent, event, cwd, parent, deadline, environ, data = request
    pairs = (os.fsdecode(pair).partition("=") for pair in environ.split(b"\0") if pair)
    return HookCall(
        agent=os.fsdecode(agent),
        event_name=os.fsdecode(event),
        data=data,
        cwd=os.fsdecode(cwd),
        parent=int(parent),
        deadline=float(deadline),
        environ={key: value for key, _, value in pairs},
    )


def _send(connection: _socket.socket, output: bytes | None) -> None:
    with contextlib.suppress(OSError):  # the client may be gone
        connection.sendall(protocol.pack_reply(output))
    connection.close()


def _identity_of(path: str, folder: int | None = None) -> tuple[int, ...]:
    """The device and inode of a file; nothing if there is none."""
    try:
        found = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def _workspace_signature(folder: Path, workspace: Workspace | None) -> tuple[object, ...]:
    """Differs when a workspace must be reopened."""
    store = () if workspace is None else _signature(os.fspath(workspace.store), content=False)
    files = tuple(_signature(os.fspath(folder / name)) for name in _CONFIGURATION)
    return _signature(os.fspath(folder), content=False), store, files


def _signature(path: str, *, content: bool = True) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    if not content:
        return found.st_dev, found.st_ino
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
