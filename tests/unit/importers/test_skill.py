"""`.claude/checkpoints` of the skill."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, Refused
from holdfast.project import CheckpointType, SyncCheckpointManager
from holdfast.workspace import Workspace
from unit.importers.scenes import bytes_and_times, messages, plan, run


def git(folder: Path, *args: str) -> str:
    given = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@x", *args]
    return subprocess.run(given, check=True, capture_output=True, text=True).stdout.strip()


def record(number: int, commit: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"checkpoint-2025011{number}-103000",
        "name": f"step-{number}",
        "description": "before the refactoring",
        "timestamp": f"2025-01-1{number}T10:30:00",
        "checkpoint_type": "feature",
        "git_state": {"commit_hash": commit, "branch": "main", "dirty_files": []},
        "feature_state": {"current": "auth-003", "completed": ["auth-001"], "snapshot_path": "x"},
        "context": {"session_number": 5, "token_usage": 45000},
    } | more


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    (folder / "lib").mkdir()
    (folder / "lib" / "b.txt").write_text("b\n")
    (folder / ".gitignore").write_text(".claude/\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    first = git(folder, "rev-parse", "HEAD")
    (folder / "a.txt").write_text("two\n")
    git(folder, "commit", "-q", "-am", "two")
    save(folder, record(1, first), features=[{"id": "auth-001", "done": True}])
    save(folder, record(2, git(folder, "rev-parse", "--short", "HEAD")), features=[])
    return folder


def save(project: Path, values: dict[str, Any], features: Any = None) -> Path:
    place = project / ".claude" / "checkpoints" / values["id"]
    place.mkdir(parents=True, exist_ok=True)
    (place / "metadata.json").write_text(json.dumps(values))
    if features is not None:
        (place / "feature_list.json").write_text(json.dumps(features))
    return place


def checkpoints(project: Path) -> Path:
    return project / ".claude" / "checkpoints"


class TestCheckpoints:
    def test_project_lists_them(self, project: Path) -> None:
        before = bytes_and_times(project)
        done = run(checkpoints(project))
        assert (done.added, done.not_carried) == (2, ())
        assert bytes_and_times(project) == before
        found = SyncCheckpointManager(project).list(type="feature")
        assert [each.name for each in found] == ["step-2", "step-1"]
        first = found[1]
        assert first.checkpoint_type is CheckpointType.FEATURE
        assert (first.git_state.branch, first.feature_state.current) == ("main", "auth-003")
        assert (first.context["session_number"], first.description) == (5, "before the refactoring")
        assert first.stamp == "checkpoint-20250111-103000"

    def test_files_of_the_commit_and_the_feature_list(self, project: Path, tmp_path: Path) -> None:
        run(project)
        workspace = Workspace(project, create=False)
        first = next(each for each in workspace.list(None) if each.message.startswith("step-1"))
        assert first.timestamp == datetime(2025, 1, 11, 10, 30, tzinfo=UTC)
        workspace.export(first.id, tmp_path / "out")
        assert (tmp_path / "out" / "a.txt").read_text() == "one\n"
        assert (tmp_path / "out" / "lib" / "b.txt").read_text() == "b\n"
        assert json.loads((tmp_path / "out" / "feature_list.json").read_text()) == [{"id": "auth-001", "done": True}]
        assert workspace.verify().ok

    def test_rollback_by_the_old_id_keeps_what_was_never_saved(self, project: Path) -> None:
        run(project)
        (project / "new.txt").write_text("mine")
        SyncCheckpointManager(project).rollback("checkpoint-20250111-103000")
        assert (project / "a.txt").read_text() == "one\n"
        assert (project / "new.txt").read_text() == "mine"
        assert checkpoints(project).is_dir()

    def test_changed_files_are_not_covered(self, project: Path) -> None:
        commit = git(project, "rev-parse", "HEAD")
        state = {"commit_hash": commit, "branch": "main", "dirty_files": ["a.txt", "../../etc/passwd", "/etc/passwd"]}
        save(project, record(3, commit, git_state=state))
        done = run(project)
        assert [each.what for each in done.not_carried] == ["a.txt"]
        (project / "a.txt").write_text("now\n")
        SyncCheckpointManager(project).rollback("step-3")
        assert (project / "a.txt").read_text() == "now\n"

    def test_without_git(self, tmp_path: Path) -> None:
        folder = tmp_path / "plain"
        folder.mkdir()
        place = save(folder, record(1, "abc1234"), features={"features": []})
        (place / "execution-state.json").write_text('{"phase": 2}')
        (place / "claude-progress.txt").write_text("half")
        assert "not in git" in plan(folder).notes[0]
        run(folder)
        found = Workspace(folder, create=False).list(None)[-1]
        assert found.state == {"execution-state": {"phase": 2}}
        assert found.files_changed == ["claude-progress.txt", "feature_list.json"]

    def test_commit_that_is_gone_is_noted(self, project: Path) -> None:
        save(project, record(3, "deadbeef"))
        run(project)
        found = SyncCheckpointManager(project).get("step-3")
        assert "deadbeef" in " ".join(found.notes)

    def test_second_run_adds_nothing(self, project: Path) -> None:
        run(project)
        before = messages(project)
        assert plan(project).new == 0
        assert run(project).added == 0
        assert messages(project) == before


class TestBadInput:
    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "[" * 100_000, "{}", '{"id": 5}', '{"id": "x", "timestamp": "soon"}']
    )
    def test_bad_record(self, project: Path, text: str) -> None:
        place = save(project, record(3, "abc"))
        (place / "metadata.json").write_text(text)
        done = run(project)
        assert done.added == 2
        assert [each.what for each in done.not_carried] == ["checkpoint-20250113-103000"]

    def test_only_bad_records(self, tmp_path: Path) -> None:
        folder = tmp_path / "plain"
        folder.mkdir()
        (save(folder, record(1, "abc")) / "metadata.json").write_text("{")
        with pytest.raises(Damaged, match="cannot import anything from"):
            run(folder)
        assert not list((tmp_path / "state").rglob("HEAD"))

    def test_link_is_not_followed(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        (checkpoints(project) / "checkpoint-20250111-103000" / "progress.txt").symlink_to(tmp_path / "secret")
        run(project)
        assert not Workspace(project, create=False).search("secret")

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "project" / ".claude" / "checkpoints").mkdir(parents=True)
        with pytest.raises(Refused, match="unknown format"):
            run(tmp_path / "project")
