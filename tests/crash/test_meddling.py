"""Somebody else writes to the workspace while a restore is under way, at any of its calls.

A restore may then leave the path alone, or save what was written first; it may not destroy it (P1).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import HoldfastError, durable
from holdfast.testing.faulty_disks import CountingDisk, DiskCall

from . import workers
from .conftest import Stages, points
from .operations import BY_NAME, Operation
from .scene import Scene

_WRITTEN = "written by somebody else\n"


class MeddledDisk(CountingDisk):
    """A disk on which somebody else does something just before the n-th call."""

    def __init__(self, *, at: int, meddle: Callable[[], object]) -> None:
        super().__init__()
        self._at = at
        self._meddle = meddle

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.number == self._at:
            self._meddle()
        return act()


def _overwrite(path: Path) -> None:
    path.write_text(_WRITTEN)


def _replace(path: Path) -> None:
    path.with_name("by-somebody-else").write_text(_WRITTEN)
    os.replace(path.with_name("by-somebody-else"), path)


@pytest.mark.crash
@pytest.mark.parametrize("meddle", [_overwrite, _replace], ids=["overwritten", "replaced"])
@pytest.mark.parametrize("name", ["edit.txt", "gone.txt", "new/newer/new.txt", "hard-b"])
def test_foreign_writes_during_a_restore_are_never_destroyed(
    name: str, meddle: Callable[[Path], None], stages: Callable[[Operation], Stages]
) -> None:
    def work(worker: int, call: DiskCall) -> None:
        scene, rehearsal = stages(BY_NAME["restore"])[worker]
        scene.reset()
        path = scene.ws / name
        written: list[bool] = []

        def write() -> None:
            if path.parent.is_dir():
                meddle(path)
                written.append(True)

        with durable.use_disk(MeddledDisk(at=call.number, meddle=write)):
            try:
                rehearsal.operation.act(scene)
            except HoldfastError:
                pass
        if written and not (path.exists() and path.read_text() == _WRITTEN):
            assert _is_saved(scene, name), f"what was written to {name} is neither there nor in any checkpoint"

    calls = points(stages(BY_NAME["restore"]))
    begin = next(call.number for call in calls if call.name == "mkdir")
    workers.all_of([call for call in calls if call.number >= begin][::2], work)


def _is_saved(scene: Scene, name: str) -> bool:
    """Whether some checkpoint holds what somebody else wrote."""
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        for checkpoint in ws.list(None, safety=True):
            try:
                ws.restore(checkpoint.id, [name])
            except HoldfastError:
                continue
            path = scene.ws / name
            if path.exists() and path.read_text() == _WRITTEN:
                return True
    return False
