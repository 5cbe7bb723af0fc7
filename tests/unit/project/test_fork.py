"""Forks go on side by side, know where they came from, and one of them becomes the project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import NotFound, Refused
from holdfast.project import SyncCheckpointManager
from holdfast.testing.disk_contract import describe, differences

if TYPE_CHECKING:
    from .conftest import Place

STATE = {"conversation": ["hello"], "plan": {"step": 1}}


def at(place: Place, folder: str) -> SyncCheckpointManager:
    """The manager of a fork, as a user of the fork makes it."""
    return SyncCheckpointManager(folder, home=place.home, environ=place.environ)


def test_a_fork_has_files_state_context_and_a_lineage(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good", context={"n": 5}, state=STATE)
    before = place.described()
    place.write("src/app.ts", "gone on\n")
    forked = manager.fork(made.id, place.area / "fork")
    assert forked.ok
    found = {path: said for path, said in describe(Path(forked.directory)).items() if path not in ("", ".")}
    assert not differences(before, found)
    assert (place.root / "src" / "app.ts").read_text() == "gone on\n"
    there = at(place, forked.directory)
    assert Path(forked.store) == there.workspace.store != manager.workspace.store
    [first] = there.list()
    assert (first, first.context, there.state(first.id)) == (forked.checkpoint, {"n": 5}, STATE)
    origin = there.workspace.get(first.id).metadata["forked_from"]
    assert origin == {"id": made.id, "workspace": str(place.root), "store": str(place.store)}


def test_several_go_on_side_by_side_and_one_is_adopted(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good", state=STATE)
    forks = [manager.fork(made.id, place.area / f"fork {number}") for number in (1, 2)]
    for number, forked in enumerate(forks, 1):
        folder = Path(forked.directory)
        (folder / "src" / "app.ts").write_text(f"attempt {number}\n")
        (folder / "claude-progress.txt").unlink()
        (folder / f"made by {number}.txt").write_text("x")
    at(place, forks[1].directory).create_checkpoint("done", state=STATE | {"plan": {"step": 2}}, context={"n": 7})
    (Path(forks[1].directory) / "src" / "app.ts").write_text("attempt 2, and then some\n")
    adopted = manager.adopt(forks[1].directory)
    assert adopted.ok
    assert (place.root / "src" / "app.ts").read_text() == "attempt 2, and then some\n"
    assert (place.root / "made by 2.txt").exists()
    assert not (place.root / "claude-progress.txt").exists()
    assert adopted.rolled_back.state == STATE | {"plan": {"step": 2}}
    assert (adopted.source, adopted.changed_since_fork) == (made.id, False)
    assert adopted.checkpoint.context == {"n": 7}
    assert manager.list(1)[0] == adopted.checkpoint
    assert (Path(forks[0].directory) / "src" / "app.ts").read_text() == "attempt 1\n"
    assert manager.verify().ok


def test_adopting_is_undone_files_and_state(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good", state=STATE)
    forked = manager.fork(made.id, place.area / "fork")
    (Path(forked.directory) / "src" / "app.ts").write_text("attempt\n")
    at(place, forked.directory).create_checkpoint("done", state={"conversation": ["another"]})
    place.write("made/here.txt", "since the fork\n")
    before = place.described()
    adopted = manager.adopt(forked.directory)
    assert adopted.changed_since_fork
    assert not (place.root / "made").exists()
    assert manager.undo().state == STATE
    assert not differences(before, place.described())


def test_what_is_no_fork_of_this_project_is_refused(place: Place, manager: SyncCheckpointManager) -> None:
    manager.create_checkpoint("good")
    other = place.area / "other"
    other.mkdir()
    with pytest.raises(NotFound, match="no checkpoints"):
        manager.adopt(other)
    assert not list((place.area / "stores").glob("other-*")) if (place.area / "stores").exists() else True
    at(place, str(other)).create_checkpoint("unrelated")
    with pytest.raises(Refused, match="not a fork of"):
        manager.adopt(other)
    with pytest.raises(NotFound):
        manager.adopt(place.area / "missing")
    with pytest.raises(Refused, match="not a fork of"):
        manager.adopt(place.root, store=place.store)


def test_fork_is_adopted_after_its_origin_was_pruned(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("before it", type="automatic")
    forked = manager.fork(made.id, place.area / "fork")
    (Path(forked.directory) / "src" / "app.ts").write_text("attempt\n")
    for number in range(6):
        manager.create_checkpoint(f"later {number}", type="automatic")
    with pytest.raises(NotFound):
        manager.get(made.id)
    (place.area / "other").mkdir()
    with pytest.raises(Refused, match="not a fork of"):
        at(place, str(place.area / "other")).adopt(forked.directory)
    adopted = manager.adopt(forked.directory)
    assert (adopted.source, adopted.changed_since_fork) == (made.id, True)
    assert (place.root / "src" / "app.ts").read_text() == "attempt\n"


def test_non_empty_and_inner_folders_are_refused(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good")
    (place.area / "full").mkdir()
    (place.area / "full" / "mine.txt").write_text("mine")
    with pytest.raises(Refused, match="not empty"):
        manager.fork(made.id, place.area / "full")
    with pytest.raises(Refused, match="inside one another"):
        manager.fork(made.id, place.root / "inner")
    assert (place.area / "full" / "mine.txt").read_text() == "mine"


def test_a_fork_is_forked_again_and_adopted_step_by_step(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good")
    outer = manager.fork(made.id, place.area / "outer")
    middle = at(place, outer.directory)
    inner = middle.fork(outer.checkpoint.id, place.area / "inner")
    (Path(inner.directory) / "src" / "app.ts").write_text("from the innermost\n")
    with pytest.raises(Refused, match="not a fork of"):
        manager.adopt(inner.directory)
    middle.adopt(inner.directory)
    manager.adopt(outer.directory)
    assert (place.root / "src" / "app.ts").read_text() == "from the innermost\n"


def test_unsaved_dependencies_are_named_and_stay_on_adopt(place: Place, manager: SyncCheckpointManager) -> None:
    place.write("node_modules/left/index.js")
    made = manager.create_checkpoint("good")
    forked = manager.fork(made.id, place.area / "fork")
    assert list(forked.missing) == [".git", "node_modules"]
    manager.adopt(forked.directory)
    assert (place.root / "node_modules" / "left" / "index.js").exists()
    assert place.git("status", "--porcelain", "src") == "M src/app.ts"


def test_a_fork_can_be_given_a_store(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("good")
    forked = manager.fork(made.id, place.area / "fork", store=place.area / "its store")
    assert forked.store == str(place.area / "its store")
    assert manager.adopt(forked.directory, store=forked.store).ok
