"""The `checkpoint-manager` skill: state snapshots and rollback for autonomous coding. (More in `tests/compat`.)"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from holdfast.project import CheckpointManager, CheckpointType

pytestmark = pytest.mark.usefixtures("own_stores")

KEPT = {"automatic": 5, "manual": 7, "feature": 7, "session": 3}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "app.ts").write_text("committed\n")
    features = [{"id": "auth-001", "passes": True}, {"id": "auth-002", "passes": False}]
    (root / "feature_list.json").write_text(json.dumps(features))
    (root / "claude-progress.txt").write_text("session 5\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_the_workflow(project: Path) -> None:
    async def use() -> None:
        manager = CheckpointManager(project)
        (project / "app.ts").write_text("not committed\n")
        checkpoint = await manager.create_checkpoint(
            name="before-refactor",
            description="State before major refactoring",
            context={"session_number": 5, "token_usage": 45000},
        )
        told = (await manager.get(checkpoint.id)).to_dict()
        assert told["git_state"]["commit_hash"] == git(project, "rev-parse", "HEAD")
        assert (told["git_state"]["branch"], told["git_state"]["dirty_files"]) == ("main", ["app.ts"])
        assert (told["feature_state"]["current"], told["feature_state"]["completed"]) == ("auth-002", ["auth-001"])
        assert told["context"] == {"session_number": 5, "token_usage": 45000}

        (project / "app.ts").write_text("broken\n")
        (project / "feature_list.json").write_text("[]")
        (project / "claude-progress.txt").write_text("lost\n")
        (project / "temporary.txt").write_text("x")
        git(project, "commit", "-q", "-a", "-m", "the risky operation")
        git(project, "branch", "kept")  # a commit that nothing else leads to would not be left behind
        await manager.rollback(checkpoint.id, git="reset", confirm=True)
        assert git(project, "rev-parse", "HEAD") == told["git_state"]["commit_hash"]
        assert (project / "app.ts").read_text() == "not committed\n"
        assert len(json.loads((project / "feature_list.json").read_text())) == 2
        assert (project / "claude-progress.txt").read_text() == "session 5\n"
        assert not (project / "temporary.txt").exists()

        (project / "app.ts").write_text("broken again\n")
        await manager.rollback_to_latest()
        assert (project / "app.ts").read_text() == "not committed\n"

    asyncio.run(use())


def test_each_type_is_kept_as_the_table_says(project: Path) -> None:
    async def use() -> None:
        manager = CheckpointManager(project)
        for kind in CheckpointType:
            for number in range(7):
                (project / "app.ts").write_text(f"{kind.value} {number}\n")
                await manager.create_checkpoint(f"{kind.value} {number}", type=kind)
        kept = {kind.value: len(await manager.list(None, type=kind)) for kind in CheckpointType}
        assert kept == KEPT

    asyncio.run(use())
