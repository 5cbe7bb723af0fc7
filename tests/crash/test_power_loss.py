"""The power goes: what was not synced is gone, or half of it is.

Between two syncs the medium does not change, as far as it is certain: so the power is cut at every sync, and, for
what is not certain (names that may have arrived or not), at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from holdfast import durable
from holdfast.testing.faulty_disks import SYNCS, DiskCall, Foreign, ForgetfulDisk, PowerLoss
from holdfast.testing.power_loss import Survives

from . import surviving, workers
from .aftermath import Aftermath
from .conftest import Stages, points
from .operations import BY_NAME, OPERATIONS, SMALL, Operation

_CATALOGS: tuple[Foreign, ...] = ("dropped", "kept")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_loss_of_everything_unsynced_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    calls = [call for call in points(stages(operation)) if call.name in SYNCS]
    _cut(stages(operation), calls, lambda call: surviving.nothing)


@pytest.mark.parametrize("operation", SMALL, ids=str)
def test_loss_of_unsynced_contents_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    calls = [call for call in points(stages(operation)) if call.name in (*SYNCS, "rename", "place", "exchange")]
    _cut(stages(operation), calls, lambda call: surviving.everything)


@pytest.mark.parametrize("operation", SMALL, ids=str)
def test_a_disk_that_forgets_names_at_random_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    _cut(stages(operation), points(stages(operation))[1::2], lambda call: surviving.at_random(call.number))


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
@pytest.mark.parametrize("survives", [surviving.nothing, surviving.everything], ids=["names-lost", "names-kept"])
def test_what_has_returned_outlives_the_power(
    operation: Operation, survives: Survives, stages: Callable[[Operation], Stages]
) -> None:
    def work(worker: int, catalog: Foreign) -> None:
        scene, rehearsal = stages(operation)[worker]
        scene.reset()
        disk = ForgetfulDisk(scene.live)
        with durable.use_disk(disk):
            operation.act(scene)
        disk.lose_power(survives=survives, foreign=catalog)
        Aftermath(scene, rehearsal).check(must_be="new")

    workers.all_of(_CATALOGS, work)


@pytest.mark.parametrize("operation", [BY_NAME["later save"], BY_NAME["undo"]], ids=str)
def test_a_catalog_garbled_by_the_power_loss_is_made_again(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    def work(worker: int, seed: int) -> None:
        scene, rehearsal = stages(operation)[worker]
        scene.reset()
        disk = ForgetfulDisk(scene.live)
        with durable.use_disk(disk):
            operation.act(scene)
        disk.lose_power(foreign="garbled", random=Random(seed))
        Aftermath(scene, rehearsal).check(must_be="new")

    workers.all_of(range(24), work)


@pytest.mark.parametrize("operation", SMALL, ids=str)
def test_completed_work_survives_a_kill_and_a_power_loss(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    """A killed process leaves names that were not synced; the next process must not build upon them."""

    def work(worker: int, call: DiskCall) -> None:
        scene, _ = stages(operation)[worker]
        scene.reset()
        disk = ForgetfulDisk(scene.live, at=call.number)
        with durable.use_disk(disk):
            with pytest.raises(PowerLoss):
                operation.act(scene)
            disk.go_on()
            ws = scene.open()
            (scene.ws / "keep.txt").write_text("after the kill\n")
            checkpoint = ws.save("after the kill")
        disk.lose_power()
        found = [found.id for found in scene.open().list(None)]
        assert checkpoint.id in found, f"{checkpoint.id} had returned, and is gone; there are {found}"
        (scene.ws / "keep.txt").write_text("overwritten\n")
        scene.open().restore(checkpoint.id, ["keep.txt"])
        assert (scene.ws / "keep.txt").read_text() == "after the kill\n"

    calls = points(stages(operation))
    workers.all_of(calls if operation.saves else calls[::4], work)


def _cut(stages: Stages, calls: list[DiskCall], choose: Callable[[DiskCall], Survives]) -> None:
    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages[worker]
        scene.reset()
        disk = ForgetfulDisk(scene.live, at=call.number)
        with durable.use_disk(disk), pytest.raises(PowerLoss):
            rehearsal.operation.act(scene)
        catalog = _CATALOGS[call.number % len(_CATALOGS)]
        disk.lose_power(survives=choose(call), foreign=catalog)
        Aftermath(scene, rehearsal).check()

    workers.all_of(calls, work)
