"""What an interrupted undo of an agent leaves beside old or new: a target that says nothing of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Unavailable, durable
from holdfast.testing.faulty_disks import CountingDisk, DiskCall, FailingDisk, KillingDisk, die_in_child

from .aftermath import Rehearsal, rehearse
from .operations import BY_NAME
from .scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def rehearsal(scene: Scene) -> Rehearsal:
    return rehearse(scene, BY_NAME["undo of an agent"])


def _journal(rehearsal: Rehearsal) -> DiskCall:
    """The call that opens the journal: the target is there then, and nothing else."""
    return next(call for call in rehearsal.calls if call.name == "rename" and "journal" in call.about)


def test_target_without_restore_is_not_listed(scene, rehearsal):
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        head, listed = ws.head(), ws.list()
    disk = KillingDisk(at=_journal(rehearsal).number, when="before")
    assert die_in_child(disk, lambda: rehearsal.operation.act(scene))
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        made = [each for each in ws.list(None, safety=True) if each.operation]
        assert [each.operation.verb for each in made] == ["without"]
        assert (ws.head(), ws.list()) == (head, listed)
        assert ws.preview("first", keep_mine=True), "the agent's work is still there to be undone"
        assert not ws.preview("first", keep_mine=True).missing


def test_an_undo_that_fails_takes_its_target_with_it(scene, rehearsal):
    swap = next(call for call in rehearsal.calls if call.name == "exchange")
    before = scene.refs()
    with durable.use_disk(FailingDisk(at=swap.number)), pytest.raises(Unavailable):
        rehearsal.operation.act(scene)
    assert scene.refs() == before
