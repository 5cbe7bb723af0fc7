"""Doing a service's work in threads, and telling of it in the loop (or, without one, where it was asked for)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.events import Listeners
from holdfast.workspace.service.config import CheckpointEvent
from holdfast.workspace.service.lane import Lane

T = TypeVar("T")
PATIENCE_S = 10.0
"""How long an async handler is waited for before the call that it was told of returns without it."""
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
        self._handlers: set[asyncio.Task[Any]] = set()
        self._askers: WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[Any]] = WeakKeyDictionary()
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
        """Take nothing more, and wait for what was begun; handlers that do not end are cancelled."""
        self._changing.close()
        self._looking.close()
        waiting = self._waiting()
        if others := self._here(self._tasks) - waiting:
            await asyncio.wait(others)
        await asyncio.gather(self._changing.ended(), self._looking.ended())
        if handlers := self._here(self._handlers) - waiting:
            _, late = await asyncio.wait(handlers, timeout=PATIENCE_S)
            for task in late:
                task.cancel()

    @staticmethod
    def _here(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        return {task for task in tasks if task.get_loop() is asyncio.get_running_loop()}

    def _waiting(self) -> set[asyncio.Task[Any]]:
        """This task and those that wait for it to end: a handler may close the service."""
        found, task = set(), asyncio.current_task()
        while task is not None:
            found.add(task)
            task = self._askers.get(task)
        return found

    # telling

    async def _do(self, lane: Lane, work: Callable[[], Done[T]]) -> T:
        """Being cancelled ends the waiting, not the work nor the telling."""
        self._loop = asyncio.get_running_loop()
        task = self._keep(asyncio.ensure_future(self._through(lane, work)), self._tasks)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def _through(self, lane: Lane, work: Callable[[], Done[T]]) -> T:
        future = lane.submit(work)
        try:
            done = await lane.answer(future)
        except Exception as error:
            await self._finish(self._tell([(CheckpointEvent.ERROR, error)]))
            raise
        except asyncio.CancelledError:  # the loop ends, since nobody else can cancel this
            threading.Thread(target=self._tell_late, args=(future,), name="holdfast-service-late").start()
            raise
        await self._finish(self._tell(done.events))
        return done.result

    def _tell_late(self, future: Future[Done[Any]]) -> None:
        """Tell of work whose loop has ended, from a thread of its own."""
        error = future.exception()
        if error is not None:
            _log.error("what nobody waited for failed: %s", error)
        answers = self._tell(future.result().events if error is None else [(CheckpointEvent.ERROR, error)])
        if any(map(inspect.isawaitable, answers)):
            asyncio.run(self._finish(answers))

    def _tell(self, events: Sequence[tuple[CheckpointEvent, object]]) -> list[object]:
        return [answer for kind, event in events for answer in self.listeners.tell(kind, event)]

    def _finish_somewhere(self, answers: Sequence[object]) -> None:
        """Await what async handlers returned, in the loop of this thread, else in the service's, else in a new one."""
        if not any(map(inspect.isawaitable, answers)):
            return
        finishing = self._finish(answers)
        try:
            self._keep(asyncio.get_running_loop().create_task(finishing), self._tasks)
        except RuntimeError:
            if self._loop is not None and self._loop.is_running():
                asyncio.run_coroutine_threadsafe(finishing, self._loop)
            else:
                asyncio.run(finishing)

    async def _finish(self, answers: Sequence[object]) -> None:
        """Await what async handlers returned, one after the other; one that does not end is left to itself."""
        for answer in answers:
            if inspect.isawaitable(answer):
                task = self._keep(asyncio.ensure_future(_logged(answer)), self._handlers)
                _, late = await asyncio.wait({task}, timeout=PATIENCE_S)
                if late:
                    _log.warning(
                        "an async handler has not ended after %g seconds; it is waited for no longer", PATIENCE_S
                    )

    def _keep(self, task: asyncio.Task[T], among: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
        """The loop itself does not keep a task from being collected."""
        among.add(task)
        task.add_done_callback(among.discard)
        if (asker := asyncio.current_task()) is not None:
            self._askers[task] = asker
        return task


async def _logged(answer: Awaitable[object]) -> None:
    """Await what an async handler returned; one that fails, or is cancelled, is logged, and breaks nothing."""
    try:
        await answer
    except Exception:
        _log.exception("an async handler failed")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        _log.error("an async handler was cancelled")


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more, so nobody else would say it (P4)."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("what nobody waited for failed: %s", task.exception())
