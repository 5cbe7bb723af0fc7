"""Doing a service's work in threads, and telling of it in the loop (or, without one, where it was asked for)."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.events import Listeners
from holdfast.workspace.service.config import CheckpointEvent
from holdfast.workspace.service.lane import Lane

T = TypeVar("T")
_log = logging.getLogger("holdfast")


class Done(NamedTuple, Generic[T]):
    """What some work came to, and what is to be told of it."""

    result: T
    events: Sequence[tuple[CheckpointEvent, object]] = ()


class Dispatch:
    """Two lanes, one for what changes something and one for what only looks; and who is to be told."""

    def __init__(self) -> None:
        self.listeners: Listeners[Any] = Listeners()
        self._changing, self._looking = Lane("holdfast-service"), Lane("holdfast-service-look")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def change(self, work: Callable[[], Done[T]]) -> T:
        """Do work after what was asked for before, tell of it, and return its result."""
        return await self._do(self._changing, work)

    async def look(self, work: Callable[[], Done[T]]) -> T:
        """Do work that changes nothing, beside what does."""
        return await self._do(self._looking, work)

    def change_blocking(self, work: Callable[[], Done[T]]) -> T:
        """The same as `change`, for code that is not in a coroutine; it waits in its own thread."""
        try:
            done = self._changing.submit(work).result()
        except Exception as error:
            self._finish_somewhere(self._tell([(CheckpointEvent.ERROR, error)]))
            raise
        self._finish_somewhere(self._tell(done.events))
        return done.result

    async def close(self) -> None:
        """Take nothing more, and wait for what was begun."""
        self._changing.close()
        self._looking.close()
        others = {task for task in self._tasks if task.get_loop() is asyncio.get_running_loop()}
        others.discard(asyncio.current_task())  # a handler may close the service
        if others:
            await asyncio.wait(others)
        await asyncio.gather(self._changing.ended(), self._looking.ended())

    # telling

    async def _do(self, lane: Lane, work: Callable[[], Done[T]]) -> T:
        """Being cancelled ends the waiting, not the work nor the telling."""
        self._loop = asyncio.get_running_loop()
        task = self._keep(asyncio.ensure_future(self._through(lane, work)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def _through(self, lane: Lane, work: Callable[[], Done[T]]) -> T:
        try:
            done = await lane.run(work)
        except Exception as error:
            await _finish(self._tell([(CheckpointEvent.ERROR, error)]))
            raise
        await _finish(self._tell(done.events))
        return done.result

    def _tell(self, events: Sequence[tuple[CheckpointEvent, object]]) -> list[object]:
        return [answer for kind, event in events for answer in self.listeners.tell(kind, event)]

    def _finish_somewhere(self, answers: Sequence[object]) -> None:
        """Await what async handlers returned, in the loop of this thread, else in the service's, else in a new one."""
        if not any(map(inspect.isawaitable, answers)):
            return
        try:
            self._keep(asyncio.get_running_loop().create_task(_finish(answers)))
        except RuntimeError:
            if self._loop is not None and self._loop.is_running():
                asyncio.run_coroutine_threadsafe(_finish(answers), self._loop)
            else:
                asyncio.run(_finish(answers))

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """The loop itself does not keep a task from being collected."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _finish(answers: Sequence[object]) -> None:
    """Await what async handlers returned; one that fails is logged, and breaks nothing."""
    for answer in answers:
        if inspect.isawaitable(answer):
            try:
                await answer
            except Exception:
                _log.exception("an async handler failed")


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more, so nobody else would say it (P4)."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("what nobody waited for failed: %s", task.exception())
