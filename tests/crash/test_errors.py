"""The system refuses a call: once, or from then on until the disk is mended."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from holdfast import HoldfastError, durable
from holdfast.testing.faulty_disks import TAKES_SPACE, DiskCall, FailingDisk

from . import workers
from .aftermath import Aftermath, Rehearsal, differences
from .conftest import Stages, points
from .operations import OPERATIONS, SMALL, Operation
from .scene import Scene


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_io_error_at_any_call_changes_nothing(operation: Operation, stages: Callable[[Operation], Stages]) -> None:
    _fail(stages(operation), points(stages(operation)), errno.EIO, once=True)


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_momentarily_full_disk_changes_nothing(operation: Operation, stages: Callable[[Operation], Stages]) -> None:
    """What takes no space fails as it does with an I/O error."""
    calls = [call for call in points(stages(operation)) if call.name in TAKES_SPACE - {"create"}]
    _fail(stages(operation), calls, errno.ENOSPC, once=True)


@pytest.mark.parametrize("operation", SMALL, ids=str)
def test_full_disk_leaves_old_or_new(operation: Operation, stages: Callable[[Operation], Stages]) -> None:
    calls = [call for call in points(stages(operation)) if call.name in TAKES_SPACE]
    _fail(stages(operation), calls, errno.ENOSPC, once=False)


@pytest.mark.parametrize("operation", SMALL, ids=str)
def test_disk_that_turns_read_only_leaves_old_or_new(
    operation: Operation, stages: Callable[[Operation], Stages]
) -> None:
    _fail(stages(operation), points(stages(operation))[::3], errno.EROFS, once=False)


def _fail(stages: Stages, calls: list[DiskCall], error: int, *, once: bool) -> None:
    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages[worker]
        scene.reset()
        disk = FailingDisk(at=call.number, error=error, once=once)
        raised: HoldfastError | None = None
        try:
            with durable.use_disk(disk):
                rehearsal.operation.act(scene)
        except HoldfastError as refused:
            raised = refused
        assert disk.failed, "the call was not reached"
        problems = _untrue(scene, rehearsal, raised) if raised else []
        changed = differences(rehearsal.before, scene.describe())
        if raised and changed and once:
            problems.append(f"failed with {raised} and left the workspace changed: {changed}")
        if raised is None:
            must_be = "new"
        else:
            must_be = "old or new" if changed or error == errno.EROFS else "old"
        try:
            Aftermath(scene, rehearsal).check(must_be=must_be)
        except AssertionError as aftermath:
            problems.append(str(aftermath))
        if problems:
            raise AssertionError("; ".join(problems))

    workers.all_of(calls, work)


def _untrue(scene: Scene, rehearsal: Rehearsal, raised: HoldfastError) -> list[str]:
    """An error that says that nothing was done is to be believed (P4)."""
    text = str(raised).lower()
    made = scene.refs().keys() - rehearsal.refs.keys()
    changed = differences(rehearsal.before, scene.describe())
    found = []
    if "nothing was saved" in text and rehearsal.operation.saves and made:
        found.append(f"says {str(raised)!r} and has saved {made}")
    if ("nothing was changed" in text or "saved or changed" in text) and changed:
        found.append(f"says {str(raised)!r} and has changed {changed}")
    return found
