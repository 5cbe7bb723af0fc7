"""A save of a training state, interrupted at every call that changes the disk: the old set, or the old and the new."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import torch

from holdfast import durable
from holdfast.testing.faulty_disks import SYNCS, DiskCall, FailingDisk, When, every_point
from holdfast.testing.power_loss import Survives
from holdfast.training import load_checkpoint, save_checkpoint, wait_for_save

from . import surviving
from .training_interruptions import RunFolder, cut_power, cut_power_afterwards, fails_silently, kill_at_each

pytestmark = [pytest.mark.crash, pytest.mark.extras]


class Scene(RunFolder):
    """A folder with two checkpoints, and the save of a third that prunes the first and shares a file."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for step in (1, 2):
            self.save(step)
        self.keep()

    def state(self, step: int) -> dict[str, object]:
        frozen = torch.arange(300_000, dtype=torch.float32)
        return {
            "frozen": frozen,
            "changing": torch.full((300_000,), float(step)),
            "small": [step, torch.ones(3) * step],
        }

    def save(self, step: int) -> None:
        save_checkpoint(
            self.out, step, self.state(step), metrics={"loss": 10.0 - step}, best_key="loss", keep_last_k=2, rng=False,
            threads=1,
        )  # fmt: skip

    def act(self) -> None:
        self.save(3)

    def check(self, *, must_be: str = "old or new") -> None:
        """Everything that is there is whole; the next save works, and leaves nothing behind."""
        newest = self._whole()
        assert newest in {"old": (2,), "new": (3,)}.get(must_be, (2, 3))
        for marker in ("last", "best.json"):
            if newest == 3 or (self.out / marker).exists():
                self._loads(self.out / marker, newest)
        for _ in range(2):
            newest += 1
            self.save(newest)
        assert self._whole() == newest
        assert sorted(os.listdir(self.out)) == [
            ".holdfast", "best.json", "last", f"step-{newest - 1:08d}", f"step-{newest:08d}",
        ]  # fmt: skip
        assert os.listdir(self.out / ".holdfast") == ["lock"]

    def _whole(self) -> int:
        steps = sorted(int(path.name.removeprefix("step-")) for path in self.out.glob("step-*"))
        for step in steps:
            self._loads(self.out / f"step-{step:08d}", step)
        assert len(steps) >= 2
        return steps[-1]

    def _loads(self, path: Path, step: int) -> None:
        loaded = load_checkpoint(path)
        expected = self.state(step)
        assert torch.equal(loaded["frozen"], expected["frozen"])
        assert torch.equal(loaded["changing"], expected["changing"])
        assert loaded["small"][0] == step


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with durable.use_disk(FailingDisk(at=0)):  # which never fails, and never waits for the medium
        yield Scene(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def points(scene: Scene) -> list[DiskCall]:
    scene.reset()
    found = every_point(scene.act)
    assert {"link", "pwrite", "fsync", "rename", "rmdir"} <= {call.name for call in found}
    return found


@pytest.mark.parametrize("when", ["before", "halfway", "after"])
def test_a_process_killed_at_any_call_leaves_old_or_new(when: When, scene: Scene, points: list[DiskCall]) -> None:
    kill_at_each(points, scene, when)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("once", [True, False], ids=["once", "from-then-on"])
def test_a_disk_that_fails_at_any_call_leaves_old_or_new(
    error: int, once: bool, scene: Scene, points: list[DiskCall]
) -> None:
    for call in points:
        assert not fails_silently(scene, call, error, once=once) or error == errno.ENOSPC, call
        scene.check()


@pytest.mark.parametrize(
    "survives", [surviving.nothing, surviving.everything, None], ids=["names-lost", "names-kept", "at-random"]
)
def test_a_power_loss_at_any_call_leaves_old_or_new(
    survives: Survives | None, scene: Scene, points: list[DiskCall]
) -> None:
    for call in points:
        if survives is surviving.nothing and call.name not in SYNCS:
            continue
        cut_power(scene, call, survives or surviving.at_random(call.number))
        scene.check()


def test_what_has_returned_outlives_the_power(scene: Scene) -> None:
    for survives in (surviving.nothing, surviving.everything):
        cut_power_afterwards(scene, survives)
        scene.check(must_be="new")


def _save_for_ever(out: Path) -> None:
    step = 3
    while True:
        state = {f"t{at}": torch.full((1_000_000,), float(step)) for at in range(8)}
        save_checkpoint(out, step, state, keep_last_k=2)
        step += 1


def test_killed_process_leaves_what_it_had_saved(tmp_path: Path) -> None:
    random = Random(7)
    out = tmp_path / "out"
    for _ in range(10):
        shutil.rmtree(out, ignore_errors=True)
        save_checkpoint(out, 2, {"t0": torch.full((10,), 2.0)})
        child = os.fork()
        if not child:
            try:
                _save_for_ever(out)
            finally:
                os._exit(1)
        time.sleep(random.uniform(0.0, 0.4))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        found = load_checkpoint(out, step="latest")
        step = found["t0"][0].item()
        assert all((tensor == step).all() for tensor in found.values())
        save_checkpoint(out, int(step) + 10, found)
        assert os.listdir(out / ".holdfast") == ["lock"]


def _save_until_interrupted(out: Path, block: bool, tell: int) -> None:
    """Save, be interrupted somewhere in it, and go on at once: what was given up must not get in the way."""
    step = 3
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(tell, b"x")
        while True:
            state = {f"t{at}": torch.full((500_000,), float(step)) for at in range(8)}
            save_checkpoint(out, step, state, keep_last_k=2, block=block)
            step += 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    wait_for_save()
    state = {f"t{at}": torch.full((500_000,), -1.0) for at in range(8)}
    save_checkpoint(out, step + 10, state, keep_last_k=2)


def _interrupt(child: int) -> int:
    """Interrupt a child until it ends: Python drops what comes just in the callback of a weak reference."""
    for _ in range(10):
        os.kill(child, signal.SIGINT)
        for _ in range(1000):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("block", [True, False], ids=["block", "beside"])
def test_interrupted_process_resumes(block: bool, tmp_path: Path) -> None:
    random = Random(8)
    out = tmp_path / "out"
    for _ in range(5):
        shutil.rmtree(out, ignore_errors=True)
        save_checkpoint(out, 2, {"t0": torch.full((10,), 2.0)})
        ready, tell = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                _save_until_interrupted(out, block, tell)
                code = 0
            finally:
                os._exit(code)
        os.read(ready, 1)
        os.close(ready)
        os.close(tell)
        time.sleep(random.uniform(0.05, 0.3))
        assert os.waitstatus_to_exitcode(_interrupt(child)) == 0
        for path in out.glob("step-*"):
            found = load_checkpoint(path)
            assert len({float(value) for tensor in found.values() for value in (tensor.min(), tensor.max())}) == 1
        assert load_checkpoint(out)["t7"][0] == -1
        assert os.listdir(out / ".holdfast") == ["lock"]
