"""A restore is rolled back, in our own hands or at the next opening, and that is interrupted in its turn (P3)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import HoldfastError, durable
from holdfast.testing.faulty_disks import (
    CountingDisk,
    DiskCall,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
)

from . import workers
from .aftermath import Aftermath, differences
from .conftest import Stages
from .operations import BY_NAME, Operation

RESTORE = BY_NAME["restore of some paths"]
_WRITTEN = "written by somebody else\n"


class KillingAfterAnError(KillingDisk):
    """Refuses one call, and kills its process at a later one."""

    def __init__(self, *, refused: int, at: int) -> None:
        super().__init__(at=at)
        self._refused = refused

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.number == self._refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), call.about)
        return super()._pass(call, act, half)


class ForgetfulAfterAnError(ForgetfulDisk):
    """Refuses one call; then it goes on as a forgetful disk does."""

    refused = 0

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.number == self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO), call.about)
        return super()._pass(call, act, half)


@pytest.fixture(scope="module", params=["swapping", "syncing"])
def refused(request: pytest.FixtureRequest, stages: Callable[[Operation], Stages]) -> tuple[int, int]:
    """The call at which a restore fails when almost everything is done, and how many there are with its taking back."""
    scene, rehearsal = stages(RESTORE)[0]
    ended = next(call.number for call in rehearsal.calls if call.name == "pwrite" and "journal" in call.about)
    names = ("place", "exchange") if request.param == "swapping" else ("fsync",)
    last = max(call.number for call in rehearsal.calls[:ended] if call.name in names)
    scene.reset()
    disk = FailingDisk(at=last)
    with durable.use_disk(disk), pytest.raises(HoldfastError, match="rolled back"):
        RESTORE.act(scene)
    return last, len(disk.calls)


@pytest.mark.crash
def test_kill_while_taking_back_leaves_old_or_new(
    refused: tuple[int, int], stages: Callable[[Operation], Stages]
) -> None:
    def work(worker: int, number: int) -> None:
        scene, rehearsal = stages(RESTORE)[worker]
        scene.reset()
        assert die_in_child(KillingAfterAnError(refused=refused[0], at=number), lambda: RESTORE.act(scene))
        Aftermath(scene, rehearsal).check()
        scene.reset()
        assert die_in_child(KillingAfterAnError(refused=refused[0], at=number), lambda: RESTORE.act(scene))
        with durable.use_disk(CountingDisk()):
            ws = scene.open()
            took_place = bool(differences(rehearsal.before, scene.describe()))
            assert bool(ws.list(safety=True)[0].operation) or not took_place
            can_undo = [
                each for each in ws.list(None, safety=True) if each.operation and each.operation.verb != "found"
            ]
            assert bool(can_undo) == took_place, f"{can_undo} can be undone, and nothing was done"

    workers.all_of(range(refused[0] + 1, refused[1] + 1), work)


def test_power_loss_while_taking_back_leaves_old_or_new(
    refused: tuple[int, int], stages: Callable[[Operation], Stages]
) -> None:
    def work(worker: int, number: int) -> None:
        scene, rehearsal = stages(RESTORE)[worker]
        scene.reset()
        disk = ForgetfulAfterAnError(scene.live, at=number)
        disk.refused = refused[0]
        with durable.use_disk(disk), pytest.raises(PowerLoss):
            RESTORE.act(scene)
        disk.lose_power()
        Aftermath(scene, rehearsal).check()

    workers.all_of(range(refused[0] + 1, refused[1] + 1), work)


def test_taken_back_restore_does_not_return_after_power_loss(
    refused: tuple[int, int], stages: Callable[[Operation], Stages]
) -> None:
    scene, rehearsal = stages(RESTORE)[0]
    scene.reset()
    disk = ForgetfulAfterAnError(scene.live)
    disk.refused = refused[0]
    with durable.use_disk(disk), pytest.raises(HoldfastError, match="rolled back"):
        RESTORE.act(scene)
    disk.lose_power()
    assert not scene.journal.exists()
    Aftermath(scene, rehearsal).check(must_be="old")


class MeddledBeforeAnError(FailingDisk):
    """Somebody else writes to a file just before a call is refused."""

    def __init__(self, path: Path, *, at: int) -> None:
        super().__init__(at=at)
        self._path = path

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if self._refuses(call):
            self._path.write_text(_WRITTEN)
        return super()._pass(call, act, half)


@pytest.mark.parametrize("name", ["edit.txt", "deep/leaf.txt"])
def test_foreign_write_to_a_restored_file_is_not_taken_back(
    name: str, refused: tuple[int, int], stages: Callable[[Operation], Stages]
) -> None:
    """It is in no checkpoint; and what was there before it, which one checkpoint has, can still be had (P1)."""
    scene, rehearsal = stages(RESTORE)[0]
    scene.reset()
    with (
        durable.use_disk(MeddledBeforeAnError(scene.ws / name, at=refused[0])),
        pytest.raises(HoldfastError, match="rolled back"),
    ):
        RESTORE.act(scene)
    assert (scene.ws / name).read_text() == _WRITTEN
    ws = scene.open()
    assert ws.undo().ok
    assert not differences(rehearsal.before, scene.describe())
