"""The restore journal: there while a restore is under way, durable before and gone after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Unavailable, Workspace, durable
from holdfast.testing.faulty_disks import ForgetfulDisk, KillingDisk, die_in_child
from holdfast.workspace.restore.journal import Journal, JournalEntry

ENTRY = JournalEntry(
    "restore",
    "a1-target",
    "a2-safety",
    ["a", "\udcff", "new\nline"],
    ["b"],
    True,
    ".holdfast-restore-0123cdef",
    "/srv/site",
    7,
    8,
)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_an_entry_comes_back_until_it_is_closed(journal: Journal) -> None:
    assert not journal.exists
    assert journal.read() is None
    journal.open(ENTRY)
    assert journal.exists
    assert journal.read() == ENTRY
    journal.close()
    assert not journal.exists


def test_one_that_has_ended_says_so_until_it_is_closed(journal: Journal) -> None:
    journal.open(ENTRY)
    journal.finish()
    assert journal.read() == ENTRY._replace(done=True)
    journal.close(done=True)
    assert not journal.exists


def test_one_that_was_opened_is_there_when_the_power_goes(tmp_path: Path, journal: Journal) -> None:
    """Whatever follows it may be on the medium already: without it, nobody would know what a stage is."""
    disk = ForgetfulDisk(tmp_path)
    with durable.use_disk(disk):
        journal.open(ENTRY)
    disk.lose_power()
    assert journal.read() == ENTRY


def test_one_that_has_ended_says_so_when_the_power_goes(tmp_path: Path, journal: Journal) -> None:
    disk = ForgetfulDisk(tmp_path)
    with durable.use_disk(disk):
        journal.open(ENTRY)
        journal.finish()
        journal.close(done=True)
    disk.lose_power()
    assert journal.read() == ENTRY._replace(done=True)


def test_closed_journal_does_not_return_after_power_loss(tmp_path: Path, journal: Journal) -> None:
    disk = ForgetfulDisk(tmp_path)
    with durable.use_disk(disk):
        journal.open(ENTRY)
        journal.close()
    disk.lose_power()
    assert not journal.exists


@pytest.mark.parametrize("stage", ["../victim", "/", ".", "", "src", ".holdfast-restore-0123cdef/..", 5, None])
def test_a_journal_cannot_have_anything_but_a_stage_removed(tmp_path: Path, journal: Journal, stage: object) -> None:
    (tmp_path / "journal.json").write_text(json.dumps(ENTRY._asdict() | {"stage": stage}))
    with pytest.raises(Unavailable):
        journal.read()


def test_a_later_entry_takes_the_place_of_an_earlier_one(journal: Journal) -> None:
    journal.open(ENTRY)
    journal.open(ENTRY._replace(verb="undo", paths=None))
    assert journal.read() == ENTRY._replace(verb="undo", paths=None)


@pytest.mark.parametrize("name", ["verb", "target", "safety"])
def test_journal_with_a_non_text_name_is_refused(tmp_path: Path, journal: Journal, name: str) -> None:
    (tmp_path / "journal.json").write_text(json.dumps(ENTRY._asdict() | {name: 5}))
    with pytest.raises(Unavailable):
        journal.read()


def test_unreadable_journal_is_reported_with_a_hint(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "journal.json").mkdir()
    with pytest.raises(Unavailable, match="IsADirectoryError"):
        journal.read()


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"[]", b"{}", b'{"verb": "restore"}', b"\xff", b"null"])
def test_a_journal_that_cannot_be_read_is_said_with_a_way_out(tmp_path: Path, journal: Journal, garbage: bytes) -> None:
    (tmp_path / "journal.json").write_bytes(garbage)
    with pytest.raises(Unavailable) as caught:
        journal.read()
    assert str(tmp_path / "journal.json") in caught.value.message
    assert "Remove the file" in caught.value.hint


class TestWithoutItsSafetyCheckpoint:
    """A restore that was interrupted before the safety checkpoint was there: nothing of the folder was replaced."""

    @pytest.fixture
    def begun(self, project: Any, ws: Workspace) -> JournalEntry:
        project.write("file", b"as it is")
        root = project.root
        entry = ENTRY._replace(target=ws.save().id, paths=None, made=[], root=str(root), inode=root.stat().st_ino)
        Journal(project.store / "holdfast").open(entry)
        return entry

    def test_journal_without_stage_leaves_no_checkpoint(self, project: Any, begun: Any) -> None:
        ws = project.open()
        assert ws.recovered
        assert (ws.recovered.outcome, ws.recovered.found_id) == ("rolled back", "")
        assert [each.id for each in ws.list(safety=True)] == [begun.target]
        assert project.open().recovered is None

    def test_what_is_in_its_stage_is_saved_before_the_stage_goes(self, project: Any, begun: Any) -> None:
        project.write(f"{begun.stage}/new-0", b"in the stage")
        ws = project.open()
        assert ws.recovered
        assert ws.recovered.outcome == "rolled back"
        assert [path.name for path in project.root.iterdir()] == ["file"]
        ws.restore(ws.recovered.found_id, [f"{begun.stage}/new-0"])
        assert (project.root / begun.stage / "new-0").read_bytes() == b"in the stage"
        assert project.open().recovered is None

    def test_that_may_be_interrupted_at_any_call(self, project: Any, begun: Any) -> None:
        project.write(f"{begun.stage}/new-0", b"in the stage")
        project.write(".holdfast-restore-89abcdef/new-0", b"in another, of a recovery that was interrupted")
        for number in range(1, 100):
            if not die_in_child(KillingDisk(at=number), project.open):
                break
            assert Journal(project.store / "holdfast").exists or not list(project.root.glob(".holdfast-*"))
        assert [path.name for path in project.root.iterdir()] == ["file"]
        assert not Journal(project.store / "holdfast").exists


class TestOfSomePaths:
    """A restore of some paths that was interrupted when they were in place."""

    @pytest.fixture
    def begun(self, project: Any, ws: Workspace) -> JournalEntry:
        project.write("file", b"one")
        project.write("other", b"one")
        target = ws.save()
        project.write("file", b"two")
        project.write("other", b"two")
        project.write("new/new", b"made since")
        safety = ws.restore(target.id, ["file", "new/new"]).undo_id
        root = project.root
        paths = ["file", "new/new"]
        entry = ENTRY._replace(target=target.id, safety=safety, paths=paths, made=[], keep_new=False)
        entry = entry._replace(root=str(root), inode=root.stat().st_ino)
        Journal(project.store / "holdfast").open(entry)
        return entry

    def test_later_writes_elsewhere_are_not_taken_back(self, project: Any, begun: Any) -> None:
        (project.store / "refs" / "tags" / begun.target).unlink()
        project.write("other", b"written since")
        ws = project.open()
        assert ws.recovered and (ws.recovered.outcome, ws.recovered.failed) == ("rolled back", {})
        assert [(project.root / name).read_bytes() for name in ("file", "new/new", "other")] == [
            b"two",
            b"made since",
            b"written since",
        ]

    def test_parent_removed_since_is_not_recreated(self, project: Any, begun: Any) -> None:
        (project.root / "new").rmdir()
        ws = project.open()
        assert ws.recovery_error is None
        assert ws.recovered and (ws.recovered.outcome, ws.recovered.failed) == ("finished", {})
        assert sorted(path.name for path in project.root.iterdir()) == ["file", "other"]
