"""A checkpoint of a project holds everything that belongs to it, in one record of a known shape."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from holdfast import Conflict, NotFound, Refused
from holdfast.project import Checkpoint, CheckpointType, FeatureState, GitState, SyncCheckpointManager

if TYPE_CHECKING:
    from .conftest import Place

CONTEXT = {"session_number": 5, "token_usage": 45000}


def test_it_has_the_shape_of_the_predecessor(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("before-refactor", "State before major refactoring", context=CONTEXT)
    commit = place.git("rev-parse", "HEAD")
    assert made.to_dict() == {
        "id": made.id,
        "name": "before-refactor",
        "description": "State before major refactoring",
        "timestamp": made.timestamp,
        "type": "manual",
        "git_state": {"commit_hash": commit, "branch": "main", "dirty_files": ["src/app.ts"]},
        "feature_state": {
            "current": "auth-003",
            "completed": ["auth-001", "auth-002"],
            "snapshot_path": f"{made.id}:files/feature_list.json",
        },
        "context": CONTEXT,
    }
    assert datetime.fromisoformat(made.timestamp).tzinfo is not None


def test_it_can_be_written_as_json_and_read_again(manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a", context=CONTEXT, type="feature")
    assert Checkpoint.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_a_checkpoint_of_the_predecessor_is_read() -> None:
    said = {
        "id": "checkpoint-20250115-103000",
        "name": "before-refactor",
        "description": "State before major refactoring",
        "timestamp": "2025-01-15T10:30:00",
        "git_state": {"commit_hash": "abc1234", "branch": "main", "dirty_files": ["src/app.ts"]},
        "feature_state": {
            "current": "auth-003",
            "completed": ["auth-001", "auth-002"],
            "snapshot_path": ".claude/checkpoints/checkpoint-xxx/feature_list.json",
        },
        "context": CONTEXT,
    }
    read = Checkpoint.from_dict(said)
    assert read.checkpoint_type is CheckpointType.MANUAL
    assert read.git_state == GitState("abc1234", "main", ["src/app.ts"])
    assert read.feature_state.current == "auth-003"
    assert read.stamp == read.id
    assert read.to_dict() == said | {"type": "manual"}


@pytest.mark.parametrize(
    "said",
    [{"git_state": []}, {"git_state": {"dirty_files": "x"}}, {"name": 3}, {"type": "weekly"}, "text"],
    ids=repr,
)
def test_what_is_no_checkpoint_is_refused(said: object) -> None:
    with pytest.raises(Refused):
        Checkpoint.from_dict(said)  # type: ignore[arg-type]


def test_git_reads_the_snapshot_of_the_feature_list(place: Place, manager: SyncCheckpointManager) -> None:
    made = manager.create_checkpoint("a")
    place.write("feature_list.json", "[]")
    command = ["git", f"--git-dir={place.store}", "show", made.feature_state.snapshot_path]
    found = subprocess.run(command, capture_output=True, check=True, env=place.environ).stdout
    assert json.loads(found)[2]["id"] == "auth-003"


def test_ids_differ_however_fast_they_are_made(place: Place) -> None:
    manager = place.open(clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    made = [manager.create_checkpoint("same") for _ in range(4)]
    assert len({each.id for each in made}) == 4
    assert len({each.stamp for each in made}) == 1
    assert [each.id for each in manager.list()] == [each.id for each in reversed(made)]


def test_the_state_that_was_named_comes_back(manager: SyncCheckpointManager) -> None:
    state = {"conversation": [{"role": "user"}], "todos": ["a"], "plan": {"step": 1}}
    made = manager.create_checkpoint("a", state=state)
    assert manager.state(made.id) == state
    assert manager.get(made.id) == made


def test_it_is_found_by_id_by_the_beginning_of_one_and_by_name(manager: SyncCheckpointManager) -> None:
    first = manager.create_checkpoint("same")
    second = manager.create_checkpoint("same")
    assert manager.get(first.id).id == first.id
    assert manager.get(first.id.partition("-")[0]).id == first.id
    assert manager.get("same").id == second.id
    with pytest.raises(NotFound):
        manager.get("missing")


def test_they_are_listed_by_type_and_by_session(manager: SyncCheckpointManager) -> None:
    manager.create_checkpoint("a", type="session", session="s1")
    manager.create_checkpoint("b", session="s1")
    manager.create_checkpoint("c")
    manager.workspace.save("not of the project")
    assert [each.name for each in manager.list()] == ["c", "b", "a"]
    assert [each.name for each in manager.list(type=CheckpointType.SESSION)] == ["a"]
    assert [each.name for each in manager.list(session="s1")] == ["b", "a"]
    assert [each.name for each in manager.list(1)] == ["c"]


def test_what_a_plain_save_made_can_be_seen_too(place: Place, manager: SyncCheckpointManager) -> None:
    saved = manager.workspace.save("by hand")
    seen = manager.get(saved.id)
    assert (seen.description, seen.checkpoint_type) == ("by hand", CheckpointType.MANUAL)
    git = seen.git_state
    assert (git.commit_hash, git.branch, git.dirty_files) == (saved.git and saved.git.commit, "main", [])
    assert git.note in seen.notes and "not recorded" in git.note


def test_metadata_that_is_not_ours_is_no_error(manager: SyncCheckpointManager) -> None:
    odd = {"type": "manual", "project": {"git": {"dirty_files": 3}, "features": [], "context": "x", "list_at": 7}}
    saved = manager.workspace.save("x", metadata=odd)
    seen = manager.get(saved.id)
    assert (seen.git_state, seen.feature_state, seen.context) == (GitState(), FeatureState(), {})
    assert "is invalid" in seen.notes[0]
    assert manager.rollback(saved.id).ok


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"name": ""}, "name"),
        ({"name": 3}, "name"),
        ({"name": "a", "description": None}, "description"),
        ({"name": "a", "type": "weekly"}, "weekly"),
        ({"name": "a", "context": []}, "context"),
        ({"name": "a", "context": {"x": object()}}, "context"),
        ({"name": "a", "state": ["x"]}, "state"),
        ({"name": "a", "state": {"holdfast.outside": {}}}, "reserved"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(
    manager: SyncCheckpointManager, given: dict[str, object], what: str
) -> None:
    with pytest.raises(Refused, match=what) as refused:
        manager.create_checkpoint(**given)  # type: ignore[arg-type]
    assert refused.value.hint
    assert manager.list() == []


def test_two_checkpoints_are_compared_and_one_with_the_folder(place: Place, manager: SyncCheckpointManager) -> None:
    first = manager.create_checkpoint("a")
    place.write("new.txt")
    second = manager.create_checkpoint("b")
    place.write("src/app.ts", "later\n")
    assert manager.diff(first.id, second.id).added_files == ["new.txt"]
    assert manager.diff("b").modified_files == ["src/app.ts"]


def test_damage_is_told_of_the_checkpoint_that_it_touches(place: Place, manager: SyncCheckpointManager) -> None:
    first = manager.create_checkpoint("a")
    packs = set((place.store / "objects" / "pack").glob("*.pack"))
    place.write("new.txt", "only in the second\n" * 50)
    second = manager.create_checkpoint("b")
    [pack] = set((place.store / "objects" / "pack").glob("*.pack")) - packs
    pack.chmod(0o600)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.write_bytes(data)
    assert not place.open().verify().ok
    assert place.open().verify(first.id).ok
    assert not place.open().verify(second.id).ok


def test_deleting_takes_one_and_a_feature_only_if_it_is_meant(manager: SyncCheckpointManager) -> None:
    plain, feature = manager.create_checkpoint("a"), manager.create_checkpoint("b", type="feature")
    manager.delete(plain.id)
    with pytest.raises(Refused, match="permanently"):
        manager.delete(feature.id)
    assert [each.id for each in manager.list()] == [feature.id]
    manager.delete(feature.id, permanent=True)
    assert manager.list() == []


class TestReferences:
    def test_a_checkpoint_stands_for_its_id(self, place: Place, manager: SyncCheckpointManager) -> None:
        first = manager.create_checkpoint("one")
        place.write("src/app.ts", "two\n")
        second = manager.create_checkpoint("two")
        assert manager.get(first) == first
        assert manager.diff(first, second).modified_files == ["src/app.ts"]
        assert manager.preview(first).replaced == ["src/app.ts"]
        assert manager.verify(first).ok
        assert manager.rollback(first).ok and manager.delete(second) == second

    def test_the_documented_form_of_an_id(self, place: Place) -> None:
        clock = iter(datetime(2025, 1, 15, 10, 30, second, tzinfo=UTC) for second in (0, 7, 7, 9, 9, 9))
        manager = place.open(clock=lambda: next(clock))
        first = manager.create_checkpoint("one")
        assert first.stamp == "checkpoint-20250115-103000"
        manager.create_checkpoint("two")
        manager.create_checkpoint("three")
        assert manager.get("checkpoint-20250115-103000") == first
        assert manager.rollback("checkpoint-20250115-103000").checkpoint == first
        with pytest.raises(Conflict, match="ambiguous"):
            manager.rollback("checkpoint-20250115-103007")
        with pytest.raises(NotFound, match="checkpoint-20200101-000000"):
            manager.rollback("checkpoint-20200101-000000")

    def test_list_returns_all(self, manager: SyncCheckpointManager) -> None:
        for number in range(52):
            manager.create_checkpoint(str(number))
        assert len(manager.list()) == 52
