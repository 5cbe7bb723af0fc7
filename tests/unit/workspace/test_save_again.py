"""Saving what some checkpoint holds already: which one is the answer, and what `latest` means afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from holdfast import Checkpoint, Workspace, durable
from holdfast.testing.faults import ForgetfulDisk, PowerLoss
from holdfast.workspace.capture.save import Details

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture
def two(project: Project, ws: Workspace) -> tuple[Checkpoint, Checkpoint]:
    """Two saves of a file; the folder is as the second holds it."""
    _write(project, "one")
    first = ws.save("first")
    _write(project, "two")
    return first, ws.save("second")


def test_what_was_saved_last_is_the_latest_even_if_an_older_one_holds_the_same(
    project: Project, ws: Workspace, two: tuple[Checkpoint, Checkpoint]
) -> None:
    _write(project, "one")  # by hand, with the time it had
    again = ws.save("before the risky step")
    assert again.message == "before the risky step" and again.parent == two[1].id
    assert not ws.diff(two[0].id, again.id)
    _write(project, "three")
    ws.restore("latest")
    assert (project.root / "file").read_text() == "one"


def test_after_a_restore_the_checkpoint_it_went_to_holds_what_is_there(
    ws: Workspace, two: tuple[Checkpoint, Checkpoint]
) -> None:
    ws.restore(two[0].id)
    assert ws.save("again").id == two[0].id
    assert ws.save("again", state={"conversation": ["new"]}).id not in {each.id for each in two}


def test_what_is_written_by_hand_after_a_restore_is_saved_even_if_the_latest_holds_the_same(
    project: Project, ws: Workspace, two: tuple[Checkpoint, Checkpoint]
) -> None:
    ws.restore(two[0].id)
    _write(project, "two")
    again = ws.save("forth by hand")
    assert again.sequence > two[1].sequence and again.parent == two[0].id


def test_after_an_undo_the_latest_holds_what_is_there(ws: Workspace, two: tuple[Checkpoint, Checkpoint]) -> None:
    ws.restore(two[0].id)
    ws.undo()
    assert ws.save("again").id == two[1].id


class KilledOverTheRef(ForgetfulDisk):
    """Ends a process that has named its checkpoint, before that name is durable; later ones go on."""

    is_over = False

    def fsync(self, fd: int) -> None:
        if not self.is_over and os.readlink(f"/proc/self/fd/{fd}").endswith("refs/tags"):
            self.is_over = True
            raise PowerLoss
        super().fsync(fd)


@pytest.mark.parametrize("verb", ["save", "save_changes"])
def test_what_a_killed_process_saved_is_durable_before_somebody_is_told_that_it_holds_the_same(
    project: Project, ws: Workspace, verb: str
) -> None:
    _write(project, "one")
    disk = KilledOverTheRef(project.area)
    with durable.use_disk(disk):
        with pytest.raises(PowerLoss):
            ws.save("killed")
        if verb == "save":
            assert project.open().save("again").message == "killed"
        else:
            assert project.open().save_changes("again", details=lambda: Details({}, {})) is None
    disk.lose_power()
    assert [each.message for each in project.open().list()] == ["killed"]


def _write(project: Project, text: str) -> None:
    """Write a file, so that the folder is the same in every respect whenever the text is."""
    path = project.root / "file"
    path.write_text(text)
    os.utime(path, (1, len(text) * 100 + ord(text[0])))
    os.utime(project.root, (1, 1))
