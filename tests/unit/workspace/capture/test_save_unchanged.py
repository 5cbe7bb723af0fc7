"""Saving what some checkpoint holds already: which one is the answer, and what `latest` means afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast import Checkpoint, Workspace, durable
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss
from holdfast.workspace.capture.save import StateAndMetadata

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


@pytest.fixture
def two(project: Project, ws: Workspace) -> tuple[Checkpoint, Checkpoint]:
    """Two saves of a file; the folder is as the second holds it."""
    _write(project, "one")
    first = ws.save("first")
    _write(project, "two")
    return first, ws.save("second")


def test_last_save_is_latest_even_if_an_older_one_is_equal(
    project: Project, ws: Workspace, two: tuple[Checkpoint, Checkpoint]
) -> None:
    _write(project, "one")  # by hand, with the time it had
    again = ws.save("before the risky step")
    assert again.message == "before the risky step" and again.parent == two[1].id
    assert not ws.diff(two[0].id, again.id)
    _write(project, "three")
    ws.restore("latest")
    assert (project.root / "file").read_text() == "one"


def test_save_after_restore_returns_the_restored_checkpoint(ws: Workspace, two: tuple[Checkpoint, Checkpoint]) -> None:
    ws.restore(two[0].id)
    assert ws.save("again").id == two[0].id
    assert ws.save("again", state={"conversation": ["new"]}).id not in {each.id for each in two}


def test_edit_after_restore_is_saved_even_if_latest_is_equal(
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
def test_checkpoint_of_killed_process_is_synced_before_reuse(project: Project, ws: Workspace, verb: str) -> None:
    _write(project, "one")
    disk = KilledOverTheRef(project.area)
    with durable.use_disk(disk):
        with pytest.raises(PowerLoss):
            ws.save("killed")
        if verb == "save":
            assert project.open().save("again").message == "killed"
        else:
            assert project.open().save_changes("again", details=lambda: StateAndMetadata({}, {})) is None
    disk.lose_power()
    assert [each.message for each in project.open().list()] == ["killed"]


def test_save_tells_whether_it_made_the_checkpoint(project: Project, ws: Workspace) -> None:
    _write(project, "one")
    first = ws.save("first")
    again = ws.save("again")
    assert first.is_new and not again.is_new
    assert first == again and "is_new" not in repr(first)  # not part of what a checkpoint is
    assert not ws.get(first.id).is_new and not ws.list()[0].is_new
    assert ws.save("empty", allow_empty=True).is_new


def test_of_two_processes_that_save_the_same_exactly_one_made_it(project: Project, ws: Workspace) -> None:
    script = """if True:
        import sys
        from holdfast import Workspace
        ws = Workspace(sys.argv[1], store=sys.argv[2])
        print("ready", flush=True)
        for line in sys.stdin:
            saved = ws.save("mine")
            print(int(saved.is_new), saved.id, flush=True)
    """
    command = [sys.executable, "-c", script, os.fspath(ws.path), os.fspath(ws.store)]
    with contextlib.ExitStack() as stack:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        savers = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(2)]
        for saver in savers:
            assert saver.stdout.readline() == "ready\n"
        for number in range(20):
            _write(project, f"content {number}")
            for saver in savers:
                saver.stdin.write("save\n")
                saver.stdin.flush()
            answers = [saver.stdout.readline().split() for saver in savers]
            assert sorted(is_new for is_new, _ in answers) == ["0", "1"]
            assert len({checkpoint_id for _, checkpoint_id in answers}) == 1
        for saver in savers:
            saver.stdin.close()


def _write(project: Project, text: str) -> None:
    """Write a file, so that the folder is the same in every respect whenever the text is."""
    path = project.root / "file"
    path.write_text(text)
    os.utime(path, (1, len(text) * 100 + ord(text[0])))
    os.utime(project.root, (1, 1))
