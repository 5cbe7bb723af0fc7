"""Running a service's work in threads, and calling event handlers in the loop (or, without one, in the caller)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.durable.aio import ReadWriteThreads, WorkerThreads, log_failure, result_of
from holdfast.events import Listeners
from holdfast.workspace.service.config import CheckpointEvent

T = TypeVar("T")
HANDLER_TIMEOUT_S = 10.0
"""Timeout for async handlers: after it, the call returns without waiting for the handler."""
_log = logging.getLogger("holdfast")


class Done(NamedTuple, Generic[T]):
    """The result of some work, and its events."""

    result: T
    events: Sequence[tuple[CheckpointEvent, object]] = ()


class Dispatch:
    """One thread for changes, one for reads; and the event handlers."""

    def __init__(self) -> None:
        self.listeners: Listeners[Any] = Listeners()
        self._threads = ReadWriteThreads("holdfast-service", owner="service")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._askers: WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[Any]] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def change(self, work: Callable[[], Done[T]]) -> T:
        """Do work after all earlier changes, call the handlers, and return its result."""
        return await self._do(self._threads.changes, work)

    async def look(self, work: Callable[[], Done[T]]) -> T:
        """Do work that only reads, concurrently with changes."""
        return await self._do(self._threads.reads, work)

    def change_blocking(self, work: Callable[[], Done[T]]) -> T:
        """Do the same as `change` for synchronous callers, and wait in the caller's thread."""
        try:
            done = self._threads.changes.submit(work).result()
        except Exception as error:
            self._finish_somewhere(self._tell([(CheckpointEvent.ERROR, error)]))
            raise
        self._finish_somewhere(self._tell(done.events))
        return done.result

    async def close(self) -> None:
        """Accept no more work, wait for what has begun, and cancel handlers that do not end."""
        self._threads.close()
        waiting = self._waiting()
        if others := self._here(self._tasks) - waiting:
            await asyncio.wait(others)
        await self._threads.aclose()
        if handlers := self._here(self._handlers) - waiting:
            _, late = await asyncio.wait(handlers, timeout=HANDLER_TIMEOUT_S)
            for task in late:
                task.cancel()

    @staticmethod
    def _here(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        return {task for task in tasks if task.get_loop() is asyncio.get_running_loop()}

    def _waiting(self) -> set[asyncio.Task[Any]]:
        """Return this task and those that wait for it: a handler may close the service."""
        found, task = set(), asyncio.current_task()
        while task is not None:
            found.add(task)
            task = self._askers.get(task)
        return found

    # events

    async def _do(self, threads: WorkerThreads, work: Callable[[], Done[T]]) -> T:
        """Run work; a cancelled caller stops waiting, but the work and its events go on."""
        self._loop = asyncio.get_running_loop()
        task = self._keep(asyncio.ensure_future(self._through(threads, work)), self._tasks)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(log_failure)
            raise

    async def _through(self, threads: WorkerThreads, work: Callable[[], Done[T]]) -> T:
        future = threads.submit(work)
        try:
            done = await result_of(future)
        except Exception as error:
            await self._finish(self._tell([(CheckpointEvent.ERROR, error)]))
            raise
        except asyncio.CancelledError:  # the loop is ending: nothing else cancels this
            threading.Thread(target=self._tell_late, args=(future,), name="holdfast-service-late").start()
            raise
        await self._finish(self._tell(done.events))
        return done.result

    def _tell_late(self, future: Future[Done[Any]]) -> None:
        """Call the handlers for work whose loop has ended, from a new thread."""
        log_failure(future)
        error = future.exception()
        answers = self._tell(future.result().events if error is None else [(CheckpointEvent.ERROR, error)])
        if any(map(inspect.isawaitable, answers)):
            asyncio.run(self._finish(answers))

    def _tell(self, events: Sequence[tuple[CheckpointEvent, object]]) -> list[object]:
        return [answer for kind, event in events for answer in self.listeners.tell(kind, event)]

    def _finish_somewhere(self, answers: Sequence[object]) -> None:
        """Await async handlers in the loop of this thread, else in the service's, else in a new one."""
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
        """Await async handlers, one after the other, each up to the timeout."""
        for answer in answers:
            if inspect.isawaitable(answer):
                task = self._keep(asyncio.ensure_future(_logged(answer)), self._handlers)
                _, late = await asyncio.wait({task}, timeout=HANDLER_TIMEOUT_S)
                if late:
                    _log.warning(
                        "an async handler has not ended after %g seconds; going on without it", HANDLER_TIMEOUT_S
                    )

    def _keep(self, task: asyncio.Task[T], among: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
        """Keep a reference to a task: the loop itself does not prevent garbage collection."""
        among.add(task)
        task.add_done_callback(among.discard)
        if (asker := asyncio.current_task()) is not None:
            self._askers[task] = asker
        return task


async def _logged(answer: Awaitable[object]) -> None:
    """Await an async handler; log it if it fails or is cancelled."""
    try:
        await answer
    except Exception:
        _log.exception("an async handler failed")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        _log.error("an async handler was cancelled")
