"""`kill -9` before, after and in the middle of every call that changes the disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.testing.faulty_disks import WRITES, DiskCall, KillingDisk, When, die_in_child

from . import workers
from .aftermath import Aftermath
from .conftest import Stages, points
from .operations import OPERATIONS, SMALL, Operation


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_process_killed_before_any_call_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    _kill(stages(operation), points(stages(operation)), "before")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_kill_in_the_middle_of_any_write_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    _kill(stages(operation), [call for call in points(stages(operation)) if call.name in WRITES], "halfway")


@pytest.mark.parametrize("operation", [each for each in SMALL if not each.restores], ids=str)
def test_a_process_killed_after_any_call_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    """What follows a call before the next one, such as a change of the catalog, is then missing."""
    _kill(stages(operation), points(stages(operation)), "after")


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_process_killed_after_its_last_call_leaves_the_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    _kill(stages(operation), points(stages(operation))[-1:], "after", must_be="new")


def _kill(stages: Stages, calls: list[DiskCall], when: When, *, must_be: str = "old or new") -> None:
    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages[worker]
        scene.reset()
        assert die_in_child(KillingDisk(at=call.number, when=when), lambda: rehearsal.operation.act(scene))
        Aftermath(scene, rehearsal).check(must_be=must_be)

    workers.all_of(calls, work)
