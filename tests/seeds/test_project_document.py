"""The skill `checkpoint-manager`: its snippets, its workflow, its JSON, its types, its references and scripts."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.project import (
    Checkpoint,
    CheckpointManager,
    CheckpointType,
    FeatureState,
    GitState,
    SyncCheckpointManager,
)

FEATURES = [
    {"id": "auth-001", "status": "completed"},
    {"id": "auth-002", "status": "completed"},
    {"id": "auth-003", "status": "in_progress"},
]


@pytest.fixture
def project_dir(tmp_path: Path) -> Path:
    """A git repository with a feature list, a progress file and a dirty file, as in the document's example."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.ts").write_text("committed\n")
    (folder / "feature_list.json").write_text(json.dumps(FEATURES))
    (folder / "claude-progress.txt").write_text("session 5\n")
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "first")
    (folder / "src" / "app.ts").write_text("not committed\n")
    return folder


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def _hook(folder: Path, **event: str) -> None:
    """Send an event as Claude Code does."""
    text = json.dumps({"session_id": "s", "cwd": str(folder), **event})
    command = [sys.executable, "-m", "holdfast.cli", "hook", "claude-code"]
    subprocess.run(command, cwd=folder, input=text, text=True, check=True)


@pytest.fixture
def manager(project_dir: Path) -> SyncCheckpointManager:
    return SyncCheckpointManager(project_dir)


def test_quick_start(project_dir: Path) -> None:
    """Create Checkpoint, and Rollback to Checkpoint: the snippets."""

    async def snippet() -> None:
        manager = CheckpointManager(project_dir)
        checkpoint = await manager.create_checkpoint(
            name="before-refactor",
            description="State before major refactoring"
        )  # fmt: skip
        (project_dir / "src" / "app.ts").write_text("broken\n")
        await manager.rollback(checkpoint.id)
        assert (project_dir / "src" / "app.ts").read_text() == "not committed\n"
        (project_dir / "src" / "app.ts").write_text("broken again\n")
        # or rollback to latest
        await manager.rollback_to_latest()
        await manager.close()

    asyncio.run(snippet())
    assert (project_dir / "src" / "app.ts").read_text() == "not committed\n"


def test_quick_start_under_the_old_name(project_dir: Path, old: Callable[[str], Any]) -> None:
    async def snippet() -> None:
        manager = old("skill.scripts.checkpoint_manager").CheckpointManager(project_dir)
        checkpoint = await manager.create_checkpoint(
            name="before-refactor",
            description="State before major refactoring"
        )  # fmt: skip
        (project_dir / "src" / "app.ts").write_text("broken\n")
        await manager.rollback(checkpoint.id)
        # or rollback to latest
        await manager.rollback_to_latest()
        await manager.close()

    asyncio.run(snippet())
    assert (project_dir / "src" / "app.ts").read_text() == "not committed\n"


class TestCreate:
    def test_captures_git_state(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        """Commit hash, dirty files."""
        made = manager.create_checkpoint("x")
        assert made.git_state == GitState(_git(project_dir, "rev-parse", "HEAD"), "main", ["src/app.ts"])

    def test_snapshots_the_feature_list(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        shown = subprocess.run(
            ["git", f"--git-dir={manager.workspace.store}", "show", made.feature_state.snapshot_path],
            capture_output=True,
            check=True,
        )
        assert json.loads(shown.stdout) == FEATURES

    def test_saves_the_progress_file(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        (project_dir / "claude-progress.txt").unlink()
        manager.rollback(made)
        assert (project_dir / "claude-progress.txt").read_text() == "session 5\n"

    def test_records_context(self, manager: SyncCheckpointManager) -> None:
        """Session, tokens."""
        made = manager.create_checkpoint("x", context={"session_number": 5, "token_usage": 45000})
        assert manager.get(made.id).context == {"session_number": 5, "token_usage": 45000}

    def test_stores_metadata(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("before-refactor", "why")
        found = SyncCheckpointManager(project_dir).get(made.id)
        assert (found.name, found.description, found.timestamp) == ("before-refactor", "why", made.timestamp)


class TestRiskyOperation:
    def test_success_continues(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        with manager.attempt("the refactoring") as attempt:
            (project_dir / "src" / "app.ts").write_text("better\n")
        assert attempt.ok and (project_dir / "src" / "app.ts").read_text() == "better\n"

    def test_failure_rolls_back_to_the_checkpoint(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        with pytest.raises(ZeroDivisionError), manager.attempt("the refactoring") as attempt:
            (project_dir / "src" / "app.ts").write_text("broken\n")
            raise ZeroDivisionError
        assert not attempt.ok and (project_dir / "src" / "app.ts").read_text() == "not committed\n"


class TestRollback:
    def test_loads_checkpoint_data(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x", context={"session_number": 5}, state={"todos": ["a"]})
        done = manager.rollback(made.id)
        assert (done.checkpoint, done.context, done.state) == (made, {"session_number": 5}, {"todos": ["a"]})

    def test_git_reset_to_the_checkpoint_commit(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        """Only when asked for: on purpose, see docs/migrating.md."""
        made = manager.create_checkpoint("x")
        before = _git(project_dir, "rev-parse", "HEAD")
        _git(project_dir, "branch", "kept")
        _git(project_dir, "commit", "-q", "-am", "second")
        _git(project_dir, "branch", "-f", "kept")
        after = _git(project_dir, "rev-parse", "HEAD")
        done = manager.rollback(made)
        assert done.head_moved and _git(project_dir, "rev-parse", "HEAD") == after
        assert manager.rollback(made, git="reset", confirm=True).git_moved
        assert _git(project_dir, "rev-parse", "HEAD") == before

    def test_restores_the_feature_list(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        (project_dir / "feature_list.json").write_text("[]")
        manager.rollback(made)
        assert json.loads((project_dir / "feature_list.json").read_text()) == FEATURES

    def test_restores_the_progress_file(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        (project_dir / "claude-progress.txt").write_text("session 6\n")
        manager.rollback(made)
        assert (project_dir / "claude-progress.txt").read_text() == "session 5\n"

    def test_cleans_up_temporary_files(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        """Files made since are removed, after they were saved."""
        made = manager.create_checkpoint("x")
        (project_dir / "scratch.tmp").write_text("x")
        done = manager.rollback(made)
        assert not (project_dir / "scratch.tmp").exists() and done.restored.removed == ["scratch.tmp"]
        manager.undo()
        assert (project_dir / "scratch.tmp").exists()


DOCUMENTED = {
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
    "context": {"session_number": 5, "token_usage": 45000},
}


class TestStructure:
    def test_the_documented_json_is_read(self) -> None:
        made = Checkpoint.from_dict(DOCUMENTED)
        assert made.git_state == GitState("abc1234", "main", ["src/app.ts"])
        assert made.feature_state == FeatureState(
            "auth-003", ["auth-001", "auth-002"], ".claude/checkpoints/checkpoint-xxx/feature_list.json"
        )
        assert {key: value for key, value in made.to_dict().items() if key != "type"} == DOCUMENTED

    @pytest.mark.parametrize("key", DOCUMENTED)
    def test_keys(self, key: str, manager: SyncCheckpointManager) -> None:
        context = {"session_number": 5, "token_usage": 45000}
        made = manager.create_checkpoint("before-refactor", "State before major refactoring", context=context).to_dict()
        documented: Any = DOCUMENTED[key]
        assert type(made[key]) is type(documented)
        if isinstance(documented, dict):
            assert made[key].keys() == documented.keys()

    def test_values(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("before-refactor", context={"session_number": 5, "token_usage": 45000})
        assert (made.feature_state.current, made.feature_state.completed) == ("auth-003", ["auth-001", "auth-002"])
        assert made.git_state.dirty_files == ["src/app.ts"] and made.git_state.branch == "main"
        assert made.context == {"session_number": 5, "token_usage": 45000}

    def test_the_documented_form_of_an_id(self, project_dir: Path) -> None:
        manager = SyncCheckpointManager(project_dir, clock=lambda: datetime(2025, 1, 15, 10, 30, tzinfo=UTC))
        made = manager.create_checkpoint("x")
        assert made.stamp == "checkpoint-20250115-103000"
        assert manager.rollback("checkpoint-20250115-103000").checkpoint == made

    def test_timestamp_is_iso_8601(self, manager: SyncCheckpointManager) -> None:
        made = datetime.fromisoformat(manager.create_checkpoint("x").timestamp)
        assert timedelta(0) <= datetime.now(UTC) - made < timedelta(minutes=10)


class TestTypes:
    @pytest.mark.parametrize("kind", ["automatic", "manual", "feature", "session"])
    def test_names(self, kind: str, manager: SyncCheckpointManager) -> None:
        assert CheckpointType[kind.upper()].value == kind
        assert manager.create_checkpoint("x", type=kind).checkpoint_type is CheckpointType(kind)

    def test_manual_is_the_default(self, manager: SyncCheckpointManager) -> None:
        """User/agent request."""
        assert manager.create_checkpoint("x").checkpoint_type is CheckpointType.MANUAL

    def test_automatic_is_made_before_risky_operations(self, manager: SyncCheckpointManager) -> None:
        with manager.attempt("risky"):
            [made] = manager.list()
            assert made.checkpoint_type is CheckpointType.AUTOMATIC

    @pytest.mark.parametrize(
        ("event", "kind"), [("SessionStart", CheckpointType.SESSION), ("PreToolUse", CheckpointType.AUTOMATIC)]
    )
    def test_triggers_of_an_agent(self, event: str, kind: CheckpointType, project_dir: Path) -> None:
        """Start of session; before risky operations."""
        _hook(project_dir, hook_event_name=event, tool_name="Bash", tool_use_id="t1", source="startup")
        [made] = SyncCheckpointManager(project_dir).list()
        assert made.checkpoint_type is kind

    @pytest.mark.parametrize("trigger", ["manual", "feature", "session"])
    def test_triggers_by_hand(self, trigger: str, project_dir: Path) -> None:
        """A user's or an agent's request; after a feature is complete: one word of the skill's script."""
        script = TestFiles.SKILL / "scripts" / "checkpoint_manager.py"
        command = [sys.executable, str(script), "create", "auth-003", "Login works", "--type", trigger]
        done = subprocess.run(command, cwd=project_dir, capture_output=True, text=True, check=True)
        [made] = SyncCheckpointManager(project_dir).list()
        assert (made.checkpoint_type.value, json.loads(done.stdout)["id"]) == (trigger, made.id)

    @pytest.mark.parametrize(("kind", "kept"), [("automatic", 5), ("session", 3), ("manual", 8), ("feature", 8)])
    def test_retention(self, kind: str, kept: int, project_dir: Path, manager: SyncCheckpointManager) -> None:
        """Last 5, last 3, until deleted, permanent."""
        for number in range(8):
            (project_dir / "src" / "app.ts").write_text(f"{number}\n")
            manager.create_checkpoint(str(number), type=kind)
        assert [each.name for each in manager.list(type=kind)] == [str(number) for number in range(7, 7 - kept, -1)]

    def test_types_do_not_push_each_other_out(self, project_dir: Path, manager: SyncCheckpointManager) -> None:
        for number in range(7):
            for kind in ("automatic", "session", "feature"):
                (project_dir / "src" / "app.ts").write_text(f"{number} {kind}\n")
                manager.create_checkpoint(str(number), type=kind)
        assert [len(manager.list(type=kind)) for kind in ("automatic", "session", "feature")] == [5, 3, 7]

    def test_manual_until_deleted(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        manager.delete(made)
        assert manager.list() == []

    def test_feature_is_permanent(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x", type="feature")
        with pytest.raises(Exception, match="permanent"):
            manager.delete(made)
        assert manager.list() == [made]
        manager.delete(made, permanent=True)


class TestIntegrationPoints:
    def test_error_recoverer_triggers_rollback_on_failures(
        self, project_dir: Path, manager: SyncCheckpointManager
    ) -> None:
        manager.create_checkpoint("good")
        (project_dir / "src" / "app.ts").write_text("broken\n")
        assert manager.rollback_to_latest().ok
        assert (project_dir / "src" / "app.ts").read_text() == "not committed\n"

    def test_coding_agent_creates_checkpoints_before_changes(self, project_dir: Path) -> None:
        """By its hooks, which the agent calls before each tool: nothing has to be asked of the agent."""
        _hook(project_dir, hook_event_name="PreToolUse", tool_name="Write", tool_use_id="t1")
        (project_dir / "src" / "app.ts").write_text("the agent's\n")
        manager = SyncCheckpointManager(project_dir)
        [made] = manager.list()
        commit = _git(project_dir, "rev-parse", "HEAD")
        assert (made.checkpoint_type, made.git_state.commit_hash) == (CheckpointType.AUTOMATIC, commit)
        assert (made.git_state.branch, made.notes) == ("main", ("dirty files were not recorded",))
        manager.rollback(made)
        assert (project_dir / "src" / "app.ts").read_text() == "not committed\n"

    def test_autonomous_loop_manages_the_lifecycle(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x")
        assert (manager.list(), manager.get(made.id), manager.verify(made).ok) == ([made], made, True)
        manager.delete(made)

    def test_context_state_tracker_provides_state(self, manager: SyncCheckpointManager) -> None:
        made = manager.create_checkpoint("x", state={"plan": {"step": 3}})
        assert manager.state(made) == {"plan": {"step": 3}}


class TestFiles:
    SKILL = importlib.resources.files("holdfast.adapters.agents") / "skill"

    @pytest.mark.parametrize("name", ["references/CHECKPOINT-STRATEGY.md", "references/ROLLBACK-PROCEDURES.md"])
    def test_references(self, name: str) -> None:
        assert name in (self.SKILL / "SKILL.md").read_text("utf-8")
        assert len((self.SKILL / name).read_text("utf-8")) > 500

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("name", "checkpoint-manager"),
            ("version", "1.0.0"),
            ("category", "autonomous-coding"),
            ("layer", "verification-recovery"),
        ],
    )
    def test_front_matter(self, key: str, value: str) -> None:
        assert self._front_matter()[key] == value

    @pytest.mark.parametrize("use", ["checkpoint", "roll back", "recover", "risky", "snapshot", "experiment"])
    def test_description(self, use: str) -> None:
        """When an agent is to use it: the words of the document."""
        assert use in self._front_matter()["description"].casefold()

    def _front_matter(self) -> dict[str, str]:
        text = (self.SKILL / "SKILL.md").read_text("utf-8")
        opened, front, _ = text.split("---\n", 2)
        assert not opened
        return dict(line.split(": ", 1) for line in front.splitlines())

    @pytest.mark.parametrize("name", ["checkpoint_manager", "git_snapshot", "state_snapshot", "rollback_handler"])
    def test_scripts(self, name: str, old: Callable[[str], Any]) -> None:
        assert f"scripts/{name}.py" in (self.SKILL / "SKILL.md").read_text("utf-8")
        assert old(f"skill.scripts.{name}").__all__
