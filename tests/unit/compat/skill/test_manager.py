"""The skill's manager: its values and its workflow, without the weaknesses of its design."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Refused
from holdfast.compat.skill.manager import Checkpoint, CheckpointManager, CheckpointType, FeatureState, GitState

from .conftest import git

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def manager(project: Path, run: Run) -> Iterator[CheckpointManager]:
    made = CheckpointManager(project)
    yield made
    run(made.close())


class TestValues:
    def test_types(self) -> None:
        assert {kind.name: kind.value for kind in CheckpointType} == {
            "AUTOMATIC": "automatic",
            "MANUAL": "manual",
            "FEATURE": "feature",
            "SESSION": "session",
        }

    def test_a_checkpoint_as_dict_and_back(self) -> None:
        git_state = GitState("abc1234", "main", ["src/app.ts"])
        features = FeatureState("auth-003", ["auth-001", "auth-002"], "path")
        made = Checkpoint(
            "i", "n", "d", "2025-01-15T10:30:00", CheckpointType.SESSION, git_state, features, {"session_number": 5}
        )
        assert made.to_dict() == {
            "id": "i",
            "name": "n",
            "description": "d",
            "timestamp": "2025-01-15T10:30:00",
            "checkpoint_type": "session",
            "git_state": {"commit_hash": "abc1234", "branch": "main", "dirty_files": ["src/app.ts"]},
            "feature_state": {
                "current": "auth-003",
                "completed": ["auth-001", "auth-002"],
                "snapshot_path": "path",
            },
            "context": {"session_number": 5},
        }
        assert Checkpoint.from_dict(json.loads(json.dumps(made.to_dict()))) == made
        made.to_dict()["git_state"]["dirty_files"].append("other")
        assert made.git_state.dirty_files == ["src/app.ts"]

    def test_values_can_be_changed_as_with_the_skill(self) -> None:
        state = GitState("abc", "main")
        state.branch = "other"
        assert state.dirty_files == []


class TestWorkflow:
    def test_create_and_roll_back(self, manager: CheckpointManager, project: Path, run: Run) -> None:
        (project / "app.ts").write_text("not committed\n")
        saved = run(
            manager.create_checkpoint(
                name="before-refactor", description="State before major refactoring", context={"token_usage": 45000}
            )
        )
        assert saved.checkpoint_type is CheckpointType.MANUAL and saved.context == {"token_usage": 45000}
        assert saved.git_state == GitState(git(project, "rev-parse", "HEAD"), "main", ["app.ts"])
        assert (saved.feature_state.current, saved.feature_state.completed) == ("auth-002", ["auth-001"])
        (project / "app.ts").write_text("broken\n")
        (project / "feature_list.json").write_text("[]")
        (project / "claude-progress.txt").unlink()
        (project / "temporary.txt").write_text("x")
        assert run(manager.rollback(saved.id))
        assert (project / "app.ts").read_text() == "not committed\n"  # the skill records the names of dirty files only
        assert len(json.loads((project / "feature_list.json").read_text())) == 2
        assert (project / "claude-progress.txt").read_text() == "session 5\n"
        assert not (project / "temporary.txt").exists()

    def test_the_branch_stays_and_the_rollback_can_be_undone(
        self, manager: CheckpointManager, project: Path, run: Run
    ) -> None:
        saved = run(manager.create_checkpoint("before"))
        (project / "app.ts").write_text("risky\n")
        git(project, "commit", "-q", "-a", "-m", "risky")
        head = git(project, "rev-parse", "HEAD")
        (project / "untracked.txt").write_text("mine\n")
        done = run(manager.rollback_to_latest())
        assert git(project, "rev-parse", "HEAD") == head and done.head_moved
        assert (project / "app.ts").read_text() == "committed\n"
        run(manager.undo())
        assert (project / "app.ts").read_text() == "risky\n" and (project / "untracked.txt").read_text() == "mine\n"
        assert run(manager.restore_checkpoint(saved)).checkpoint.id == saved.id

    def test_two_in_one_second_are_two(self, manager: CheckpointManager, run: Run) -> None:
        first, second = (run(manager.create_checkpoint("same")) for _ in range(2))
        assert first.id != second.id and len(run(manager.list_checkpoints())) == 2

    def test_nothing_is_stored_in_the_project(self, manager: CheckpointManager, project: Path, run: Run) -> None:
        run(manager.create_checkpoint("x"))
        assert not (project / ".claude").exists()

    def test_without_git_or_a_commit(self, tmp_path: Path, project: Path, run: Run) -> None:
        (tmp_path / "plain").mkdir()
        (tmp_path / "plain" / "a.txt").write_text("one")
        manager = CheckpointManager(tmp_path / "plain")
        saved = run(manager.create_checkpoint("x"))
        assert saved.git_state == GitState("", "", [])
        (tmp_path / "plain" / "a.txt").write_text("two")
        assert run(manager.rollback(saved.id)) and (tmp_path / "plain" / "a.txt").read_text() == "one"
        run(manager.close())

    def test_each_type_is_kept_as_documented(self, manager: CheckpointManager, run: Run) -> None:
        for kind in CheckpointType:
            for number in range(6):
                run(manager.create_checkpoint(f"{number}", "", kind))
        kept = {kind: len(run(manager.list_checkpoints(kind))) for kind in CheckpointType}
        assert list(kept.values()) == [5, 6, 6, 3]
        assert len(run(manager.list_checkpoints("session"))) == 3

    def test_found_by_id_name_and_the_documented_form(self, manager: CheckpointManager, run: Run) -> None:
        saved = run(manager.create_checkpoint("one"))
        when = saved.timestamp[:19].translate(str.maketrans({"-": None, ":": None, "T": "-"}))
        for reference in (saved.id, "one", f"checkpoint-{when}"):
            assert run(manager.get_checkpoint(reference)).id == saved.id

    def test_deleted(self, manager: CheckpointManager, run: Run) -> None:
        saved = run(manager.create_checkpoint("one"))
        assert run(manager.delete_checkpoint(saved)).id == saved.id
        with pytest.raises(NotFound):
            run(manager.rollback_to_latest())
        feature = run(manager.create_checkpoint("two", "", CheckpointType.FEATURE))
        with pytest.raises(Refused, match="permanently"):
            run(manager.delete_checkpoint(feature.id))
