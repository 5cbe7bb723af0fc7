"""`praisonaiagents.checkpoints`: file-level checkpoints in a shadow git repository."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from holdfast import NotFound
from holdfast.workspace import Checkpoint, CheckpointConfig, CheckpointDiff, CheckpointEvent, CheckpointService

pytestmark = pytest.mark.usefixtures("own_stores")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "a.txt").write_text("one\n")
    return tmp_path / "workspace"


def test_the_defaults_of_the_configuration() -> None:
    config = CheckpointConfig()
    assert (config.auto_checkpoint, config.max_checkpoints, config.exclude_patterns) == (True, 100, [])


def test_the_methods_of_the_service(workspace: Path, tmp_path: Path) -> None:
    async def use() -> None:
        service = CheckpointService(workspace_dir=str(workspace), storage_dir=str(tmp_path / "storage"))
        assert await service.initialize()
        first = await service.save("first")
        assert isinstance(first, Checkpoint)
        assert (type(first.id), first.message, type(first.timestamp)) == (str, "first", datetime)
        assert (first.files_changed, dict(first.metadata)) == (["a.txt"], {})

        (workspace / "a.txt").write_text("two\n")
        (workspace / "b.txt").write_text("new\n")
        second = await service.save("second", metadata={"by": "agent"})
        assert [each.id for each in await service.list()] == [second.id, first.id]
        assert (await service.get(second.id)).metadata == {"by": "agent"}

        diff = await service.diff(first.id, second.id)
        assert isinstance(diff, CheckpointDiff)
        assert (diff.from_id, diff.to_id) == (first.id, second.id)
        assert (diff.added_files, diff.modified_files, diff.deleted_files) == (["b.txt"], ["a.txt"], [])
        assert "-one" in diff.diff_content and "+two" in diff.diff_content
        assert (await service.diff(second.id, first.id)).deleted_files == ["b.txt"]

        await service.restore(first.id)
        assert (workspace / "a.txt").read_text() == "one\n" and not (workspace / "b.txt").exists()
        await service.delete(second.id)
        with pytest.raises(NotFound):
            await service.get(second.id)
        await service.close()

    asyncio.run(use())


def test_files_and_conversation_are_restored_together(workspace: Path) -> None:
    async def use() -> None:
        async with CheckpointService(workspace) as service:
            saved = await service.save("before", state=[{"role": "user", "content": "hello"}])
            (workspace / "a.txt").write_text("changed\n")
            await service.save("after", state=[])
            restored = await service.restore(saved.id)
            assert restored.state["conversation"] == [{"role": "user", "content": "hello"}]
            assert (workspace / "a.txt").read_text() == "one\n"

    asyncio.run(use())


def test_a_checkpoint_is_made_before_a_file_is_modified(workspace: Path) -> None:
    async def use() -> None:
        async with CheckpointService(workspace, config=CheckpointConfig(auto_checkpoint=True)) as service:
            service.protect((workspace / "a.txt").write_text)("changed by a tool\n")
            await service.rewind()
            assert (workspace / "a.txt").read_text() == "one\n"

    asyncio.run(use())


def test_what_is_excluded_is_not_held_and_only_so_many_are_kept(workspace: Path) -> None:
    async def use() -> None:
        config = CheckpointConfig(max_checkpoints=2, exclude_patterns=["*.log"])
        async with CheckpointService(workspace, config=config) as service:
            (workspace / "debug.log").write_text("noise\n")
            for number in range(4):
                (workspace / "a.txt").write_text(f"{number}\n")
                saved = await service.save(f"number {number}")
                assert "debug.log" not in saved.files_changed
            assert [each.message for each in await service.list()] == ["number 3", "number 2"]

    asyncio.run(use())


def test_events_are_emitted(workspace: Path) -> None:
    told: list[CheckpointEvent] = []

    async def use() -> None:
        service = CheckpointService(workspace)
        for event in CheckpointEvent:
            service.on(event, lambda _, event=event: told.append(event))
        async with service:
            saved = await service.save("first")
            (workspace / "a.txt").write_text("changed\n")
            await service.restore(saved.id)
            await service.delete((await service.save("second", step=1)).id)

    asyncio.run(use())
    assert [event for event in told if event is not CheckpointEvent.INITIALIZED] == [
        CheckpointEvent.CREATED,
        CheckpointEvent.RESTORED,
        CheckpointEvent.CREATED,
        CheckpointEvent.DELETED,
    ]
