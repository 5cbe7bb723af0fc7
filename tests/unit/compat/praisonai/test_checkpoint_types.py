"""The values of PraisonAI's checkpoints: fields, defaults, order of arguments."""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.compat.praisonai.checkpoint_types import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class TestConfig:
    def test_defaults(self) -> None:
        config = CheckpointConfig("/some/project")
        assert (config.enabled, config.auto_checkpoint, config.max_checkpoints) == (True, True, 100)
        assert (config.user_name, config.user_email) == ("PraisonAI Checkpoints", "checkpoints@praison.ai")
        assert {".git", "__pycache__", "node_modules", ".env", "*.log"} <= set(config.exclude_patterns)
        assert [field.name for field in fields(config)][:7] == [
            "workspace_dir",
            "storage_dir",
            "enabled",
            "auto_checkpoint",
            "max_checkpoints",
            "user_name",
            "user_email",
        ]

    def test_home_is_expanded(self, home: Path) -> None:
        config = CheckpointConfig("~/project", "~/stores")
        assert (config.workspace_dir, config.storage_dir) == (f"{home}/project", f"{home}/stores")

    def test_stores_are_in_the_folder_of_praisonai(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert CheckpointConfig("/p").storage_dir == f"{home}/.praisonai/checkpoints"
        (home / ".praison").mkdir()
        assert CheckpointConfig("/p").storage_dir == f"{home}/.praison/checkpoints"
        (home / ".praisonai").mkdir()
        assert CheckpointConfig("/p").storage_dir == f"{home}/.praisonai/checkpoints"
        monkeypatch.setenv("PRAISONAI_HOME", "~/elsewhere")
        assert CheckpointConfig("/p").storage_dir == f"{home}/elsewhere/checkpoints"

    def test_the_identity_comes_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PRAISONAI_GIT_USER_NAME", "Kelp")
        monkeypatch.setenv("PRAISONAI_GIT_USER_EMAIL", "kelp@example.org")
        config = CheckpointConfig("/p")
        assert (config.user_name, config.user_email) == ("Kelp", "kelp@example.org")

    def test_patterns_are_not_shared(self) -> None:
        CheckpointConfig("/p").exclude_patterns.append("mine")
        assert "mine" not in CheckpointConfig("/p").exclude_patterns

    def test_the_folder_has_twelve_characters(self) -> None:
        config = CheckpointConfig("/some/project", "/stores")
        assert os.path.dirname(config.get_checkpoint_dir()) == "/stores"
        # sha256("/some/project")[:12], as PraisonAI names it
        assert os.path.basename(config.get_checkpoint_dir()) == "a0317725f24b"

    def test_a_workspace_has_one_folder_however_it_is_written(
        self, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "link").symlink_to(workspace)
        monkeypatch.chdir(workspace)
        spelt = [".", str(workspace), f"{workspace}/", str(tmp_path / "link")]
        assert len({CheckpointConfig(each, "/stores").get_checkpoint_dir() for each in spelt}) == 1
        monkeypatch.chdir(tmp_path)
        assert CheckpointConfig(".", "/s").get_checkpoint_dir() != CheckpointConfig(spelt[1], "/s").get_checkpoint_dir()


class TestValues:
    def test_events(self) -> None:
        assert {event.name: event.value for event in CheckpointEvent} == {
            "INITIALIZED": "initialized",
            "CHECKPOINT_CREATED": "checkpoint_created",
            "CHECKPOINT_RESTORED": "checkpoint_restored",
            "CHECKPOINTS_PRUNED": "checkpoints_pruned",
            "ERROR": "error",
        }

    @pytest.mark.parametrize("when", [NOON, NOON.isoformat(), "2026-01-01T12:00:00Z"])
    def test_checkpoint_of_a_commit(self, when: str | datetime) -> None:
        found = Checkpoint.from_git_commit("0123456789abcdef", "hello", when)
        assert found == Checkpoint("0123456789abcdef", "01234567", "hello", NOON)

    def test_checkpoint_as_dict(self) -> None:
        assert Checkpoint("i", "s", "m", NOON, 1, 2, 3, 4).to_dict() == {
            "id": "i",
            "short_id": "s",
            "message": "m",
            "timestamp": "2026-01-01T12:00:00+00:00",
            "files_changed": 1,
            "insertions": 2,
            "deletions": 3,
            "step": 4,
        }

    def test_diff_counts_lines(self) -> None:
        diff = CheckpointDiff("a", None, [FileDiff("x", "/w/x", "added", 10), FileDiff("y", "/w/y", "modified", 5, 3)])
        assert (diff.total_additions, diff.total_deletions, diff.error) == (15, 3, None)
        assert diff.to_dict()["files"][0] == {
            "path": "x",
            "absolute_path": "/w/x",
            "status": "added",
            "additions": 10,
            "deletions": 0,
        }
        assert set(diff.to_dict()) == {
            "from_checkpoint",
            "to_checkpoint",
            "files",
            "total_additions",
            "total_deletions",
        }

    def test_results(self) -> None:
        good = CheckpointResult.ok(Checkpoint("i", "s", "m", NOON))
        assert good.success and good.checkpoint is not None and good.error is None
        assert CheckpointResult.fail("why") == CheckpointResult(False, None, "why")
