"""Pins, prunes, rewinds and putting aside, interrupted at every call that changes the disk: the old, or the new."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from holdfast import durable
from holdfast.errors import HoldfastError
from holdfast.testing.faulty_disks import DiskCall, FailingDisk, KillingDisk, When, die_in_child, every_point
from holdfast.testing.power_loss import Survives
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.folder import FolderRunStore

from . import surviving
from .training_interruptions import cut_power, cut_power_afterwards, fails_silently, kill_at_each
from .training_scenes import SCENES, Replace, SavePinned, Scene

pytestmark = [pytest.mark.crash, pytest.mark.extras]


@pytest.fixture(scope="module", params=SCENES, ids=lambda kind: kind.__name__)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with durable.use_disk(FailingDisk(at=0)):  # which never fails, and never waits for the medium
        yield request.param(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def points(scene: Scene) -> list[DiskCall]:
    scene.reset()
    found = every_point(scene.act)
    assert "fsync" in {call.name for call in found}
    return found


@pytest.mark.parametrize("when", ["before", "halfway"])
def test_a_process_killed_at_any_call_leaves_old_or_new(when: When, scene: Scene, points: list[DiskCall]) -> None:
    kill_at_each(points, scene, when)


@pytest.mark.parametrize(("error", "once"), [(errno.EIO, True), (errno.ENOSPC, False)], ids=["broken", "full"])
def test_a_disk_that_fails_at_any_call_leaves_old_or_new(
    error: int, once: bool, scene: Scene, points: list[DiskCall]
) -> None:
    for call in points:
        silent = fails_silently(scene, call, error, once=once)
        assert not silent or scene.swallows or scene.view() == scene.new, call
        scene.check()


@pytest.mark.parametrize("survives", [surviving.nothing, None], ids=["names-lost", "at-random"])
def test_a_power_loss_at_any_call_leaves_old_or_new(
    survives: Survives | None, scene: Scene, points: list[DiskCall]
) -> None:
    for call in points:
        cut_power(scene, call, survives or surviving.at_random(call.number))
        scene.check(names_may_be_lost=survives is None)


def test_what_has_returned_outlives_the_power(scene: Scene) -> None:
    for survives in (surviving.nothing, surviving.everything):
        cut_power_afterwards(scene, survives)
        assert scene.view() == scene.new
        scene.check()


def test_a_pinned_save_that_fails_leaves_no_pin_of_nothing(tmp_path: Path) -> None:
    with durable.use_disk(FailingDisk(at=0)):
        scene = SavePinned(tmp_path)
        scene.reset()
        for call in every_point(scene.act):
            scene.reset()
            with durable.use_disk(FailingDisk(at=call.number)), contextlib.suppress(HoldfastError):
                scene.act()
            folder = FolderRunStore(scene.out)
            there = {each.step for each in folder.scan()[0]}
            assert folder.pinned() == {2, 5} & there, call


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:  # as NFS does
        raise OSError(errno.EINVAL, "no flags")

    monkeypatch.setattr(sys.modules["holdfast.durable.platform"], "rename_with_flags", refuse)


@pytest.mark.usefixtures("without_exchange")
def test_without_exchange_the_next_writer_finds_old_or_new(tmp_path: Path) -> None:
    with durable.use_disk(FailingDisk(at=0)):
        scene = Replace(tmp_path)
        scene.reset()
        for call in [call for call in every_point(scene.act) if call.name == "rename"]:
            scene.reset()
            assert die_in_child(KillingDisk(at=call.number), scene.act), call
            with FolderRunStore(scene.out).writing():
                pass  # who writes next, whatever it is
            scene.check()
            scene.reset()
            with durable.use_disk(FailingDisk(at=call.number)), pytest.raises(HoldfastError):
                scene.act()
            scene.check()


@pytest.mark.usefixtures("without_exchange")
def test_without_exchange_a_reader_finds_old_or_new(tmp_path: Path) -> None:
    path, seen = tmp_path / "out" / "step-00000001", set()

    def save(value: float) -> None:
        save_checkpoint(path.parent, 1, {"x": torch.tensor([value])}, rewind=True, rng=False, threads=1)

    with durable.use_disk(FailingDisk(at=0)):
        save(1.0)
        points = [call.number for call in every_point(lambda: save(2.0)) if call.name == "rename"]
        for number in points:
            save(1.0)
            assert die_in_child(KillingDisk(at=number), lambda: save(2.0))
            resumed = CheckpointManager(path.parent).resume()
            assert resumed is not None, number
            found = [load_checkpoint(where) for where in (path, path.parent, path.parent / "last")]
            [value] = {each["x"].item() for each in (resumed.state, *found)}
            seen.add(value)
            assert [each.step for each in CheckpointManager(path.parent).history()] == [1]
    assert seen == {1.0, 2.0}
