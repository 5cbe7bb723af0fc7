"""Checkpoints in a store: their order, their lineage, what can be undone, and what a deletion leaves."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import NotFound, Unavailable, Workspace, durable
from holdfast.model import Operation
from holdfast.testing.faulty_disks import every_point


def history(ws: Workspace) -> tuple[list[str], list[str]]:
    found = ws._repository.undo_stack()
    return [each.id for each in found.done], [each.id for each in found.undone]


@pytest.fixture
def two(project: Any, ws: Workspace) -> tuple[str, str]:
    """Two checkpoints of one file."""
    project.write("file", b"one")
    first = ws.save("one")
    project.write("file", b"two")
    return first.id, ws.save("two").id


@pytest.mark.parametrize(
    "act",
    [
        lambda ws: ws.save("new", allow_empty=True),
        lambda ws: ws.pin("latest"),
        lambda ws: ws.restore("latest~1"),
        lambda ws: ws.purge("file"),
    ],
    ids=["save", "pin", "restore", "purge"],
)
def test_objects_are_on_the_medium_before_anything_names_them(
    ws: Workspace, two: Any, act: Callable[[Workspace], object]
) -> None:
    calls = every_point(lambda: act(ws))
    named = next(place for place, call in enumerate(calls) if call.name == "rename" and "to tags/" in call.about)
    packed = [place for place, call in enumerate(calls) if call.name == "rename" and call.about.endswith(".pack")]
    assert packed[0] < named
    assert ("fsync", "objects/pack") in [(call.name, call.about) for call in calls[packed[0] : named]]


class TestLineage:
    def test_the_parent_is_what_the_folder_was_last_made_equal_to(self, project: Any, ws: Workspace, two: Any) -> None:
        assert ws.get(two[0]).parent is None
        assert ws.get(two[1]).parent == two[0]
        ws.restore(two[0])
        project.write("file", b"three")
        assert ws.save().parent == two[0]

    def test_a_partial_restore_does_not_change_the_lineage(self, project: Any, ws: Workspace, two: Any) -> None:
        project.write("other", b"x")
        third = ws.save()
        ws.restore(two[0], ["file"])
        project.write("more", b"x")
        assert ws.save().parent == third.id

    def test_what_changed_is_told_against_the_parent(self, project: Any, ws: Workspace, two: Any) -> None:
        assert ws.get(two[0]).files_changed == ["file"]
        (project.root / "file").unlink()
        project.write("new", b"x")
        (project.root / "folder").mkdir()
        assert ws.save().files_changed == ["file", "new"]

    def test_changes_are_the_same_from_cache_and_from_trees(self, project: Any, ws: Workspace, two: Any) -> None:
        def change(name: str) -> None:
            project.write(f"{name}/a/file", b"x")
            project.write("file", name.encode())

        change("first")
        by_memory = ws.save().files_changed
        (project.store / "holdfast" / "scan.cache").unlink()
        change("other")
        by_trees = ws.save().files_changed
        assert by_memory == ["file", "first/a/file"]
        assert by_trees == ["file", "other/a/file"]


class TestSaving:
    def test_save_without_changes_returns_the_existing_checkpoint(self, ws: Workspace, two: Any) -> None:
        assert ws.save("again").id == two[1]
        assert ws.save("again", allow_empty=True).id != two[1]

    def test_a_name_or_a_pin_asks_for_one_of_its_own(self, ws: Workspace, two: Any) -> None:
        assert ws.save(name="mine").id != two[1]
        assert ws.save(pinned=True).id != two[1]

    def test_a_folder_that_is_as_it_once_was_is_that_checkpoint(self, ws: Workspace, two: Any) -> None:
        ws.restore(two[0])
        assert ws.save().id == two[0]

    def test_another_state_is_something_that_changed(self, ws: Workspace, two: Any) -> None:
        first = ws.save(state={"a": 1})
        assert ws.save(state={"a": 1}).id == first.id
        second = ws.save(state={"a": 2})
        third = ws.save(state={"a": 1})  # as the first, and yet what came last
        assert len({first.id, second.id, third.id}) == 3 and third.state == {"a": 1}

    def test_an_empty_state_is_not_the_state_that_was_there_before(self, ws: Workspace, two: Any) -> None:
        ws.save(state={"a": 1})
        assert ws.save(state={}).state == {}


class TestHistory:
    def test_restores_are_undone_and_redone_in_order(self, project: Any, ws: Workspace, two: Any) -> None:
        first = ws.restore(two[0]).undo_id
        second = ws.restore(two[1]).undo_id
        assert history(ws) == ([first, second], [])
        third = ws.undo().undo_id
        assert history(ws) == ([first], [third])
        fourth = ws.redo().undo_id
        assert history(ws) == ([first, fourth], [])

    def test_a_new_restore_ends_what_could_be_redone(self, project: Any, ws: Workspace, two: Any) -> None:
        ws.restore(two[0])
        ws.undo()
        ws.restore(two[0])
        with pytest.raises(NotFound, match="redo"):
            ws.redo()

    def test_a_save_ends_nothing(self, project: Any, ws: Workspace, two: Any) -> None:
        ws.restore(two[0])
        project.write("new", b"x")
        ws.save()
        ws.undo()
        assert (project.root / "file").read_bytes() == b"two"
        assert not (project.root / "new").exists()
        ws.redo()
        assert (project.root / "new").exists()

    def test_a_safety_checkpoint_says_what_it_was_taken_before(self, ws: Workspace, two: Any) -> None:
        done = ws.restore(two[0], ["file"])
        safety = ws.get(done.undo_id)
        assert safety.operation == Operation("restore", two[0], ("file",))
        assert safety.id not in [each.id for each in ws.list()]
        assert safety.id in [each.id for each in ws.list(safety=True)]


class Forgets(durable.Disk):
    """A disk without room for the number of what is deleted."""

    def create(self, name: str, **options: Any) -> int:
        if name.endswith("sequence.new"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        return super().create(name, **options)


class TestDeletion:
    def test_what_cannot_be_remembered_is_not_deleted(self, ws: Workspace, two: Any) -> None:
        with durable.use_disk(Forgets()), pytest.raises(Unavailable):
            ws.delete(two[1])
        assert ws.get(two[1]).sequence == 2

    def test_others_are_not_touched(self, project: Any, ws: Workspace, two: Any) -> None:
        ws.delete(two[0])
        ws.merge()
        with pytest.raises(NotFound):
            ws.get(two[0])
        project.write("file", b"x")
        assert ws.restore(two[1]).ok
        assert ws.verify().ok

    def test_what_only_a_deleted_checkpoint_held_is_freed_by_a_merge(self, project: Any, ws: Workspace) -> None:
        project.write("large", os.urandom(300_000))
        large = ws.save()
        (project.root / "large").unlink()
        project.write("small", b"x")
        ws.save()
        ws.delete(large.id)
        ws.merge()
        assert sum(path.stat().st_size for path in (ws.store / "objects/pack").iterdir()) < 20_000
        assert ws.verify().ok

    def test_sequence_is_not_reused_if_its_counter_is_damaged(self, project: Any, ws: Workspace, two: Any) -> None:
        ws.delete(two[1])
        (project.store / "holdfast" / "sequence").write_bytes(b"garbage")
        assert project.open().save("x", allow_empty=True).sequence > 2
