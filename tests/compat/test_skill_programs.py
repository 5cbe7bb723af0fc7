"""Programs written for the `checkpoint-manager` skill run with another import, and get what that promised, and more."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import holdfast.project

QUICK_START = """
import asyncio
from scripts.checkpoint_manager import CheckpointManager

async def main(project_dir, after_creating):
    manager = CheckpointManager(project_dir)
    checkpoint = await manager.create_checkpoint(
        name="before-refactor",
        description="State before major refactoring",
    )
    after_creating()
    await manager.rollback(checkpoint.id)
    after_creating()
    await manager.rollback_to_latest()
    return checkpoint
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a commit, a feature list and a progress file; stores go to a folder of the test's own."""
    monkeypatch.setenv("HOLDFAST_STORE_ROOT", str(tmp_path / "stores"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.ts").write_text("committed\n")
    (root / "feature_list.json").write_text(
        json.dumps(
            [
                {"id": "auth-001", "passes": True},
                {"id": "auth-002", "passes": True},
                {"id": "auth-003", "passes": False},
            ]
        )
    )
    (root / "claude-progress.txt").write_text("session 5\n")
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    (root / "src" / "app.ts").write_text("not committed\n")
    return root


@pytest.fixture
def predecessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module under the name that the skill gives it."""
    package = types.ModuleType("scripts")
    monkeypatch.setitem(sys.modules, "scripts", package)
    monkeypatch.setitem(sys.modules, "scripts.checkpoint_manager", holdfast.project)


@pytest.mark.usefixtures("predecessor")
def test_the_quick_start_runs_and_brings_everything_back(project: Path) -> None:
    names: dict[str, Any] = {}
    exec(QUICK_START, names)

    def spoil() -> None:
        (project / "src" / "app.ts").write_text("broken\n")
        (project / "feature_list.json").write_text("[]")
        (project / "claude-progress.txt").unlink()
        (project / "left over.txt").write_text("x")

    asyncio.run(names["main"](project, spoil))
    assert (project / "src" / "app.ts").read_text() == "not committed\n"
    assert json.loads((project / "feature_list.json").read_text())[2]["id"] == "auth-003"
    assert (project / "claude-progress.txt").read_text() == "session 5\n"
    assert not (project / "left over.txt").exists()


@pytest.mark.usefixtures("predecessor")
def test_the_record_has_every_key_of_the_documented_structure(project: Path) -> None:
    names: dict[str, Any] = {}
    exec(QUICK_START, names)
    said = asyncio.run(names["main"](project, lambda: None)).to_dict()
    assert set(said) - {"type"} == {
        "id",
        "name",
        "description",
        "timestamp",
        "git_state",
        "feature_state",
        "context",
    }
    assert set(said["git_state"]) == {"commit_hash", "branch", "dirty_files"}
    assert set(said["feature_state"]) == {"current", "completed", "snapshot_path"}
    assert (said["feature_state"]["current"], said["git_state"]["dirty_files"]) == ("auth-003", ["src/app.ts"])


def test_the_types_and_the_fields_are_those_of_the_skill() -> None:
    kinds = {kind.name: kind.value for kind in holdfast.project.CheckpointType}
    assert kinds == {"AUTOMATIC": "automatic", "MANUAL": "manual", "FEATURE": "feature", "SESSION": "session"}
    state = holdfast.project.GitState(commit_hash="abc", branch="main", dirty_files=["a"])
    features = holdfast.project.FeatureState(current=None, completed=["a"], snapshot_path="x")
    made = holdfast.project.Checkpoint(
        "i", "n", "d", "2025-01-15T10:30:00", holdfast.project.CheckpointType.SESSION, state, features, {"n": 1}
    )
    assert holdfast.project.Checkpoint.from_dict(made.to_dict()) == made
    written_by_the_skill = made.to_dict() | {"checkpoint_type": "session"}
    del written_by_the_skill["type"]
    assert holdfast.project.Checkpoint.from_dict(written_by_the_skill) == made
