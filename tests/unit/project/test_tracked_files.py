"""The feature list and the progress file are held and come back wherever they are, and whatever ignores them."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from holdfast import Unavailable
from holdfast.durable import Disk, use_disk
from holdfast.model import Recovery
from holdfast.project import Checkpoint, SyncCheckpointManager
from holdfast.project.rollback import RollbackEntry, RollbackJournal
from holdfast.testing.faulty_disks import ForgetfulDisk

if TYPE_CHECKING:
    from .conftest import Place

BINARY = b"\xff\x00 no text"


class FullDisk(Disk):
    """Has no room for what lies outside the folder."""

    def create(self, name: str, *args: object, **options: object) -> int:
        if name.endswith("progress.txt.holdfast-new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return super().create(name, *args, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [".gitignore", ".holdfastignore", "exclude"])
def test_one_that_is_ignored_is_held_and_comes_back(place: Place, rules: str) -> None:
    path = place.root / ".git" / "info" / "exclude" if rules == "exclude" else place.root / rules
    path.write_text("feature_list.json\nclaude-progress.txt\n")
    place.git("rm", "-q", "--cached", "feature_list.json", "claude-progress.txt")
    manager = place.open()
    made = manager.create_checkpoint("a")
    assert made.feature_state.current == "auth-003"
    place.write("feature_list.json", "[]")
    (place.root / "claude-progress.txt").unlink()
    assert manager.rollback(made.id).ok
    assert "auth-003" in (place.root / "feature_list.json").read_text()
    assert (place.root / "claude-progress.txt").read_text() == "session 5\n"


def test_one_in_a_folder_that_is_never_held_is_held(place: Place) -> None:
    file = place.write("node_modules/plan/features.json", '[{"id": "a"}]')
    manager = place.open(feature_list="node_modules/plan/features.json")
    made = manager.create_checkpoint("a")
    file.unlink()
    manager.rollback(made.id)
    assert file.read_text() == '[{"id": "a"}]'


@pytest.mark.parametrize("where", ["outside", "absolute", "in git", "through a link"])
def test_outside_file_is_saved_restored_and_undone(place: Place, where: str) -> None:
    names = {"outside": "../elsewhere/list.json", "absolute": str(place.area / "elsewhere" / "list.json")}
    names |= {"in git": ".git/list.json", "through a link": "linked/list.json"}
    (place.area / "elsewhere").mkdir()
    (place.root / "linked").symlink_to(place.area / "elsewhere")
    file = place.root / ".git" / "list.json" if where == "in git" else place.area / "elsewhere" / "list.json"
    file.write_text('[{"id": "a"}]')
    file.chmod(0o640)
    manager = place.open(feature_list=names[where])
    made = manager.create_checkpoint("a", state={"plan": 1})
    assert made.feature_state.current == "a"
    assert made.feature_state.snapshot_path == f"{made.id}:state/holdfast.outside.json"
    file.write_bytes(BINARY)
    done = manager.rollback(made.id)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ('[{"id": "a"}]', 0o640)
    assert done.state == manager.state(made.id) == {"plan": 1}
    manager.undo()
    assert file.read_bytes() == BINARY
    assert not (place.store / "holdfast" / "rollback.json").exists()


@pytest.mark.parametrize("keeps_names", [True, False])
def test_restored_outside_file_survives_a_power_loss(place: Place, keeps_names: bool) -> None:
    (place.area / "elsewhere").mkdir()
    file = place.area / "elsewhere" / "list.json"
    file.write_text('[{"id": "a"}]')
    manager = place.open(feature_list="../elsewhere/list.json")
    made = manager.create_checkpoint("a")
    file.write_text('[{"id": "b"}]')
    disk = ForgetfulDisk(place.area / "elsewhere")
    with use_disk(disk):
        assert manager.rollback(made.id).ok
    disk.lose_power(survives=lambda path: keeps_names)
    assert not (place.store / "holdfast" / "rollback.json").exists(), "nobody would do it again"
    assert file.read_text() == '[{"id": "a"}]'


def test_one_outside_that_is_as_it_was_is_not_written_again(place: Place) -> None:
    file = place.area / "progress.txt"
    file.write_text("the same")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    place.write("made/since.txt")
    before = file.stat()
    assert manager.rollback(made.id).notes == ()
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_rollback_journal_does_not_return_after_power_loss(place: Place) -> None:
    (place.area / "progress.txt").write_text("old")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    disk = ForgetfulDisk(place.store / "holdfast")
    with use_disk(disk):
        manager.rollback(made.id)
    disk.lose_power(survives=lambda path: False)
    assert not RollbackJournal(place.store).exists


def rolled_back_and_set_forth(place: Place) -> tuple[SyncCheckpointManager, Checkpoint]:
    """A rollback that is done, and after it what lies outside as it was before: just what that rollback has saved."""
    file = place.area / "progress.txt"
    file.write_text("old")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    file.write_text("new")
    assert manager.rollback(made.id).ok
    file.write_text("new")
    return place.open(progress_file="../progress.txt"), made


def test_unstarted_rollback_is_not_confused_with_an_earlier_one(place: Place) -> None:
    manager, made = rolled_back_and_set_forth(place)
    newest = manager.workspace.list(1, safety=True)[0].sequence
    RollbackJournal(place.store).open(RollbackEntry("restore", made.id, newest, None))
    assert "had changed nothing" in manager.recover()[-1]
    assert (place.area / "progress.txt").read_text() == "new"


def test_rollback_whose_restore_was_taken_back_stops(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, made = rolled_back_and_set_forth(place)
    workspace = manager.workspace
    workspace.recovered = Recovery("restore", made.id, "rolled back", made.id, {})
    monkeypatch.setattr(manager._project, "reopened", lambda: workspace)
    RollbackJournal(place.store).open(RollbackEntry("restore", made.id, 1, None))
    assert "had changed nothing" in manager.recover()[-1]
    assert (place.area / "progress.txt").read_text() == "new"


def test_rollback_waits_for_its_unfinished_restore(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, made = rolled_back_and_set_forth(place)
    workspace = manager.workspace
    workspace.recovery_error = Unavailable("the disk is full", hint="Make room.")
    monkeypatch.setattr(manager._project, "reopened", lambda: workspace)
    RollbackJournal(place.store).open(RollbackEntry("restore", made.id, 1, None))
    with pytest.raises(Unavailable, match="the disk is full"):
        manager.recover()
    assert (place.area / "progress.txt").read_text() == "new"
    assert RollbackJournal(place.store).exists


def test_whoever_saves_or_rolls_back_has_the_project_to_himself(place: Place) -> None:
    manager = place.open()
    manager.create_checkpoint("a")
    other = RollbackJournal(place.store).lock
    with manager._rollback().settled():
        assert not other.acquire(wait=False)
    assert other.acquire(wait=False)
    other.release()


def test_one_made_since_outside_is_left_and_named(place: Place) -> None:
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    (place.area / "progress.txt").write_text("made since")
    done = manager.rollback(made.id)
    assert (place.area / "progress.txt").read_text() == "made since"
    assert "progress.txt" in done.notes[0]
    assert done.notes[0] in done.message


def test_unreadable_outside_file_makes_it_incomplete(place: Place) -> None:
    os.mkfifo(place.area / "pipe")
    made = place.open(progress_file="../pipe").create_checkpoint("a")
    assert not made.complete
    assert "../pipe could not be saved" in made.notes[-1]
    assert not place.open().get(made.id).complete


def test_a_checkpoint_never_says_where_to_write(place: Place) -> None:
    """Only files that the manager tracks are written outside the folder."""
    file = place.area / "list.json"
    file.write_text("[1]")
    made = place.open(feature_list="../list.json").create_checkpoint("a")
    file.write_text("[2]")
    place.open().rollback(made.id)
    assert file.read_text() == "[2]"


def test_outside_writes_after_a_rollback_survive_its_undo(place: Place) -> None:
    file = place.area / "progress.txt"
    file.write_text("first")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    file.write_text("second")
    manager.rollback(made.id)
    file.write_text("the user's, since")
    undone = manager.undo()
    assert file.read_text() == "second"
    assert "the user's, since" in str(manager.workspace.get(undone.restored.undo_id).state)
    manager.rollback(undone.restored.undo_id)
    assert file.read_text() == "the user's, since"


def test_unsavable_outside_file_is_left_and_named(place: Place) -> None:
    file = place.area / "progress.txt"
    file.write_text("first")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    file.write_bytes(b"x" * ((16 << 20) + 1))
    done = manager.rollback(made.id)
    assert file.stat().st_size == (16 << 20) + 1
    assert done.notes == ("../progress.txt could not be saved first (it is larger than 16 MiB) and was not restored",)


def test_outside_file_changed_after_an_interrupt_is_left(place: Place) -> None:
    file = place.area / "progress.txt"
    file.write_text("first")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    file.write_text("second")
    manager.rollback(made.id)
    RollbackJournal(place.store).open(
        RollbackEntry("restore", made.id, manager.workspace.get(made.id).sequence, None)
    )  # as if killed
    file.write_text("the user's, since")
    again = place.open(progress_file="../progress.txt")
    assert "../progress.txt was changed meanwhile and was not restored" in again.recover()[0]
    assert file.read_text() == "the user's, since"


def test_missing_outside_folder_does_not_block_rollback(place: Place) -> None:
    file = place.area / "elsewhere" / "progress.txt"
    file.parent.mkdir()
    file.write_text("first")
    manager = place.open(progress_file="../elsewhere/progress.txt")
    made = manager.create_checkpoint("a")
    place.write("src/app.ts", "changed\n")
    file.unlink()
    file.parent.rmdir()
    done = manager.rollback(made.id)
    assert (place.root / "src/app.ts").read_text() != "changed\n"
    assert done.notes == (
        "../elsewhere/progress.txt could not be written (No such file or directory) and was not restored",
    )
    assert manager.create_checkpoint("b").id


def test_outside_file_on_a_full_disk_is_restored_later(place: Place) -> None:
    file = place.area / "progress.txt"
    file.write_text("first")
    manager = place.open(progress_file="../progress.txt")
    made = manager.create_checkpoint("a")
    file.write_text("second")
    with use_disk(FullDisk()), pytest.raises(Unavailable, match="No space left"):
        manager.rollback(made.id)
    with use_disk(FullDisk()):
        assert "not finished yet" in manager.create_checkpoint("b").notes[-1]
    manager.recover()
    assert file.read_text() == "first"
