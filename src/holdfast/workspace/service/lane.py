"""A lane: one worker thread in which calls are made one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from holdfast.errors import Refused

T = TypeVar("T")


class Lane:
    """One thread, made when it is first needed. What was handed in is done, whoever stops waiting for it.

    A forked child gets a thread of its own. An interpreter that ends waits for what was handed in.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.Lock()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hand in work. Refused once the lane is closed."""
        if self._pid != os.getpid():  # a thread does not live on in a forked child, and a lock may never be freed
            self._executor, self._guard, self._pid = None, threading.Lock(), os.getpid()
        with self._guard:  # several threads may come at once, and there is to be one worker
            if self._closed:
                raise Refused("the service is closed", hint="Make another one.")
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._name)
            return self._executor.submit(work)

    async def answer(self, future: Future[T]) -> T:
        """Wait for work without holding up the event loop. Cancelling ends the waiting, not the work."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def tell(future: Future[T]) -> None:
            try:
                loop.call_soon_threadsafe(_answer, future, answer)
            except RuntimeError:
                pass  # the loop has ended meanwhile; the work is done all the same

        future.add_done_callback(tell)
        return await answer

    def close(self) -> None:
        """Take nothing more. What was handed in is still done."""
        self._closed = True
        if self._executor is not None and self._pid == os.getpid():
            self._executor.shutdown(wait=False)

    async def ended(self) -> None:
        """Wait until all that was handed in is done, and the thread has ended."""
        if self._executor is not None and self._pid == os.getpid():
            await asyncio.to_thread(self._executor.shutdown)


def _answer(future: Future[Any], answer: asyncio.Future[Any]) -> None:
    if answer.done():
        return  # nobody waits any more
    error = future.exception()
    if error is None:
        answer.set_result(future.result())
    else:
        answer.set_exception(error)
