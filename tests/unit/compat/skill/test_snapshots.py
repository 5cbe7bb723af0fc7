"""What the skill's other scripts read, and its import names."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from pathlib import Path

import pytest

from holdfast.compat.skill.snapshots import GitSnapshot, RollbackHandler, StateSnapshot

from .conftest import git

NAMES = {
    "checkpoint_manager": ["Checkpoint", "CheckpointManager", "CheckpointType", "FeatureState", "GitState"],
    "git_snapshot": ["GitSnapshot", "GitState"],
    "state_snapshot": ["FeatureState", "StateSnapshot"],
    "rollback_handler": ["RollbackHandler"],
}


@pytest.mark.parametrize("module", NAMES)
def test_names_warn(module: str) -> None:
    found = importlib.import_module(f"holdfast.compat.skill.scripts.{module}")
    assert sorted(found.__all__) == NAMES[module]
    found.__dict__["_not_warned"].update(found.__dict__["_replacements"])  # as in a new process
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name in [*NAMES[module], *NAMES[module]]:
            getattr(found, name)
    assert [str(each.message).partition(" is ")[0] for each in told] == [
        f"holdfast.compat.skill.scripts.{module}.{name}" for name in NAMES[module]
    ]


def test_git(project: Path) -> None:
    (project / "app.ts").write_text("dirty\n")
    (project / "new.ts").write_text("new\n")
    found = GitSnapshot(project).capture()
    assert (found.commit_hash, found.branch) == (git(project, "rev-parse", "HEAD"), "main")
    assert found.dirty_files == ["app.ts", "new.ts"]


def test_features_and_progress(project: Path) -> None:
    snapshot = StateSnapshot(project)
    found = snapshot.capture()
    assert (found.current, found.completed) == ("auth-002", ["auth-001"])
    assert found.snapshot_path == str(project / "feature_list.json") and snapshot.progress() == "session 5\n"
    for name in ("feature_list.json", "claude-progress.txt"):
        (project / name).unlink()
    found = snapshot.capture()
    assert (found.current, found.completed, found.snapshot_path, snapshot.progress()) == (None, [], "", "")


def test_the_handler_rolls_back(project: Path) -> None:
    async def use() -> None:
        handler = RollbackHandler(project)
        saved = await handler.create_checkpoint("x")
        (project / "app.ts").write_text("broken\n")
        assert (await handler.rollback(saved.id)).ok
        await handler.close()

    asyncio.run(use())
    assert (project / "app.ts").read_text() == "committed\n"
