"""What becomes of an interrupted restore, and of the history of restores."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from holdfast import HoldfastError, NotFound, Workspace, durable
from holdfast.testing.faulty_disks import (
    SYNCS,
    CountingDisk,
    DiskCall,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
    every_point,
)

from . import workers
from .aftermath import Aftermath, Rehearsal, differences
from .conftest import Stages
from .operations import BY_NAME, Operation
from .scene import Scene


class Interrupted(NamedTuple):
    """A scene in which a restore was killed: opening the workspace has to deal with it."""

    scene: Scene
    rehearsal: Rehearsal
    calls: list[DiskCall]
    """What opening does."""

    def reset(self) -> None:
        self.scene.reset("interrupted")

    def check(self) -> None:
        Aftermath(self.scene, self.rehearsal).check()


@pytest.fixture(params=["staging", "swapping", "removing", "ending"])
def interrupted(request: pytest.FixtureRequest, stages: Callable[[Operation], Stages]) -> list[Interrupted]:
    """For each worker a restore that was killed at some stage."""
    return [_interrupt(scene, rehearsal, request.param) for scene, rehearsal in stages(BY_NAME["restore"])]


@pytest.mark.crash
def test_opening_may_be_killed_at_any_call(interrupted: list[Interrupted]) -> None:
    def work(worker: int, call: DiskCall) -> None:
        here = interrupted[worker]
        here.reset()
        assert die_in_child(KillingDisk(at=call.number), here.scene.open)
        here.check()

    workers.all_of(interrupted[0].calls[::3], work)


@pytest.mark.crash
def test_opening_may_fail_at_any_call(interrupted: list[Interrupted]) -> None:
    def work(worker: int, call: DiskCall) -> None:
        here = interrupted[worker]
        here.reset()
        with durable.use_disk(FailingDisk(at=call.number, error=errno.EIO)):
            try:
                here.scene.open()
            except HoldfastError:
                pass
        here.check()

    workers.all_of(interrupted[0].calls[1::3], work)


@pytest.mark.crash
def test_the_power_may_go_while_opening(interrupted: list[Interrupted]) -> None:
    def work(worker: int, call: DiskCall) -> None:
        here = interrupted[worker]
        here.reset()
        disk = ForgetfulDisk(here.scene.live, at=call.number)
        with durable.use_disk(disk), pytest.raises(PowerLoss):
            here.scene.open()
        disk.lose_power()
        here.check()

    workers.all_of([call for call in interrupted[0].calls if call.name in SYNCS], work)


def test_a_restore_that_cannot_be_finished_is_taken_back(interrupted: list[Interrupted]) -> None:
    here = interrupted[0]
    here.reset()
    target = next(path for path in (here.scene.store / "refs" / "tags").iterdir() if path.name.startswith("a1-"))
    target.unlink()
    ws = here.scene.open()
    assert ws.recovered
    assert ws.recovered.outcome == "rolled back"
    assert not differences(here.rehearsal.before, here.scene.describe())
    with pytest.raises(NotFound):  # nothing was restored
        ws.undo()


@pytest.mark.crash
def test_taking_back_may_be_killed_too(stages: Callable[[Operation], Stages]) -> None:
    """What the restore had brought by then is nothing that somebody wrote since."""
    interrupted = [_interrupt(*each, "removing") for each in stages(BY_NAME["restore"])]

    def begin(here: Interrupted) -> None:
        here.reset()
        next((here.scene.store / "refs" / "tags").glob("a1-*")).unlink()

    begin(interrupted[0])
    calls = every_point(interrupted[0].scene.open, among={"place", "exchange"})

    def work(worker: int, call: DiskCall) -> None:
        here = interrupted[worker]
        begin(here)
        assert die_in_child(KillingDisk(at=call.number), here.scene.open)
        with durable.use_disk(CountingDisk()):
            ws = here.scene.open()
        assert ws.recovered and (ws.recovered.outcome, ws.recovered.failed) == ("rolled back", {})
        assert not differences(here.rehearsal.before, here.scene.describe())
        assert not here.scene.journal.exists() and not list(here.scene.ws.glob(".holdfast-restore-*"))
        with pytest.raises(NotFound):  # nothing was restored
            ws.undo()

    workers.all_of(calls, work)


def test_opening_says_that_an_interrupted_restore_was_finished(interrupted: list[Interrupted]) -> None:
    here = interrupted[0]
    here.reset()
    ws = here.scene.open()
    assert ws.recovered
    assert (ws.recovered.verb, ws.recovered.outcome, ws.recovered.failed) == ("restore", "finished", {})
    assert not differences(here.rehearsal.after, here.scene.describe())
    assert here.scene.open().recovered is None


def test_writes_before_the_recovery_are_kept(interrupted: list[Interrupted]) -> None:
    here = interrupted[0]
    here.reset()
    written = here.scene.ws / "edit.txt"
    written.write_text("written before anybody opened the workspace\n")
    ws = here.scene.open()
    assert ws.recovered
    assert ws.recovered.failed == {"edit.txt": "written after the interruption; left as it is"}
    ws.restore(ws.recovered.found_id)
    assert written.read_text() == "written before anybody opened the workspace\n"


@pytest.mark.parametrize("name", ["edit.txt", "fresh.txt"])
def test_work_after_an_interrupted_restore_is_kept(interrupted: list[Interrupted], name: str) -> None:
    """The next save holds it, and no restore that was forgotten hours ago is carried out over it."""
    here = interrupted[0]
    here.reset()
    path = here.scene.ws / name
    path.write_text("an hour of work\n")
    ws = here.scene.open()
    saved = ws.save("my work")
    assert path.read_text() == "an hour of work\n"
    path.unlink()
    ws.restore(saved.id)
    assert path.read_text() == "an hour of work\n"


def test_finished_restore_leaves_only_its_stage(stages: Callable[[Operation], Stages]) -> None:
    scene, rehearsal = stages(BY_NAME["restore"])[0]
    scene.reset()
    assert die_in_child(KillingDisk(at=_point(rehearsal.calls, "ended")), lambda: rehearsal.operation.act(scene))
    assert list(scene.ws.glob(".holdfast-restore-*"))
    (scene.ws / "edit.txt").write_text("an hour of work\n")
    ws = scene.open()
    assert ws.recovered is None and not list(scene.ws.glob(".holdfast-restore-*"))
    assert (scene.ws / "edit.txt").read_text() == "an hour of work\n"


def test_a_power_loss_after_a_restore_does_not_bring_it_up_again(stages: Callable[[Operation], Stages]) -> None:
    """That it has ended is durable when it returns; removing the journal need not be."""
    scene, rehearsal = stages(BY_NAME["restore"])[0]
    scene.reset()
    disk = ForgetfulDisk(scene.live, at=10**9)
    with durable.use_disk(disk):
        rehearsal.operation.act(scene)
    disk.lose_power()
    assert scene.journal.exists(), "the disk forgot nothing, so this shows nothing"
    assert not scene.is_interrupted()
    assert scene.open().recovered is None
    assert not differences(rehearsal.after, scene.describe())


def test_a_power_loss_after_a_purge_does_not_bring_it_up_again(stages: Callable[[Operation], Stages]) -> None:
    """What is saved at the same path after it is nothing that the purge was to take."""
    scene, rehearsal = stages(BY_NAME["purge"])[0]
    scene.reset()
    again = scene.ws / rehearsal.operation.purges
    disk = ForgetfulDisk(scene.live)
    with durable.use_disk(disk):
        rehearsal.operation.act(scene)
        again.write_text("nothing secret any more\n")
        scene.open().save("with it")
    disk.lose_power()
    scene.open().save("the next to write", allow_empty=True)
    assert [each.purged for each in scene.open().list(2)] == [(), ()]


def test_what_cannot_be_put_in_place_by_the_opening_is_said(stages: Callable[[Operation], Stages]) -> None:
    here = _interrupt(*stages(BY_NAME["restore"])[0], "staging")
    exchange = next(call for call in here.calls if call.name == "exchange")
    here.reset()
    with durable.use_disk(FailingDisk(at=exchange.number, error=errno.EPERM)):
        ws = here.scene.open()
    assert ws.recovered and ws.recovered.outcome == "finished"
    assert list(ws.recovered.failed.values()) == [os.strerror(errno.EPERM)]


def test_what_is_not_taken_back_can_still_be_had(stages: Callable[[Operation], Stages]) -> None:
    """The checkpoint that alone holds it stays (P1)."""
    here = _interrupt(*stages(BY_NAME["restore"])[0], "removing")

    def begin() -> None:
        here.reset()
        next((here.scene.store / "refs" / "tags").glob("a1-*")).unlink()

    begin()
    calls = every_point(here.scene.open, among={"exchange"})
    begin()
    with durable.use_disk(FailingDisk(at=calls[0].number, error=errno.EPERM)):
        ws = here.scene.open()
    assert ws.recovered and ws.recovered.outcome == "rolled back"
    assert list(ws.recovered.failed.values()) == [os.strerror(errno.EPERM)]
    assert ws.undo().ok
    assert not differences(here.rehearsal.before, here.scene.describe())


@pytest.mark.parametrize("how", ["moved, without its stage", "copied"])
def test_interrupted_restore_is_finished_in_a_moved_folder(stages: Callable[[Operation], Stages], how: str) -> None:
    here = _interrupt(*stages(BY_NAME["restore"])[0], "swapping")
    here.reset()
    entry = json.loads(here.scene.journal.read_bytes())
    entry["inode"] = here.scene.ws.stat().st_ino  # the reset made another folder of it
    here.scene.journal.write_text(json.dumps(entry, indent=1))
    moved = here.scene.ws.with_name("moved")
    if how == "copied":
        subprocess.run(["cp", "-a", str(here.scene.ws), str(moved)], check=True)
        here.scene.ws.rename(here.scene.ws.with_name("spare"))  # still there, so that its number is not given again
    else:
        for stage in here.scene.ws.glob(".holdfast-restore-*"):
            shutil.rmtree(stage)
        here.scene.ws.rename(moved)
    ws = Workspace(moved, store=here.scene.store, home=here.scene.live)
    assert ws.recovered and ws.recovered.outcome == "finished" and not ws.recovered.failed
    assert (moved / "edit.txt").read_text() == "edit.txt at first\n"


def test_interrupted_restore_is_not_finished_in_another_folder(interrupted: list[Interrupted]) -> None:
    here = interrupted[0]
    here.reset()
    for stage in here.scene.ws.glob(".holdfast-restore-*"):
        shutil.rmtree(stage)
    here.scene.ws.rename(here.scene.ws.with_name("moved"))
    other = here.scene.ws.with_name("other")
    other.mkdir()
    if other.stat().st_ino == json.loads(here.scene.journal.read_bytes())["inode"]:  # that of what the reset removed
        other.rename(here.scene.ws.with_name("spare"))
        other.mkdir()
    (other / "thesis.txt").write_text("another project\n")
    ws = Workspace(other, store=here.scene.store, home=here.scene.live)
    assert ws.recovery_error is not None and "was interrupted in" in ws.recovery_error.message
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]
    with pytest.raises(HoldfastError):
        ws.save()
    here.scene.ws.with_name("moved").rename(here.scene.ws)
    assert here.scene.open().recovered is not None  # nor has the other folder taken the store from it


KEEPING_NEW = replace(
    BY_NAME["restore"],
    name="restore that keeps what is new",
    act=lambda scene: scene.open().restore("first", keep_new=True),
)


def test_recovery_of_keep_new_keeps_new_files(
    stages: Callable[[Operation], Stages],
) -> None:
    scene, rehearsal = stages(KEEPING_NEW)[0]
    for where in ("staging", "ending"):
        scene.reset()
        at = _point(rehearsal.calls, where)
        assert die_in_child(KillingDisk(at=at), lambda: KEEPING_NEW.act(scene))
        ws = scene.open()
        assert ws.recovered and ws.recovered.outcome == "finished"
        assert (scene.ws / "new" / "newer" / "new.txt").read_text() == "made since, and saved nowhere\n"
        assert not differences(rehearsal.after, scene.describe())


_SECOND_RESTORE = replace(BY_NAME["undo"], name="second restore", act=lambda scene: scene.open().restore("second"))


@pytest.mark.crash
def test_undo_after_a_kill_reverts_the_last_completed_restore(
    stages: Callable[[Operation], Stages],
) -> None:
    """A restore that was killed before it changed anything is no step back."""

    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages(_SECOND_RESTORE)[worker]
        scene.reset()
        assert die_in_child(KillingDisk(at=call.number), lambda: _SECOND_RESTORE.act(scene))
        _check_undo(scene, rehearsal)

    workers.all_of(stages(_SECOND_RESTORE)[0][1].calls[::2], work)


def test_undo_after_an_error_reverts_the_last_completed_restore(
    stages: Callable[[Operation], Stages],
) -> None:
    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages(_SECOND_RESTORE)[worker]
        scene.reset()
        with durable.use_disk(FailingDisk(at=call.number)):
            try:
                _SECOND_RESTORE.act(scene)
            except HoldfastError:
                pass
        _check_undo(scene, rehearsal)

    workers.all_of(stages(_SECOND_RESTORE)[0][1].calls[::2], work)


def _check_undo(scene: Scene, rehearsal: Rehearsal) -> None:
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        took_place = bool(differences(rehearsal.before, scene.describe()))
        ws.undo()
        if took_place:
            assert not differences(rehearsal.before, scene.describe()), "undo did not bring back what was there"
        else:
            assert (scene.ws / "edit.txt").read_text() == "edited, and saved nowhere\n", "undo undid nothing"
            with pytest.raises(NotFound):
                ws.undo()


def _interrupt(scene: Scene, rehearsal: Rehearsal, where: str) -> Interrupted:
    scene.reset()
    assert die_in_child(KillingDisk(at=_point(rehearsal.calls, where)), lambda: rehearsal.operation.act(scene))
    assert scene.journal.exists()
    scene.keep("interrupted")
    return Interrupted(scene, rehearsal, every_point(scene.open))


def _point(calls: list[DiskCall], where: str) -> int:
    begin = next(call.number for call in calls if call.name == "mkdir")
    swaps = [call.number for call in calls if call.name in ("place", "exchange")]
    finish = next(call.number for call in calls if call.name == "pwrite" and "journal" in call.about)
    return {
        "staging": (begin + swaps[0]) // 2,
        "swapping": swaps[len(swaps) // 2],
        "removing": swaps[-1],
        "ending": finish,
        "ended": (finish + 2 + calls[-1].number) // 2,
    }[where]
