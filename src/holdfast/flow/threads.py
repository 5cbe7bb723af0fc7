"""The threads in which awaited calls run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import Refused

T = TypeVar("T")


class Threads:
    """So many calls at once. A call whose awaiting is cancelled still ends by itself: done or failed, never torn."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)

    async def call(self, verb: Callable[[], T]) -> T:
        """What a verb returns, without holding the event loop up. Refused once this is shut down."""
        if self._pid != os.getpid():
            self._begin()  # a forked child has the pool, but none of its threads
        try:
            waiting = asyncio.get_running_loop().run_in_executor(self._pool, verb)
        except RuntimeError:
            if not self._closed:
                raise
            raise Refused("this store was closed", hint="Open it again.") from None
        return await waiting

    def shutdown(self) -> None:
        """Wait for what is under way, and take nothing more."""
        self._closed = True
        self._pool.shutdown(wait=self._pid == os.getpid())
