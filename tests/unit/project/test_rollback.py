"""A rollback brings back files and state together, leaves git alone, says where that stands, and can be undone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast import NotFound, Refused, Unavailable
from holdfast.project import SyncCheckpointManager
from holdfast.testing.disk_contract import differences

if TYPE_CHECKING:
    from .conftest import Place


def change_everything(place: Place) -> None:
    place.write("src/app.ts", "broken\n")
    place.write("feature_list.json", "[]")
    (place.root / "claude-progress.txt").unlink()
    place.write("made/since.txt")


def test_everything_comes_back_together(place: Place, manager: SyncCheckpointManager) -> None:
    before = place.described()
    made = manager.create_checkpoint("a", context={"session_number": 5}, state={"conversation": ["hello"]})
    change_everything(place)
    done = manager.rollback(made.id)
    assert not differences(before, place.described())
    assert (done.state, done.context) == ({"conversation": ["hello"]}, {"session_number": 5})
    assert done
    assert done.checkpoint == made


def test_what_was_not_committed_comes_back_with_its_content(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    assert made.git_state.dirty_files == ["src/app.ts"]
    place.git("checkout", "-q", "src/app.ts")
    manager.rollback(made.id)
    assert (place.root / "src" / "app.ts").read_text() == "not committed\n"


def test_it_is_undone_files_and_state(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a", state={"conversation": ["hello"]})
    change_everything(place)
    before = place.described()
    manager.rollback(made.id, state={"conversation": ["hello", "and more"]})
    done = manager.undo()
    assert not differences(before, place.described())
    assert done.state == {"conversation": ["hello", "and more"]}
    with pytest.raises(NotFound, match="no rollback"):
        manager.undo()


def test_without_the_state_of_now_undo_gives_the_one_saved_last(manager: SyncCheckpointManager) -> None:
    first = manager.create_checkpoint("a", state={"plan": 1})
    manager.create_checkpoint("b", state={"plan": 2})
    assert manager.rollback(first.id).state == {"plan": 1}
    assert manager.undo().state == {"plan": 2}


def test_the_latest_is_the_newest_of_the_project(place: Place, manager: SyncCheckpointManager) -> None:
    with pytest.raises(NotFound, match="no checkpoint yet"):
        manager.rollback_to_latest()
    made = manager.create_checkpoint("a")
    place.write("src/app.ts", "by somebody else\n")
    manager.workspace.save("by somebody else")
    assert manager.rollback_to_latest().checkpoint.id == made.id
    assert (place.root / "src" / "app.ts").read_text() == "not committed\n"


def test_what_was_made_since_can_be_kept(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    change_everything(place)
    manager.rollback(made.id, keep_new=True)
    assert (place.root / "made" / "since.txt").exists()


def test_it_says_when_head_has_moved_and_leaves_it(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    commit = place.commit("second")
    before = place.git_bytes()
    done = manager.rollback(made.id)
    assert done.head_moved
    assert (done.recorded.commit_hash, done.found.commit_hash) == (made.git_state.commit_hash, commit)
    assert f"HEAD has moved since: it was {made.git_state}" in done.message
    assert place.git_bytes() == before


def test_another_branch_at_the_same_commit_has_moved_too(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    assert not manager.rollback(made.id).head_moved
    place.git("switch", "-q", "-c", "other")
    assert manager.rollback(made.id).head_moved


def test_its_result_can_be_written_as_json(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a", state={"plan": 1})
    change_everything(place)
    said = json.loads(json.dumps(manager.rollback(made.id).to_dict()))
    assert (said["checkpoint"]["id"], said["state"], said["ok"]) == (made.id, {"plan": 1}, True)


def test_a_preview_touches_nothing(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    change_everything(place)
    before = place.described()
    assert "made/since.txt" in manager.preview(made.id).removed
    assert not differences(before, place.described())


@pytest.mark.parametrize("ref", ["missing", "", 7], ids=repr)
def test_what_is_no_checkpoint_is_not_rolled_back_to(manager: SyncCheckpointManager, ref: object) -> None:
    manager.create_checkpoint("a")
    with pytest.raises((NotFound, Refused)):
        manager.rollback(ref)  # type: ignore[arg-type]


def test_unreadable_journal_stops_writers_with_a_hint(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    journal = place.store / "holdfast" / "rollback.json"
    for text in ("{", '{"verb": "restore", "target": "x", "after": 1, "move": ["main", "--exec=evil", "x"]}'):
        journal.write_text(text)
        with pytest.raises(Unavailable, match="journal") as error:
            manager.rollback(made.id)
        assert "Remove the file" in error.value.hint
        assert manager.list()
    journal.unlink()
    assert manager.rollback(made.id).ok


def test_invalid_configuration_does_not_block_restore(place: Place) -> None:
    made = place.open().create_checkpoint("a")
    place.write("holdfast.toml", "retention = nonsense")
    manager = place.open()
    with pytest.raises(Refused, match="TOML"):
        manager.create_checkpoint("b")
    done = manager.rollback(made.id)
    assert done.ok
    assert "the configuration is invalid" in done.message
    assert not (place.root / "holdfast.toml").exists()
    assert manager.create_checkpoint("b").complete
