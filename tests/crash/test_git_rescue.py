"""`kill -9` at every write and at every git command, while objects of the user's git are held and brought back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace, durable
from holdfast.durable import use_disk
from holdfast.scan import git_refs, git_scratch
from holdfast.testing.faulty_disks import (
    SYNCS,
    CountingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
    every_point,
)
from holdfast.testing.power_loss import Survives
from holdfast.workspace import git_rescue
from holdfast.workspace.capture import git_hold

from .scene import Scene


def _git(folder: Path, *words: str) -> str:
    environ = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *names, *words], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _open(scene: Scene) -> Workspace:
    return Workspace(scene.ws, store=scene.store, home=scene.home, environ={"PATH": os.environ["PATH"]})


def _fill(scene: Scene) -> None:
    """A repository with a branch, a stash and something staged, and a checkpoint from before all of it."""
    _git(scene.ws, "init", "-q")
    (scene.ws / "file.txt").write_text("one\n")
    _git(scene.ws, "add", ".")
    _git(scene.ws, "commit", "-q", "-m", "one")
    _open(scene).save("first")
    _git(scene.ws, "checkout", "-q", "-b", "topic")
    (scene.ws / "file.txt").write_text("two\n")
    _git(scene.ws, "commit", "-q", "-a", "-m", "two")
    (scene.ws / "file.txt").write_text("stashed\n")
    _git(scene.ws, "stash", "-q")
    _git(scene.ws, "checkout", "-q", "main")
    (scene.ws / "staged.txt").write_text("staged\n")
    _git(scene.ws, "add", ".")


def _lose(scene: Scene) -> None:
    _fill(scene)
    _open(scene).save("second")
    _git(scene.ws, "branch", "-q", "-D", "topic")
    _git(scene.ws, "stash", "clear")
    _git(scene.ws, "reset", "-q", "--hard")
    _git(scene.ws, "reflog", "expire", "--expire=now", "--all")
    _git(scene.ws, "gc", "-q", "--prune=now")


def _remove(scene: Scene) -> None:
    _fill(scene)
    _open(scene).save("second")
    shutil.rmtree(scene.ws / ".git")


def _check_saved(scene: Scene) -> None:
    workspace = _open(scene)
    assert workspace.save("again")
    found = workspace.git_losses("latest")
    assert not found.not_held and not found.losses
    _git(scene.ws, "branch", "-q", "-D", "topic")
    assert [each.ref for each in workspace.rescue_git("latest").refs] == ["refs/heads/rescued/topic"]


def _check_rescued(scene: Scene) -> None:
    workspace = _open(scene)
    done = workspace.rescue_git("latest", index=True)
    assert not done.missing
    assert _git(scene.ws, "show", "rescued/topic:file.txt") == "two"
    assert _git(scene.ws, "show", "stash@{0}:file.txt") == "stashed"
    assert _git(scene.ws, "show", ":staged.txt") == "staged"
    assert _git(scene.ws, "rev-list", "--count", "main") == "1"
    assert len(_git(scene.ws, "branch", "--list", "rescued/*").splitlines()) == 1


def _check_made_again(scene: Scene) -> None:
    if not (scene.ws / ".git").exists():
        assert _open(scene).rescue_git().recreated
    assert _git(scene.ws, "show", "topic:file.txt") == "two"
    assert _git(scene.ws, "show", "stash@{0}:file.txt") == "stashed"
    assert _git(scene.ws, "status", "--porcelain") == "A  staged.txt"
    assert not (scene.ws / ".git.holdfast-rescue").exists()


@dataclass(frozen=True)
class Step:
    """Something to interrupt: what was before, what is done, and what must be so once it was done again."""

    name: str
    prepare: Callable[[Scene], None]
    act: Callable[[Scene], object]
    check: Callable[[Scene], None]

    def __str__(self) -> str:
        return self.name


STEPS = [
    Step("hold", _fill, lambda scene: _open(scene).save("second"), _check_saved),
    Step("rescue", _lose, lambda scene: _open(scene).rescue_git("latest", index=True), _check_rescued),
    Step("recreate", _remove, lambda scene: _open(scene).rescue_git(), _check_made_again),
]


def _aftermath(scene: Scene, step: Step) -> None:
    with use_disk(CountingDisk()):
        assert _open(scene).verify().ok
        assert not scene.fsck()
        (scene.ws / ".git" / "index.lock").unlink(missing_ok=True)  # as after a killed git: for the user to remove
        step.check(scene)
        assert _git(scene.ws, "fsck", "--strict", "--no-dangling") == ""
        assert _open(scene).verify().ok
        assert not scene.fsck()
        _open(scene).save("swept")
        assert not (scene.store / "holdfast" / "git-work").exists()


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a save wait for git as long as a busy machine needs, and make the same calls whatever the times of files."""
    monkeypatch.setattr(git_hold, "IN_SAVE_S", 600.0)
    monkeypatch.setattr(git_refs, "RACY_NS", 0)


_SLOW = pytest.mark.crash


@pytest.fixture(params=[STEPS[0], *(pytest.param(each, marks=_SLOW) for each in STEPS[1:])], ids=str)
def step(request: pytest.FixtureRequest) -> Step:
    found: Step = request.param
    return found


@pytest.fixture
def scene(tmp_path: Path, step: Step) -> Scene:
    made = Scene(tmp_path)
    step.prepare(made)
    made.keep()
    return made


def test_kill_at_every_write(scene: Scene, step: Step) -> None:
    calls = every_point(lambda: step.act(scene))
    assert len(calls) > 5
    killed = 0
    for call in calls:
        scene.reset()
        killed += die_in_child(KillingDisk(at=call.number, when="before"), lambda: step.act(scene))
        _aftermath(scene, step)
    assert killed == len(calls)


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS[:1], ids=str, indirect=True)
@pytest.mark.parametrize("names", ["lost", "kept"])
def test_power_loss_while_holding(scene: Scene, step: Step, names: str) -> None:
    """The store is watched; what git does in `git-work` is lost."""
    cut = 0
    calls = every_point(lambda: step.act(scene), among=SYNCS)
    for call in calls:
        scene.reset()
        cut += _cut(scene, step, ForgetfulDisk(scene.store, at=call.number), survives=lambda _: names == "kept")
        _check_sound(scene)
        _aftermath(scene, step)
    assert cut == len(calls)


@pytest.mark.crash
@pytest.mark.parametrize("step", STEPS[:1], ids=str, indirect=True)
def test_power_loss_after_a_kill_while_holding(scene: Scene, step: Step) -> None:
    """A killed process leaves packs that no sync has followed; the next one must not refer to them before they are."""
    calls = every_point(lambda: step.act(scene), among={*SYNCS, "rename"})
    for call in calls:
        scene.reset()
        disk = ForgetfulDisk(scene.store, at=call.number)
        with durable.use_disk(disk):
            with pytest.raises(PowerLoss):
                step.act(scene)
            disk.go_on()
            again = _open(scene)
            checkpoint = again.save("second")
            assert not again.git_losses(checkpoint.id).not_held
        disk.lose_power()
        assert not _open(scene).git_losses(checkpoint.id).not_held
        _check_sound(scene)


def _check_sound(scene: Scene) -> None:
    """Nothing that a checkpoint refers to is missing. Then save, which makes the scan cache again."""
    problems = _open(scene).verify().problems
    assert [each for each in problems if each.what != "holdfast/scan.cache"] == []
    assert not scene.fsck()
    _open(scene).save("after the power loss")


def _cut(scene: Scene, step: Step, disk: ForgetfulDisk, *, survives: Survives) -> bool:
    """Do something until the power goes; return whether it went."""
    with durable.use_disk(disk), contextlib.suppress(PowerLoss):
        step.act(scene)
    was_off = disk.is_off
    disk.lose_power(survives=survives)
    return was_off


def test_kill_at_every_git_command(scene: Scene, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    count = _count_commands(monkeypatch, kill_at=None)
    step.act(scene)
    assert count[0] > 2
    for number in range(1, count[0] + 1):
        scene.reset()
        child = os.fork()
        if not child:
            _count_commands(monkeypatch, kill_at=number)
            try:
                step.act(scene)
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        _aftermath(scene, step)


def _count_commands(monkeypatch: pytest.MonkeyPatch, *, kill_at: int | None) -> list[int]:
    """Count git commands, and die after the one with this number."""
    count = [0]
    real = git_scratch.run_git

    def run(*args: Any, **options: Any) -> Any:
        done = real(*args, **options)
        count[0] += 1
        if count[0] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    for module in (git_scratch, git_rescue):
        monkeypatch.setattr(module, "run_git", run)
    return count
