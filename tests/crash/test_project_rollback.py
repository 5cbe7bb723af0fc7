"""A rollback of a project, its branch moved with it, killed at every write and at every call of git: old or new."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import durable
from holdfast.project import SyncCheckpointManager
from holdfast.testing.disk_contract import EntryDescription, describe
from holdfast.testing.faulty_disks import WRITES, CountingDisk, DiskCall, KillingDisk, When, die_in_child

from . import workers
from .scene import Scene, settle_times

pytestmark = pytest.mark.crash

_OUTSIDE = "progress.txt"


class World(NamedTuple):
    """Everything that a rollback may change."""

    files: dict[str, EntryDescription]
    outside: str
    head: str
    branch: str
    index: str


class Project:
    """A project in git with a progress file beside it, a checkpoint, and commits and edits since."""

    def __init__(self, area: Path) -> None:
        self.scene = Scene(area)
        self.root = self.scene.ws
        self.outside = self.scene.live / _OUTSIDE
        self._git("init", "-q", "-b", "main")
        (self.root / "app.ts").write_text("first\n")
        (self.root / "gone.txt").write_text("to be deleted\n")
        (self.root / "feature_list.json").write_text(json.dumps([{"id": "a", "passes": False}]))
        self.outside.write_text("session 1\n")
        self._commit("first")
        (self.root / "app.ts").write_text("not committed\n")
        settle_times(self.root)
        with durable.use_disk(CountingDisk()):
            self.target = self.open().create_checkpoint("good", state={"plan": 1}).id
        (self.root / "app.ts").write_text("second\n")
        (self.root / "gone.txt").unlink()
        (self.root / "new.txt").write_text("made since\n")
        self._commit("second")
        self._git("branch", "kept")
        (self.root / "app.ts").write_text("edited, and saved nowhere\n")
        self.outside.write_text("session 2\n")
        self.scene.keep()

    def open(self, **environ: str) -> SyncCheckpointManager:
        """A manager, as a new process would make it."""
        said = {"PATH": os.environ["PATH"]} | environ
        options: dict[str, Any] = {"store": self.scene.store, "home": self.scene.home, "environ": said}
        return SyncCheckpointManager(self.root, progress_file=f"../{_OUTSIDE}", **options)

    def act(self, **environ: str) -> None:
        self.open(**environ).rollback(self.target, git="reset", confirm=True)

    def world(self) -> World:
        files = {path: said for path, said in describe(self.root).items() if path.split("/")[0] != ".git"}
        head, branch = self._git("rev-parse", "HEAD"), self._git("symbolic-ref", "HEAD")
        index = self._git("ls-files", "--stage")
        return World(files, self.outside.read_text(), head, branch, index)

    def _commit(self, message: str) -> None:
        self._git("add", "-A")
        self._git("commit", "-q", "-m", message)

    def _git(self, *arguments: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.scene.home), "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", *who, "-C", str(self.root), *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


class Rehearsed(NamedTuple):
    project: Project
    old: World
    new: World
    calls: list[DiskCall]


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Rehearsed]:
    """The same project for each worker, and what a rollback makes of it."""
    return [_rehearse(Project(tmp_path_factory.mktemp("project"))) for _ in range(workers.COUNT)]


def _rehearse(project: Project) -> Rehearsed:
    project.scene.reset()
    old, disk = project.world(), CountingDisk()
    with durable.use_disk(disk):
        project.act()
    new = project.world()
    assert (new.outside, new.index != old.index, new.head != old.head) == ("session 1\n", True, True)
    assert new.files != old.files
    return Rehearsed(project, old, new, disk.calls)


@pytest.mark.parametrize("when", ["before", "halfway", "after"])
def test_killed_at_any_write_it_is_old_or_new_all_of_it(stages: list[Rehearsed], when: When) -> None:
    calls = [call for call in stages[0].calls if when != "halfway" or call.name in WRITES]

    def work(worker: int, call: DiskCall) -> None:
        stage = stages[worker]
        stage.project.scene.reset()
        assert die_in_child(KillingDisk(at=call.number, when=when), stage.project.act)
        _check(stage)

    workers.all_of(calls, work)


_KILLER = """#!/bin/sh
count=$(($(cat {counter}) + 1)); echo $count > {counter}
if [ $count = {at} ] && [ {when} = before ]; then kill -9 $PPID; exit 1; fi
PATH={path} git "$@"; status=$?
if [ $count = {at} ]; then kill -9 $PPID; fi
exit $status
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_call_of_git_it_is_old_or_new_all_of_it(
    stages: list[Rehearsed], when: str, tmp_path: Path
) -> None:
    """Among them those between the two that change something: the branch, and the index."""
    stage, calls = stages[0], _calls_of_git(stages[0], tmp_path)
    assert calls > 5
    worlds = set()
    for at in range(1, calls + 1):
        stage.project.scene.reset()
        killer = _killer(tmp_path, at, when)
        assert _dies(lambda killer=killer: stage.project.act(PATH=killer))
        worlds.add(_check(stage))
    assert worlds == {"old", "new"}


def _calls_of_git(stage: Rehearsed, folder: Path) -> int:
    stage.project.scene.reset()
    path = _killer(folder, 0, "never")
    with durable.use_disk(CountingDisk()):
        stage.project.act(PATH=path)
    return int((folder / "counter").read_text())


def _killer(folder: Path, at: int, when: str) -> str:
    """The real git, which kills its caller at a certain call."""
    (folder / "counter").write_text("0")
    program = folder / "bin" / "git"
    program.parent.mkdir(exist_ok=True)
    program.write_text(_KILLER.format(counter=folder / "counter", at=at, when=when, path=os.environ["PATH"]))
    program.chmod(0o755)
    return f"{program.parent}:{os.environ['PATH']}"


def _dies(act: Callable[[], None]) -> bool:
    """Whether a child that does this is killed."""
    child = os.fork()
    if not child:
        try:
            with durable.use_disk(CountingDisk()):
                act()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _check(stage: Rehearsed) -> str:
    """The next process finds all of the old or all of the new state, and can go on and back. Return which."""
    project = stage.project
    with durable.use_disk(CountingDisk()):
        manager = project.open()
        manager.recover()
        found = project.world()
        assert found in (stage.old, stage.new), _between(stage, found)
        assert not (project.scene.store / "holdfast" / "rollback.json").exists()
        assert [path.name for path in project.scene.live.iterdir() if path.name.endswith("-new")] == []
        assert manager.get(project.target).id == project.target
        if found == stage.new:
            assert manager.undo(git="reset", confirm=True).ok
            assert project.world() == stage.old
        assert manager.rollback(project.target, git="reset", confirm=True).ok
        assert project.world() == stage.new
        assert manager.verify().ok
    assert not project.scene.fsck()
    return "old" if found == stage.old else "new"


def _between(stage: Rehearsed, found: World) -> str:
    parts = {
        name: "old" if value == getattr(stage.old, name) else "new" if value == getattr(stage.new, name) else "other"
        for name, value in found._asdict().items()
    }
    return f"in between: {parts}"
