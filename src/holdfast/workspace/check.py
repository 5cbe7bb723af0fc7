"""Was it good? A command of the user's, such as `pytest -q`, is run on a checkpoint, which is then green or red.

It runs in a scratch copy with the installed dependencies linked, and with a deadline. The result is in the metadata of
the checkpoint: durable, in every copy, and found again if the catalog is rebuilt. What can run is what a person
allowed: the text of the command, once per workspace, since the configuration is a file of the project, which an agent
or the author of a cloned repository can change.

Files in the store's own folder: `check-allowed` has the text that was allowed; `check-wanted` the checkpoint to check
next, a newer one replacing it; `check.lock` is locked while a check runs; `check-scratch` names the scratch folder and
the process of the command. A kill at any moment leaves these, a scratch folder and perhaps a running command, all of
which the next check removes; the checkpoint is marked or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import durable
from holdfast.durable.platform import process_stat
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused, Remedy, Unavailable
from holdfast.workspace.dependencies import DependencyLinks, editable_paths, led_to, python_environments

if TYPE_CHECKING:
    from holdfast.model import JSON, Checkpoint
    from holdfast.workspace.workspace import Workspace

TIMEOUT_S = 600.0
CHECK = "check"
"""In the metadata of a checkpoint: the result."""
_ALLOWED = "check-allowed"
_WANTED = "check-wanted"
_RUNNING = "check-running"
_SCRATCH = "check-scratch"
_REPORT = "check.json"
_PREFIX = "holdfast-check-"
_SKIP = 125
_NOT_RUN = (126, 127)
_TAIL_BYTES = 64 << 10
_POLL_S = 0.05
_LOW_PRIORITY = ("nice", "-n", "10") if shutil.which("nice") else ()


class CheckResult(NamedTuple):
    """How a check of a checkpoint ended."""

    passed: bool | None
    """Whether the checkpoint is green; None: the command could not say, and the checkpoint is not marked."""
    command: str
    seconds: float
    at: str
    """When it ended, in UTC and ISO 8601."""
    reason: str = ""
    """Why it did not pass: the exit status, or the deadline."""


class CheckStatus(NamedTuple):
    """What is known about checks in a workspace."""

    command: str
    is_allowed: bool
    is_running: bool
    last: Mapping[str, JSON] | None
    """The last run: `checkpoint`, and the fields of `CheckResult`; None if there was none."""
    last_green: Checkpoint | None


# allowing


def is_allowed(own: Path, command: str) -> bool:
    """Whether exactly this command was allowed for a workspace."""
    try:
        return (own / _ALLOWED).read_bytes() == command.encode("utf-8", "surrogateescape")
    except OSError:
        return False


def allow(own: Path, command: str | None) -> None:
    """Allow a command for a workspace, instead of the one before; None: no command."""
    if command is None:
        with contextlib.suppress(FileNotFoundError):
            durable.disk().unlink(str(own / _ALLOWED))
        return
    via = own / f"{_ALLOWED}.tmp"  # not `.new`, which a writer with the store's lock sweeps
    durable.write_atomically(own / _ALLOWED, command.encode("utf-8", "surrogateescape"), via=via)


# running one


class Checks:
    """The checks of one workspace."""

    def __init__(self, workspace: Workspace, command: str, timeout_s: float, environ: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._command = command
        self._timeout_s = timeout_s
        self._environ = environ
        self._own = workspace.store / "holdfast"
        self._lock = durable.Lock(self._own / "check.lock")

    def run(
        self, checkpoint: Checkpoint, uncovered: Callable[[], set[str]], output: Callable[[bytes], None] | None = None
    ) -> CheckResult:
        """Check one checkpoint and mark it. Refused if the command is not allowed, Conflict if a check is running.

        `uncovered`: what checkpoints of the folder lack. `output`: gets what the command prints.
        """
        self._check_allowed()
        if not self._lock.acquire(wait=False):
            raise Conflict("a check is running in this workspace", hint="Wait for it to end.")
        try:
            return self._run(checkpoint, uncovered, output)
        finally:
            self._lock.release()

    def run_wanted(self, uncovered: Callable[[], set[str]]) -> None:
        """Check what is wanted, until nothing is; of several that are wanted, only the newest. Returns at once if
        another process does so already: it sees what is wanted."""
        while (self._own / _WANTED).exists() and self._lock.acquire(wait=False):
            try:
                while wanted := self._claim():
                    self._run_quietly(wanted, uncovered)
            finally:
                self._lock.release()

    def _claim(self) -> str:
        """Take what is wanted; a request that comes later is another file."""
        try:
            durable.disk().rename(str(self._own / _WANTED), str(self._own / _RUNNING))
            return (self._own / _RUNNING).read_text("ascii", "replace").strip()
        except FileNotFoundError:
            return ""

    def _run_quietly(self, wanted: str, uncovered: Callable[[], set[str]]) -> None:
        try:
            self._check_allowed()
            checkpoint = self._workspace.get(wanted)
            if not self._is_checked(checkpoint):
                self._run(checkpoint, uncovered, None)
        except (HoldfastError, OSError) as error:
            self._report(wanted, {"passed": None, "command": self._command, "reason": f"not run: {error}"})
        finally:
            with contextlib.suppress(OSError):
                durable.disk().unlink(str(self._own / _RUNNING))

    def _is_checked(self, checkpoint: Checkpoint) -> bool:
        known = checkpoint.metadata.get(CHECK)
        return isinstance(known, dict) and known.get("command") == self._command

    def _check_allowed(self) -> None:
        if not is_allowed(self._own, self._command):
            raise Refused(f"the command {self._command!r} is not allowed here", remedy=Remedy("allow_check"))

    def _run(
        self, checkpoint: Checkpoint, uncovered: Callable[[], set[str]], output: Callable[[bytes], None] | None
    ) -> CheckResult:
        begun = time.monotonic()
        with self._workspace.hold(checkpoint.id), self._scratch() as folder:
            links = DependencyLinks(self._workspace.path, uncovered())
            self._workspace.export(checkpoint.id, folder)
            links.link_into(folder)
            status, tail = self._execute(folder, checkpoint, output)
        passed, reason = _verdict(status, self._timeout_s)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        result = CheckResult(passed, self._command, round(time.monotonic() - begun, 3), now, reason)
        if passed is not None:
            with contextlib.suppress(NotFound):  # deleted meanwhile
                self._workspace.mark(checkpoint.id, CHECK, result._asdict())
        self._report(checkpoint.id, {**result._asdict(), "output": tail.decode("utf-8", "replace")})
        return result

    def _report(self, checkpoint_id: str, told: dict[str, Any]) -> None:
        """Write down the last run. Losing that does no harm: the checkpoint has its mark."""
        data = json.dumps({"checkpoint": checkpoint_id, "at": datetime.now(UTC).isoformat(timespec="seconds"), **told})
        with contextlib.suppress(OSError):
            durable.write_atomically(self._own / _REPORT, data.encode(), via=self._own / f"{_REPORT}.tmp", sync=False)

    # the scratch folder

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Make a scratch folder; first remove what a killed check left. Needs the lock."""
        self._sweep()
        folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.urandom(8).hex()}"
        self._note(folder, "")  # before it is made: a kill in between leaves the name of a folder that is not there
        os.mkdir(folder, 0o700)
        place = folder / "files"
        try:
            yield place
        finally:
            with contextlib.suppress(OSError):
                durable.remove_tree(str(folder))
                durable.disk().unlink(str(self._own / _SCRATCH))

    def _note(self, folder: Path, process: str) -> None:
        data = json.dumps({"folder": os.fspath(folder), "process": process}).encode()
        durable.write_atomically(self._own / _SCRATCH, data, via=self._own / f"{_SCRATCH}.tmp", sync=False)

    def _sweep(self) -> None:
        """End the command of a killed check, and remove its folder."""
        try:
            told = durable.parse_json((self._own / _SCRATCH).read_bytes())
            folder, process = Path(told["folder"]), str(told["process"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        pid, _, started = process.partition(":")
        if pid.isdigit() and started and _started(int(pid)) == started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            is_ours = folder.name.startswith(_PREFIX) and os.lstat(folder).st_uid == os.getuid()
            if is_ours and not folder.is_symlink():
                durable.remove_tree(str(folder))

    # the command

    def _execute(
        self, folder: Path, checkpoint: Checkpoint, output: Callable[[bytes], None] | None
    ) -> tuple[int | None, bytes]:
        """Run the command; return its exit status (None: it was ended at the deadline) and the end of what it said."""
        root = self._workspace.path
        editable = editable_paths(python_environments(root, "python", self._environ), root)
        environ = {**self._environ, **led_to(folder, root, self._environ, editable)}
        environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        environ["HOLDFAST_CHECKPOINT"] = checkpoint.id
        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # dependencies are linked, not copied
        try:
            process = subprocess.Popen(
                [*_LOW_PRIORITY, "/bin/sh", "-c", self._command], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._command!r} cannot be run: {error}", hint="Check the command.") from None
        with process:
            try:
                self._note(folder.parent, f"{process.pid}:{_started(process.pid)}")
                tail, is_late = _follow(process, time.monotonic() + self._timeout_s, output)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # also what it left in the background
            status = process.wait()
        return None if is_late else status, tail


def _follow(
    process: subprocess.Popen[bytes], deadline: float, output: Callable[[bytes], None] | None
) -> tuple[bytes, bool]:
    """Read what a process says until it ends; return the end of it, and whether the deadline passed first."""
    tail = b""
    pipe = process.stdout
    if pipe is None:
        return tail, False
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        is_open = True
        while time.monotonic() < deadline:
            if not is_open:
                time.sleep(_POLL_S)
            ready = selector.select(_POLL_S) if is_open else []
            data = os.read(pipe.fileno(), 1 << 16) if ready else b""
            if data:
                tail = (tail + data)[-_TAIL_BYTES:]
                if output is not None:
                    output(data)
            elif ready:
                is_open = False  # it closed its output, and may go on
                selector.unregister(pipe)
            elif process.poll() is not None:
                return tail, False
        return tail, True


def _verdict(status: int | None, timeout_s: float) -> tuple[bool | None, str]:
    if status is None:
        return False, f"no result after {timeout_s:g} s"
    if status in _NOT_RUN:
        return None, "the command was not found"
    if status == _SKIP:
        return None, "the command skipped this checkpoint (exit status 125)"
    if status < 0:
        return False, f"ended by signal {-status}"
    return status == 0, "" if status == 0 else f"exit status {status}"


def _started(pid: int) -> str:
    """Return when a process started, so that another one with the same number is not taken for it; empty if unknown."""
    found = process_stat(pid)
    return found[2] if found is not None else ""


# asking for one


def want(own: Path, checkpoint_id: str, command: str) -> bool:
    """Ask for a check of a checkpoint, instead of one that is wanted but not begun. False if it is not allowed."""
    if not is_allowed(own, command):
        return False
    with contextlib.suppress(OSError):
        data = checkpoint_id.encode()
        durable.write_atomically(own / _WANTED, data, via=own / f"{_WANTED}.{os.getpid()}.tmp", sync=False)
    return True


def is_wanted(own: Path) -> bool:
    """Whether a check is asked for, and not begun."""
    return (own / _WANTED).exists()


def read_last(own: Path) -> Mapping[str, JSON] | None:
    """Return the last run; None if there was none, or it cannot be read."""
    try:
        found = durable.parse_json((own / _REPORT).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_running(own: Path) -> bool:
    """Whether a check is running."""
    lock = durable.Lock(own / "check.lock")
    if not (own / "check.lock").exists():
        return False
    if lock.acquire(wait=False):
        lock.release()
        return False
    return True
