"""What holds for every adapter, whatever the framework: written once, and run with each."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Workspace
from holdfast.adapters.tool_checkpoints import BeforeTools

Play = Callable[[Any, Path, Sequence[tuple[str, dict[str, Any]]]], Awaitable[None]]
"""Runs an agent named `kelp` that calls these tools, one after the other: `write(text)` and `look()`."""

WRITES = [("write", {"text": "1\n"}), ("look", {}), ("write", {"text": "2\n"})]


class AdapterContract:
    """Inherited by the tests of each adapter, which say how its framework runs an agent."""

    make: Callable[..., BeforeTools]
    play: Play

    def test_what_was_there_before_each_tool_can_be_brought_back(self, project: Path, ws: Workspace) -> None:
        async def scene() -> None:
            checkpoints = self.make(project)
            await self.play(checkpoints, project, WRITES)
            assert (project / "a.txt").read_text() == "2\n"

            made = await checkpoints.list()
            assert [each.message for each in reversed(made)] == ["before write", "before look"]
            await checkpoints.rewind()
            assert (project / "a.txt").read_text() == "1\n"
            await checkpoints.undo()
            assert (project / "a.txt").read_text() == "2\n"
            await checkpoints.restore(made[-1].id)
            assert (project / "a.txt").read_text() == "0\n"
            await checkpoints.close()

        asyncio.run(scene())

    def test_who_saved_before_what_is_in_the_record(self, project: Path, ws: Workspace) -> None:
        async def scene() -> None:
            checkpoints = self.make(project, session="s1")
            await self.play(checkpoints, project, WRITES[:1])
            await checkpoints.close()

        asyncio.run(scene())
        [made] = ws.list()
        assert (made.actor, made.session, made.metadata["before"]) == (None, "s1", "write")
        assert made.metadata["saved_by"] == "kelp"
        assert made.metadata["tool_use"] == "call-0"

    def test_what_is_there_when_a_run_begins_is_the_users(self, project: Path, ws: Workspace) -> None:
        start = ws.save("start")
        runs = [("one.txt", "1\n"), ("two.txt", "2\n")]

        async def scene() -> None:
            checkpoints = self.make(project, session="s1")
            for name, text in runs:
                (project / name).write_text("mine\n")  # before the agent looks, or between two runs of it
                await self.play(checkpoints, project, [("write", {"text": text}), ("look", {})])
            await checkpoints.close()

        asyncio.run(scene())
        changed = {each.actor: each.files_changed for each in ws.list(None) if each.parent}
        assert changed["kelp"] == ["a.txt"]
        assert ws.restore(start.id, keep_mine=True).ok
        assert {name: (project / name).read_text() for name, _ in runs} == dict.fromkeys(
            ["one.txt", "two.txt"], "mine\n"
        )
        assert (project / "a.txt").read_text() == "0\n"

    def test_only_tools_for_which_the_program_says_so_are_preceded(self, project: Path, ws: Workspace) -> None:
        asked: list[tuple[str, dict[str, Any]]] = []

        def when(tool: str, arguments: Any) -> bool:
            asked.append((tool, dict(arguments)))
            return tool == "write" and arguments["text"] != "1\n"

        async def scene() -> None:
            checkpoints = self.make(project, when=when)
            await self.play(checkpoints, project, WRITES)
            await checkpoints.close()

        asyncio.run(scene())
        assert asked == WRITES
        [made] = ws.list()
        assert made.metadata["before"] == "write"
        ws.restore(made.id)
        assert (project / "a.txt").read_text() == "1\n"

    def test_a_question_that_fails_saves(self, project: Path, ws: Workspace, caplog: pytest.LogCaptureFixture) -> None:
        def when(tool: str, arguments: Any) -> bool:
            raise RuntimeError("the program's own mistake")

        async def scene() -> None:
            checkpoints = self.make(project, when=when)
            await self.play(checkpoints, project, WRITES[:1])
            await checkpoints.close()

        asyncio.run(scene())
        assert len(ws.list()) == 1 and "`when` failed for write" in caplog.text

    def test_a_save_that_fails_is_told_and_breaks_nothing(
        self, project: Path, ws: Workspace, caplog: pytest.LogCaptureFixture
    ) -> None:
        told: list[tuple[str, Exception]] = []

        async def scene() -> None:
            checkpoints = self.make(project, on_failure=lambda tool, error: told.append((tool, error)))
            await checkpoints.service.initialize()
            shutil.rmtree(ws.store)
            with caplog.at_level(logging.ERROR, "holdfast"):
                await self.play(checkpoints, project, WRITES)
            await checkpoints.close()

        asyncio.run(scene())
        assert (project / "a.txt").read_text() == "2\n"
        assert [tool for tool, _ in told] == ["write", "look", "write"]
        assert all(isinstance(error, HoldfastError) for _, error in told)
        assert caplog.text.count("no checkpoint was saved before write") == 2

    def test_if_strict_a_save_that_fails_keeps_the_tool_from_running(self, project: Path, ws: Workspace) -> None:
        async def scene() -> None:
            checkpoints = self.make(project, strict=True, on_failure=lambda tool, error: 1 / 0)
            await checkpoints.service.initialize()
            shutil.rmtree(ws.store)
            with pytest.raises(HoldfastError):
                await self.play(checkpoints, project, WRITES)
            await checkpoints.close()

        asyncio.run(scene())
        assert (project / "a.txt").read_text() == "0\n"

    def test_a_service_that_is_off_saves_nothing(self, project: Path, ws: Workspace) -> None:
        from holdfast.workspace import CheckpointService

        async def scene() -> None:
            checkpoints = self.make(CheckpointService(project, auto_checkpoint=False), strict=True)
            await self.play(checkpoints, project, WRITES)
            await checkpoints.close()

        asyncio.run(scene())
        assert ws.list() == [] and (project / "a.txt").read_text() == "2\n"
