"""Calling synchronous code from asyncio: worker threads, waiting that may be cancelled, and async facades of classes.

The engine is synchronous; every async class of the library is a facade that runs it in the threads of this module.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.errors import Refused
from holdfast.validation import check_known, parameters_of

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
_log = logging.getLogger("holdfast")


class WorkerThreads:
    """Up to `count` threads, started when first needed; with one thread, calls run in the order of submission.

    A call that has started always runs to its end: cancelling the task that awaits it ends only the waiting, and a
    failure nobody waits for is logged (P4). A call still queued is then dropped if `drop_cancelled`, else run too.
    Calls see the contextvars of their caller. A forked child gets threads of its own. At exit the interpreter waits for
    what was submitted.
    """

    def __init__(self, count: int, name: str, *, owner: str, drop_cancelled: bool = False) -> None:
        """`name` is the prefix of the threads' names, `owner` what an error calls closed."""
        self._count, self._name, self._owner = count, name, owner
        self._drop_cancelled = drop_cancelled
        self._executor: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Queue a call. Refused once closed."""
        if self._pid != os.getpid():  # a forked child inherits no thread, and perhaps a lock that nobody will release
            self._executor, self._lock, self._pid = None, threading.Lock(), os.getpid()
        with self._lock:  # callers in several threads must share one executor
            if self._closed:
                raise Refused(f"the {self._owner} is closed", hint="Open it again.")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
            return self._executor.submit(contextvars.copy_context().run, work)

    async def call(self, work: Callable[[], R]) -> R:
        """Queue a call and await its result."""
        future = self.submit(work)
        try:
            return await result_of(future)
        except asyncio.CancelledError:
            if not (self._drop_cancelled and future.cancel()):
                future.add_done_callback(log_failure)
            raise

    def close(self, *, wait: bool = False) -> None:
        """Accept no more calls; those queued still run. With `wait`, return when the threads have ended."""
        self._closed = True
        if self._executor is not None and self._pid == os.getpid():
            self._executor.shutdown(wait=wait)

    async def aclose(self) -> None:
        """Accept no more calls, and await the end of the threads."""
        self.close()
        await in_thread(partial(self.close, wait=True))


async def in_thread(work: Callable[[], R]) -> R:
    """Call in a thread of the running loop, for what needs no order and no thread of its own.

    As with `WorkerThreads`, the call sees the contextvars of its caller and runs to its end: cancelling ends only the
    waiting, and a failure nobody waits for is logged (P4).
    """
    future: Future[R] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, run)
    try:
        return await result_of(future)
    except asyncio.CancelledError:
        future.add_done_callback(log_failure)
        raise


async def result_of(future: Future[R]) -> R:
    """Await a future of another thread. Cancelling ends the waiting and leaves the future alone."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():  # else the waiting was cancelled
            done.set_result(None)

    def wake(_: Future[R]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            loop.call_soon_threadsafe(finish)

    future.add_done_callback(wake)
    await done
    return future.result()


async def wait_to_the_end(work: Awaitable[R]) -> R:
    """Await work until it has ended, however often the waiting is cancelled; then raise the cancellation.

    For work that must not go on behind the back of the next step.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


def log_failure(future: Future[Any] | asyncio.Future[Any]) -> None:
    """Log the error of work that nobody waits for any more (P4). To be used as a done callback."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("a call that nobody waits for failed: %s", error)


class ReadWriteThreads:
    """One thread for changes, in the order asked for, and one for reads, which need not wait for changes."""

    def __init__(self, name: str, *, owner: str, drop_cancelled: bool = False) -> None:
        self.changes = WorkerThreads(1, name, owner=owner, drop_cancelled=drop_cancelled)
        self.reads = WorkerThreads(1, f"{name}-read", owner=owner, drop_cancelled=drop_cancelled)

    async def call(self, work: Callable[[], R], *, reads: bool) -> R:
        return await (self.reads if reads else self.changes).call(work)

    def close(self) -> None:
        """Accept no more calls; those queued still run."""
        self.changes.close()
        self.reads.close()

    async def aclose(self) -> None:
        """Accept no more calls, and await the end of the threads."""
        self.close()
        await asyncio.gather(self.changes.aclose(), self.reads.aclose())


class AsyncFacade(Protocol[S_co]):
    """A class with awaited methods of a synchronous class `S_co`; see `awaited`."""

    async def _call(
        self, method: Callable[Concatenate[S_co, ...], R], args: tuple[Any, ...], kwargs: dict[str, Any], *, reads: bool
    ) -> R:
        """Call a method of the synchronous object in a thread."""
        ...


def awaited(
    method: Callable[Concatenate[S, P], R], *, reads: bool = False
) -> Callable[Concatenate[AsyncFacade[S], P], Coroutine[Any, Any, R]]:
    """Make the async method of a facade from one of the synchronous class, with its signature and docstring.

    `reads` says that it changes nothing.
    """

    @wraps(method)
    async def call(self: AsyncFacade[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._call(method, args, kwargs, reads=reads)

    return call


def constructed_like(
    synchronous: Callable[P, S],
) -> Callable[[Callable[[F, S], None]], Callable[Concatenate[F, P], None]]:
    """Give the `__init__` of a facade, which takes the synchronous object, the parameters that make such an object."""

    def decorate(init: Callable[[F, S], None]) -> Callable[Concatenate[F, P], None]:
        @wraps(synchronous.__init__)
        def make(self: F, /, *args: P.args, **kwargs: P.kwargs) -> None:
            check_known(kwargs, parameters_of(synchronous.__init__), type(self).__name__)
            init(self, synchronous(*args, **kwargs))

        return make

    return decorate
