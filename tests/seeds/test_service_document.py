"""PraisonAI's page "Checkpoints Module": every class, method, attribute, default, example and advice of it."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import holdfast
from holdfast.errors import NotFound
from holdfast.workspace import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointService,
)

Scene = Callable[[CheckpointService], Coroutine[Any, Any, Any]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("print('one')\n")
    return tmp_path / "project"


@pytest.fixture
def play(project: Path) -> Callable[..., Any]:
    """Run a scene with the service of the page's examples."""

    def run(scene: Scene, **options: Any) -> Any:
        async def whole() -> Any:
            service = CheckpointService(workspace_dir=str(project), storage_dir="~/.praisonai/checkpoints", **options)
            await service.initialize()
            try:
                return await scene(service)
            finally:
                await service.close()

        return asyncio.run(whole())

    return run


class TestModule:
    @pytest.mark.parametrize(
        "name", ["CheckpointService", "Checkpoint", "CheckpointDiff", "CheckpointConfig", "CheckpointEvent"]
    )
    def test_names(self, name: str, old: Callable[[str], Any]) -> None:
        assert inspect.isclass(getattr(holdfast.workspace, name))
        assert inspect.isclass(getattr(old("praisonai.checkpoints"), name))

    def test_a_shadow_git_repository_tracks_the_files(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> str:
            await service.save("one")
            return str(service.workspace.store)

        store = play(scene)
        shown = subprocess.run(["git", "--git-dir", store, "tag"], capture_output=True, text=True, check=True)
        assert shown.stdout.strip()
        assert not (project / ".git").exists()


class TestFeatures:
    def test_automatic_checkpointing_before_file_modifications(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> None:
            def edit(text: str) -> None:
                (project / "main.py").write_text(text)

            await asyncio.to_thread(service.protect(edit), "broken\n")
            [before] = await service.list()
            assert before.message == "before edit"
            await service.restore(before)

        play(scene)
        assert (project / "main.py").read_text() == "print('one')\n"

    def test_rewind_to_any_previous_checkpoint(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> None:
            for text in "abcd":
                (project / "main.py").write_text(text)
                await service.save(text)
            await service.rewind(2)
            assert (project / "main.py").read_text() == "b"
            assert len(await service.list()) == 4

        play(scene)

    def test_diff_between_checkpoints(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> None:
            first = await service.save("one")
            (project / "main.py").write_text("print('two')\n")
            second = await service.save("two")
            assert (await service.diff(first, second)).modified_files == ["main.py"]

        play(scene)

    def test_restore_files_and_conversation_together(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> None:
            messages = [{"role": "user", "content": "hello"}]
            saved = await service.save("one", state=messages)
            (project / "main.py").write_text("broken\n")
            restored = await service.restore(saved)
            assert restored.state == {"conversation": messages}

        play(scene)
        assert (project / "main.py").read_text() == "print('one')\n"


class TestCheckpointService:
    """Main service for managing checkpoints."""

    def test_workspace_dir(self, project: Path) -> None:
        """Directory to track."""
        assert CheckpointService(workspace_dir=str(project)).workspace_dir == project

    def test_storage_dir(self, play: Callable[..., Any], tmp_path: Path) -> None:
        """Where to store checkpoints; `~` is the home folder."""

        async def scene(service: CheckpointService) -> Path:
            return service.workspace.store

        assert play(scene).is_relative_to(tmp_path / "home" / ".praisonai" / "checkpoints")
        assert list((tmp_path / "work").iterdir()) == []

    def test_initialize(self, project: Path, tmp_path: Path) -> None:
        """Initialize the shadow git repository."""

        async def use() -> None:
            service = CheckpointService(str(project), str(tmp_path / "storage"))
            assert not service.is_initialized
            assert await service.initialize()
            assert service.is_initialized and (service.workspace.store / "HEAD").is_file()
            await service.close()

        asyncio.run(use())

    def test_save(self, play: Callable[..., Any]) -> None:
        """Save a checkpoint with a message."""

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("Before refactoring")
            assert isinstance(saved, Checkpoint) and saved.message == "Before refactoring"

        play(scene)

    def test_restore(self, play: Callable[..., Any], project: Path) -> None:
        """Restore to a specific checkpoint."""

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one")
            for ref in (saved.id, saved):
                (project / "main.py").write_text("broken\n")
                (project / "new.py").write_text("new\n")
                await service.restore(ref)
                assert [path.name for path in project.iterdir()] == ["main.py"]
                assert (project / "main.py").read_text() == "print('one')\n"

        play(scene)

    def test_diff(self, play: Callable[..., Any], project: Path) -> None:
        """Get diff between two checkpoints."""

        async def scene(service: CheckpointService) -> None:
            first = await service.save("one")
            (project / "new.py").write_text("new\n")
            second = await service.save("two")
            by_id, by_value = await service.diff(first.id, second.id), await service.diff(first, second)
            assert by_id == by_value and isinstance(by_id, CheckpointDiff)

        play(scene)
        assert list(inspect.signature(CheckpointService.diff).parameters) == ["self", "from_id", "to_id"]

    def test_list(self, play: Callable[..., Any]) -> None:
        """List all checkpoints."""

        async def scene(service: CheckpointService) -> None:
            for number in range(55):
                await service.save(str(number), allow_empty=True)
            assert [each.message for each in await service.list()] == [str(number) for number in range(54, -1, -1)]

        play(scene)

    def test_get(self, play: Callable[..., Any]) -> None:
        """Get checkpoint details."""

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one", metadata={"k": "v"})
            for ref in (saved.id, saved):
                found = await service.get(ref)
                assert (found.id, found.metadata, found.files_changed) == (saved.id, {"k": "v"}, ["main.py"])

        play(scene)
        assert list(inspect.signature(CheckpointService.get).parameters) == ["self", "checkpoint_id"]

    def test_delete(self, play: Callable[..., Any], project: Path) -> None:
        """Delete a checkpoint."""

        async def scene(service: CheckpointService) -> None:
            first = await service.save("one")
            (project / "main.py").write_text("two\n")
            second = await service.save("two")
            await service.delete(first.id)
            await service.delete(second)
            assert await service.list() == []
            with pytest.raises(NotFound):
                await service.get(first.id)

        play(scene)


class TestCheckpoint:
    """Represents a single checkpoint."""

    @pytest.fixture
    def saved(self, play: Callable[..., Any]) -> Checkpoint:
        async def scene(service: CheckpointService) -> Checkpoint:
            saved = await service.save("the message", metadata={"ticket": 7})
            found = await service.get(saved)
            assert found == saved
            return found

        found: Checkpoint = play(scene)
        return found

    def test_id(self, saved: Checkpoint) -> None:
        assert isinstance(saved.id, str) and saved.id

    def test_message(self, saved: Checkpoint) -> None:
        assert saved.message == "the message"

    def test_timestamp(self, saved: Checkpoint) -> None:
        assert isinstance(saved.timestamp, datetime) and saved.timestamp.tzinfo is not None
        assert abs((datetime.now(UTC) - saved.timestamp).total_seconds()) < 600

    def test_files_changed(self, saved: Checkpoint) -> None:
        assert saved.files_changed == ["main.py"]

    def test_metadata(self, saved: Checkpoint) -> None:
        assert saved.metadata == {"ticket": 7} and isinstance(saved.metadata, dict)

    def test_it_can_be_made_of_these_attributes_alone(self) -> None:
        now = datetime.now(UTC)
        made = Checkpoint(id="c1", message="m", timestamp=now, files_changed=["a.py"])
        assert (made.id, made.message, made.timestamp, made.files_changed, made.metadata) == (
            "c1",
            "m",
            now,
            ["a.py"],
            {},
        )
        assert Checkpoint(id="c1", message="m", timestamp=now, files_changed=[], metadata={"k": 1}).metadata == {"k": 1}


class TestCheckpointDiff:
    """Diff between two checkpoints."""

    @pytest.fixture
    def found(self, play: Callable[..., Any], project: Path) -> tuple[Checkpoint, Checkpoint, CheckpointDiff]:
        async def scene(service: CheckpointService) -> tuple[Checkpoint, Checkpoint, CheckpointDiff]:
            (project / "gone.py").write_text("gone\n")
            first = await service.save("one")
            (project / "gone.py").unlink()
            (project / "main.py").write_text("print('two')\n")
            (project / "new.py").write_text("new and different\n")
            second = await service.save("two")
            return first, second, await service.diff(first, second)

        return play(scene)  # type: ignore[no-any-return]

    def test_from_id(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        assert found[2].from_id == found[0].id

    def test_to_id(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        assert found[2].to_id == found[1].id

    def test_added_files(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        assert found[2].added_files == ["new.py"]

    def test_modified_files(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        assert found[2].modified_files == ["main.py"]

    def test_deleted_files(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        assert found[2].deleted_files == ["gone.py"]

    def test_diff_content(self, found: tuple[Checkpoint, Checkpoint, CheckpointDiff]) -> None:
        """Full diff content."""
        for line in ("-print('one')", "+print('two')", "+new and different", "-gone"):
            assert line in found[2].diff_content.splitlines()

    def test_it_can_be_made_of_these_attributes_alone(self) -> None:
        made = CheckpointDiff(
            from_id="a", to_id="b", added_files=[], modified_files=["x"], deleted_files=[], diff_content="+x"
        )
        assert (made.modified_files, made.diff_content) == (["x"], "+x")


class TestCheckpointConfig:
    """Configuration for checkpoint service."""

    @pytest.mark.parametrize(
        ("attribute", "default", "kind"),
        [
            ("auto_checkpoint", True, bool),
            ("max_checkpoints", 100, int | None),
            ("exclude_patterns", [], list[str]),
        ],
    )
    def test_attributes(self, attribute: str, default: object, kind: object) -> None:
        assert getattr(CheckpointConfig(), attribute) == default
        assert get_type_hints(CheckpointConfig)[attribute] == kind

    def test_patterns_are_not_shared(self) -> None:
        assert CheckpointConfig().exclude_patterns is not CheckpointConfig().exclude_patterns

    def test_auto_checkpoint(self, play: Callable[..., Any]) -> None:
        """Auto-checkpoint before changes; off, tools run without."""
        for config, expected in ((CheckpointConfig(auto_checkpoint=False), 0), (CheckpointConfig(), 1)):

            async def scene(service: CheckpointService, expected: int = expected) -> None:
                async with service.auto_checkpoint("edit"):
                    pass
                assert len(await service.list()) == expected

            play(scene, config=config)

    def test_max_checkpoints(self, play: Callable[..., Any], project: Path) -> None:
        """Maximum checkpoints to keep."""

        async def scene(service: CheckpointService) -> None:
            for number in range(6):
                (project / "main.py").write_text(f"{number}\n")
                await service.save(str(number))
            assert [each.message for each in await service.list()] == ["5", "4", "3"]

        play(scene, config=CheckpointConfig(max_checkpoints=3))

    def test_exclude_patterns(self, play: Callable[..., Any], project: Path) -> None:
        """Patterns to exclude."""
        (project / "debug.log").write_text("log\n")

        async def scene(service: CheckpointService) -> list[str]:
            return (await service.save("one")).files_changed

        assert play(scene, config=CheckpointConfig(exclude_patterns=["*.log"])) == ["main.py"]


class TestCheckpointEvent:
    """Events emitted by the checkpoint service."""

    @pytest.mark.parametrize("name", ["CREATED", "RESTORED", "DELETED", "CHECKPOINT_CREATED", "CHECKPOINT_RESTORED"])
    def test_names(self, name: str) -> None:
        assert isinstance(CheckpointEvent[name], str)

    def test_they_are_emitted(self, play: Callable[..., Any], project: Path) -> None:
        heard = []

        async def scene(service: CheckpointService) -> None:
            for event in (CheckpointEvent.CREATED, CheckpointEvent.RESTORED, CheckpointEvent.DELETED):
                service.on(event, lambda _, event=event: heard.append(event.name))
            saved = await service.save("one")
            (project / "main.py").write_text("two\n")
            await service.restore(saved)
            await service.delete(saved)

        play(scene)
        assert heard == ["CREATED", "RESTORED", "DELETED"]


class TestUsageExamples:
    def test_basic_checkpointing(self, project: Path) -> None:
        """What `save` returns is passed on, as it is, to `restore` and `diff`."""

        async def main() -> None:
            service = CheckpointService(workspace_dir=str(project), storage_dir="~/.praisonai/checkpoints")
            await service.initialize()
            cp1 = await service.save("Initial state")
            (project / "main.py").write_text("print('two')\n")
            cp2 = await service.save("After changes")
            diff = await service.diff(cp1, cp2)
            assert diff.modified_files == ["main.py"]
            await service.restore(cp1)
            assert [each.message for each in await service.list()] == ["After changes", "Initial state"]
            await service.close()

        asyncio.run(main())
        assert (project / "main.py").read_text() == "print('one')\n"

    def test_with_agent(self, play: Callable[..., Any], project: Path) -> None:
        """An agent takes the service; each of its tools is protected."""

        class Agent:
            def __init__(self, checkpoint_service: CheckpointService) -> None:
                self.write = checkpoint_service.protect(self._write)

            async def _write(self, text: str) -> None:
                (project / "main.py").write_text(text)

        async def scene(service: CheckpointService) -> None:
            agent = Agent(service)
            await agent.write("one\n")
            await agent.write("two\n")
            await service.rewind()
            assert (project / "main.py").read_text() == "one\n"

        play(scene)

    def test_automatic_checkpointing(self, play: Callable[..., Any], project: Path) -> None:
        async def scene(service: CheckpointService) -> None:
            @service.auto_checkpoint
            async def refactor() -> None:
                (project / "main.py").write_text("broken\n")

            await refactor()
            await service.restore()
            assert (project / "main.py").read_text() == "print('one')\n"

        play(scene, config=CheckpointConfig(auto_checkpoint=True))

    def test_excluding_files(self, play: Callable[..., Any], project: Path) -> None:
        """What is excluded is neither saved nor removed."""
        (project / "data.bin").write_bytes(b"\0" * 100)

        async def scene(service: CheckpointService) -> None:
            saved = await service.save("one")
            (project / "data.bin").write_bytes(b"\1" * 100)
            await service.restore(saved)
            assert (project / "data.bin").read_bytes() == b"\1" * 100

        play(scene, config=CheckpointConfig(exclude_patterns=["*.bin", "node_modules/"]))


class TestBestPractices:
    def test_initialize_early(self, project: Path) -> None:
        """Before the agent starts; without it, the first call does."""

        async def use() -> None:
            async with CheckpointService(project) as service:
                assert service.is_initialized
            late = CheckpointService(project)
            await late.save("one")
            assert late.is_initialized
            await late.close()

        asyncio.run(use())

    def test_meaningful_messages(self, play: Callable[..., Any]) -> None:
        """Of any text."""
        messages = ["before | after", "two\nlines", "ünïcode ✓", "x" * 5000]

        async def scene(service: CheckpointService) -> None:
            for message in messages:
                await service.save(message, allow_empty=True)
            assert [each.message for each in reversed(await service.list())] == messages

        play(scene)

    def test_exclude_large_files_logs_dependencies_and_build_artifacts(
        self, play: Callable[..., Any], project: Path
    ) -> None:
        for folder in ("node_modules", ".venv", "__pycache__"):
            (project / folder).mkdir()
            (project / folder / "x").write_text("x")

        async def scene(service: CheckpointService) -> list[str]:
            return (await service.save("one")).files_changed

        assert play(scene) == ["main.py"]

    def test_limit_checkpoints_prevents_disk_bloat(self, play: Callable[..., Any], project: Path) -> None:
        heard: list[object] = []

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.PRUNED, heard.append)
            for number in range(4):
                (project / "main.py").write_text(f"{number}\n")
                await service.save(str(number))

        play(scene, config=CheckpointConfig(max_checkpoints=2))
        assert heard

    def test_regular_cleanup(self, play: Callable[..., Any], project: Path) -> None:
        """Delete old checkpoints periodically."""

        async def scene(service: CheckpointService) -> None:
            for number in range(4):
                (project / "main.py").write_text(f"{number}\n")
                await service.save(str(number))
            for old in (await service.list())[2:]:
                await service.delete(old)
            assert [each.message for each in await service.list()] == ["3", "2"]

        play(scene)
