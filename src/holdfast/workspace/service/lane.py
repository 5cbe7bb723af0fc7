"""A lane: one worker thread in which calls are made one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
import os
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
        self._pid = 0
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hand in work. Refused once the lane is closed."""
        if self._closed:
            raise Refused("the service is closed", hint="Make another one.")
        if self._executor is None or self._pid != os.getpid():  # a thread does not live on in a forked child
            self._executor, self._pid = ThreadPoolExecutor(1, thread_name_prefix=self._name), os.getpid()
        return self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        """Hand in work and wait for it without holding up the event loop. Cancelling ends the waiting, not the work."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def tell(future: Future[T]) -> None:
            try:
                loop.call_soon_threadsafe(_answer, future, answer)
            except RuntimeError:
                pass  # the loop has ended meanwhile; the work is done all the same

        self.submit(work).add_done_callback(tell)
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
