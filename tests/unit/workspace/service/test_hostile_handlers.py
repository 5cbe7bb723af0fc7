"""A service among handlers, loops and threads that misbehave, and restores without end."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.durable.aio import WorkerThreads
from holdfast.workspace import CheckpointEvent, CheckpointService
from holdfast.workspace.service import dispatch
from holdfast.workspace.upkeep.prune import UNDO_STEPS

from .scenes import make, play

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "HANDLER_TIMEOUT_S", 0.05)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that waits for what never ends gets an error, however slow the machine is."""
    monkeypatch.setattr(dispatch, "HANDLER_TIMEOUT_S", 600.0)


class TestHandlers:
    def test_one_that_never_ends_does_not_keep_a_save_from_returning(
        self, project: Project, impatient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        begun: list[str] = []

        async def hang(checkpoint: Any) -> None:
            begun.append(checkpoint.message)
            await asyncio.Event().wait()

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.CREATED, hang)
            project.write("file")
            assert (await service.save("one")).message == "one"
            assert begun == ["one"]

        with caplog.at_level(logging.WARNING, "holdfast"):
            play(project, scene)
        assert "has not ended" in caplog.text

    def test_one_that_is_cancelled_does_not_cancel_the_save(
        self, project: Project, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def cancelled(checkpoint: Any) -> None:
            raise asyncio.CancelledError

        async def scene(service: CheckpointService) -> None:
            service.on(CheckpointEvent.CREATED, cancelled)
            project.write("file")
            assert (await service.save("one")).message == "one"

        play(project, scene)
        assert "was cancelled" in caplog.text

    def test_one_may_close_the_service(self, project: Project, patient: None) -> None:
        async def scene() -> None:
            service = make(project)

            async def close(checkpoint: Any) -> None:
                await service.close()

            service.on(CheckpointEvent.CREATED, close)
            project.write("file")
            async with asyncio.timeout(60):
                await service.save("one")

        asyncio.run(scene())

    def test_one_may_save_and_close_in_a_handler_of_that(self, project: Project, patient: None) -> None:
        async def scene() -> None:
            service = make(project)

            async def again(checkpoint: Any) -> None:
                if checkpoint.message == "one":
                    project.write("file", b"more")
                    await service.save("two")
                else:
                    await service.close()

            service.on(CheckpointEvent.CREATED, again)
            project.write("file")
            async with asyncio.timeout(60):
                await service.save("one")

        asyncio.run(scene())

    def test_they_are_told_although_the_loop_has_ended(self, project: Project) -> None:
        told: list[str] = []
        both = threading.Event()

        async def later(checkpoint: Any) -> None:
            told.append(f"later {checkpoint.message}")
            both.set()

        async def leave() -> None:
            service = make(project)
            service.on(CheckpointEvent.CREATED, lambda checkpoint: told.append(checkpoint.message))
            service.on(CheckpointEvent.CREATED, later)
            await service.initialize()
            project.write("file", b"x" * 100_000)
            task = asyncio.ensure_future(service.save("one"))
            await asyncio.sleep(0)
            del task

        asyncio.run(leave())
        assert both.wait(60)
        assert told == ["one", "later one"]


def test_threads_that_come_at_once_share_one_worker() -> None:
    for _ in range(50):
        lane, barrier = WorkerThreads(1, "test", owner="test"), threading.Barrier(8)

        def hand_in(lane: WorkerThreads = lane, barrier: threading.Barrier = barrier) -> int:
            barrier.wait()
            return lane.submit(threading.get_ident).result()

        with ThreadPoolExecutor(8) as threads:
            workers = {future.result() for future in [threads.submit(hand_in) for _ in range(8)]}
        lane.close()
        assert len(workers) == 1


def test_repeated_rewinds_keep_only_what_undo_needs(project: Project) -> None:
    async def scene(service: CheckpointService) -> None:
        project.write("file", b"first")
        first = await service.save("one")
        for number in range(3 * UNDO_STEPS):
            project.write("file", b"edit %d" % number)
            await service.restore(first.id)
        every = service.workspace.list(None, safety=True)
        assert len(every) <= 1 + UNDO_STEPS + 1
        for number in reversed(range(2 * UNDO_STEPS, 3 * UNDO_STEPS)):
            await service.undo()
            assert (project.root / "file").read_bytes() == b"edit %d" % number

    play(project, scene, max_checkpoints=3)
