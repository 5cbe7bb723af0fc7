"""A folder of checkpoints of a training run that can be put back, and the ways in which work on it is interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from holdfast import durable
from holdfast.errors import HoldfastError
from holdfast.testing.faulty_disks import (
    WRITES,
    DiskCall,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    When,
    die_in_child,
)
from holdfast.testing.power_loss import Survives

torch.set_num_threads(1)  # a forked child has none of its parent's threads, and would wait for them


class RunFolder:
    """A folder of checkpoints, something that is done to it, and what must be so when that was interrupted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.out = root / "live" / "out"
        self.out.mkdir(parents=True)
        self._kept = root / "kept"

    def keep(self) -> None:
        """Take the folder as it is now for what `reset` puts back."""
        shutil.copytree(self.out, self._kept)

    def reset(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self._kept, self.out, copy_function=shutil.copy2)

    def act(self) -> None:
        """What is done, and may be done again."""
        raise NotImplementedError

    def check(self) -> None:
        """Old or new, and the next writer leaves no remains."""
        raise NotImplementedError


def kill_at_each(calls: list[DiskCall], scene: RunFolder, when: When) -> None:
    """Kill a process at each call in turn, and check what it leaves."""
    for call in calls:
        if when != "halfway" or call.name in WRITES:
            scene.reset()
            assert die_in_child(KillingDisk(at=call.number, when=when), scene.act), call
            scene.check()


def fails_silently(scene: RunFolder, call: DiskCall, error: int, *, once: bool) -> bool:
    """Act on a disk that fails at a call. Return whether no error was raised; an error has a hint."""
    scene.reset()
    disk = FailingDisk(at=call.number, error=error, once=once)
    with durable.use_disk(disk):
        try:
            scene.act()
        except HoldfastError as told:
            assert told.hint
            return False
    return disk.failed is not None


def cut_power(scene: RunFolder, call: DiskCall, survives: Survives) -> None:
    """Act until the power goes at a call."""
    scene.reset()
    disk = ForgetfulDisk(scene.root / "live", at=call.number)
    with durable.use_disk(disk), pytest.raises(PowerLoss):
        scene.act()
    disk.lose_power(survives=survives)


def cut_power_afterwards(scene: RunFolder, survives: Survives) -> None:
    """Act, and cut the power when it has returned."""
    scene.reset()
    disk = ForgetfulDisk(scene.root / "live")
    with durable.use_disk(disk):
        scene.act()
    disk.lose_power(survives=survives)
