"""Who is measured: Holdfast through its two doors, shadow git as peers drive it, restic and borg."""

from __future__ import annotations

import os
import resource
import shutil
import site
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.adapters.agents.protocol import is_listening

Timings = Mapping[str, float]
"""Seconds by what was timed: one run of Holdfast's library yields its own time and that of the whole process. Each is
there twice: by the clock, and under `of_processor(name)` what processors spent on it."""

INSIDE = "holdfast"
PROCESS = "python -c"
COMMAND = "holdfast command"
HELPED = "with the helper"
PURE = "pure Python"
WATCHING = "holdfast, watching"
GIT = "shadow git"
PEERS = ("restic", "borg")
HELPER_STARTS_S = 30

SAVE = """
import sys, time
from holdfast import Workspace
start, spent = time.perf_counter(), time.process_time()
Workspace(sys.argv[1]).save("benchmark")
print(time.perf_counter() - start, time.process_time() - spent)
"""
RESTORE = """
import sys, time
from holdfast import Workspace
start, spent = time.perf_counter(), time.process_time()
result = Workspace(sys.argv[1]).restore("latest")
print(time.perf_counter() - start, time.process_time() - spent)
sys.exit(0 if result.ok else f"restore failed: {result.failed}")
"""
LONG_LIVED = """
import sys, time
from holdfast import Workspace
workspace = Workspace(sys.argv[1], watch=True)
workspace.save("benchmark")
print(flush=True)
for line in sys.stdin:
    start, spent = time.perf_counter(), time.process_time()
    workspace.save("benchmark")
    print(time.perf_counter() - start, time.process_time() - spent, flush=True)
"""
HELPER = """
import os
from holdfast.adapters.agents.helper import stay
from holdfast.cli.start import load_runner
stay(dict(os.environ), load_runner)
"""
COMMAND_ENTRY = "import sys; from holdfast.cli.main import main; sys.exit(main())"
_SCHEDULED = 2
"""The clock of a process in Linux: CPUCLOCK_SCHED of <linux/posix-timers.h>."""
PEAK_OF_CHILD = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class Contender(ABC):
    """Something that can save a folder and bring it back; its store and its home folder are in `room`."""

    name: str

    def __init__(self, tree: Path, room: Path) -> None:
        self.tree = tree
        self.room = room
        self.store = room / "store"
        self.environ = environment(room / "home")

    def begin(self) -> None:
        """Make an empty store, in place of any that is there. Never timed."""
        shutil.rmtree(self.room, ignore_errors=True)
        (self.room / "home").mkdir(parents=True)
        self.store.mkdir()

    @abstractmethod
    def save_commands(self) -> list[list[str]]:
        """Return the commands that save the folder, one after the other."""

    @abstractmethod
    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the commands that bring the last save back; `paths` is for those that cannot see what changed."""

    def save(self) -> Timings:
        return self._timed(self.save_commands())

    def restore(self, paths: Sequence[str]) -> Timings:
        return self._timed(self.restore_commands(paths))

    def save_peak_mib(self) -> float:
        """Save, and return the peak resident memory of the largest process involved."""
        return max([peak_mib(command, cwd=self.tree, environ=self.environ) for command in self.save_commands()])

    def _timed(self, commands: list[list[str]]) -> Timings:
        start, spent = time.perf_counter(), _processor_s()
        for command in commands:
            run(command, cwd=self.tree, environ=self.environ)
        return {self.name: time.perf_counter() - start, of_processor(self.name): _processor_s() - spent}


class ShadowGit(Contender):
    """`git add -A` and `git commit` with a git folder elsewhere, in git's default configuration."""

    name = GIT

    def begin(self) -> None:
        super().begin()
        self.environ |= {
            "GIT_DIR": str(self.store),
            "GIT_WORK_TREE": str(self.tree),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        run(["git", "init", "-q"], cwd=self.tree, environ=self.environ)
        for key, value in {"gc.auto": "0", "user.name": "Benchmark", "user.email": "benchmark@example.org"}.items():
            run(["git", "config", key, value], cwd=self.tree, environ=self.environ)

    def save_commands(self) -> list[list[str]]:
        return [["git", "add", "-A"], ["git", "commit", "-q", "--allow-empty", "-m", "x"]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        return [["git", "reset", "-q", "--hard"]]


class Holdfast(Contender):
    """What both doors share: where the store is."""

    def begin(self) -> None:
        super().begin()
        self.environ["HOLDFAST_STORE_ROOT"] = str(self.store)


class Library(Holdfast):
    """`Workspace(...)` in a new process each time, so that only what is on disk is known."""

    name = INSIDE

    def save_commands(self) -> list[list[str]]:
        return [[sys.executable, "-c", SAVE, str(self.tree)]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        return [[sys.executable, "-c", RESTORE, str(self.tree)]]

    def _timed(self, commands: list[list[str]]) -> Timings:
        start, spent = time.perf_counter(), _processor_s()
        (printed,) = (run(command, cwd=self.room, environ=self.environ) for command in commands)
        process = {PROCESS: time.perf_counter() - start, of_processor(PROCESS): _processor_s() - spent}
        return {**_both(INSIDE, printed), **process}


class Pure(Library):
    """The library without the native module."""

    name = PURE

    def begin(self) -> None:
        super().begin()
        self.environ["HOLDFAST_NATIVE"] = "0"

    def _timed(self, commands: list[list[str]]) -> Timings:
        found = super()._timed(commands)
        return {PURE: found[INSIDE], of_processor(PURE): found[of_processor(INSIDE)]}


class Command(Holdfast):
    """The `holdfast` command, start-up included."""

    name = COMMAND

    def save_commands(self) -> list[list[str]]:
        return [[*_holdfast(), "save", "benchmark"]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        return [[*_holdfast(), "restore", "latest", "--yes"]]

    def undo(self) -> Timings:
        return self._timed([[*_holdfast(), "undo"]])

    def redo(self) -> Timings:
        return self._timed([[*_holdfast(), "redo"]])


class Helped(Command):
    """The `holdfast` command where the background helper runs. A context: the helper ends.

    It answers several of these commands, so its own time is counted with theirs.
    """

    name = HELPED

    def __init__(self, tree: Path, room: Path) -> None:
        super().__init__(tree, room)
        self._helper: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        self._end()  # its socket is in the home folder, which is removed
        super().begin()
        self.environ.pop("PYTHONUSERBASE", None)  # a command with variables of Python runs alone
        self._helper = subprocess.Popen([sys.executable, "-c", HELPER], env=self.environ, stdin=subprocess.DEVNULL)
        until = time.monotonic() + HELPER_STARTS_S
        while not is_listening(self.environ):
            if self._helper.poll() is not None or time.monotonic() > until:
                raise SystemExit("the helper does not start")
            time.sleep(0.01)

    def __enter__(self) -> Helped:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()

    def _timed(self, commands: list[list[str]]) -> Timings:
        assert self._helper is not None
        before = _spent_by(self._helper.pid)
        found = dict(super()._timed(commands))
        found[of_processor(self.name)] += _spent_by(self._helper.pid) - before
        return found


class Watching(Holdfast):
    """One long-lived process that watches the folder and saves on demand. A context: the process ends."""

    name = WATCHING

    def save_commands(self) -> list[list[str]]:
        return [[sys.executable, "-c", LONG_LIVED, str(self.tree)]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        raise NotImplementedError("only saves are measured")

    def __enter__(self) -> Watching:
        self.begin()
        (command,) = self.save_commands()
        self._process = subprocess.Popen(
            command, cwd=self.room, env=self.environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def save(self) -> Timings:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return _both(WATCHING, self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the watching process ended")
        return line


class Restic(Contender):
    """restic with a local repository; it always encrypts."""

    name = "restic"

    def begin(self) -> None:
        super().begin()
        self.environ |= {"RESTIC_REPOSITORY": str(self.store), "RESTIC_PASSWORD": "benchmark"}
        run(["restic", "init", "-q"], cwd=self.tree, environ=self.environ)

    def save_commands(self) -> list[list[str]]:
        return [["restic", "backup", "-q", "."]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        include = [part for path in paths for part in ("--include", f"/{path}")]
        return [["restic", "restore", "latest", "-q", "--target", ".", *include]]


class Borg(Contender):
    """borg with a local, unencrypted repository."""

    name = "borg"

    def begin(self) -> None:
        super().begin()
        self._saves = 0
        self.environ |= {"BORG_REPO": str(self.store), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
        run(["borg", "init", "-e", "none"], cwd=self.tree, environ=self.environ)

    def save_commands(self) -> list[list[str]]:
        self._saves += 1
        return [["borg", "create", f"::{self._saves}", "."]]

    def restore_commands(self, paths: Sequence[str]) -> list[list[str]]:
        return [["borg", "extract", f"::{self._saves}", *paths]]


def contenders(tree: Path, room: Path, peers: Sequence[str]) -> list[Contender]:
    """Return everybody who can be measured here; git and Holdfast always."""
    kinds: list[type[Contender]] = [ShadowGit, Library, Command]
    kinds += [kind for kind in (Restic, Borg) if kind.name in peers and shutil.which(kind.name)]
    return [kind(tree, room / kind.name.replace(" ", "-")) for kind in kinds]


def of_processor(name: str) -> str:
    """The name under which what processors spent is kept."""
    return f"{name}, processor"


def _both(name: str, printed: str) -> Timings:
    clock, processor = map(float, printed.split())
    return {name: clock, of_processor(name): processor}


def _processor_s() -> float:
    """What processors spent on all processes that were started so far and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _spent_by(pid: int) -> float:
    """What processors spent on a process that runs, with all its threads."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def environment(home: Path) -> dict[str, str]:
    """Return our environment without anything that configures a contender, and with a home folder of its own.

    Python keeps its bytecode, as it does wherever a package is installed.
    """
    foreign = ("GIT_", "BORG_", "RESTIC_", "HOLDFAST_", "XDG_", "PYTHONDONTWRITEBYTECODE")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return kept | {"HOME": str(home), "PYTHONUSERBASE": site.getuserbase(), "LC_ALL": "C.UTF-8"}


def run(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed with {done.returncode}:\n{done.stderr or done.stdout}")
    return done.stdout


def peak_mib(command: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> float:
    """Run a command and return its peak resident memory.

    A bare interpreter starts it: a child's figure is never below that of the process that it was forked from.
    """
    isolated = [sys.executable, "-I", "-S", "-c", PEAK_OF_CHILD, *command]
    return int(run(isolated, cwd=cwd, environ=environ)) / (1024 if sys.platform == "linux" else 1 << 20)


def disk_bytes(folder: Path) -> int:
    """Return the disk space of everything in a folder, as `du` counts it."""
    return sum(
        os.lstat(os.path.join(top, name)).st_blocks * 512
        for top, folders, files in os.walk(folder)
        for name in (*folders, *files)
    )


def _holdfast() -> list[str]:
    script = Path(sys.executable).with_name("holdfast")
    return [str(script)] if script.exists() else [sys.executable, "-c", COMMAND_ENTRY]
