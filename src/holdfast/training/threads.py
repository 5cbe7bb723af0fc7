"""Worker threads. The pools of the standard library refuse work while the process ends, when a background save must
still finish, so they cannot be used."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from holdfast.validation import check_limit

T = TypeVar("T")
R = TypeVar("R")

THREADS = 4


def check_threads(threads: object) -> int | None:
    """Return a number of threads; Refused unless it is a whole number, 1 or more, or None."""
    return check_limit(threads, "threads", least=1)


def each(function: Callable[[T], R], items: Sequence[T], *, threads: int | None = None) -> list[R]:
    """Call a function with each item, in a few threads, and return the results in order.

    The first error stops the work, and is raised when all threads have ended.
    """
    count = min(THREADS if threads is None else threads, len(items))
    if count <= 1:
        return [function(item) for item in items]
    work = _Work(function, items)
    helpers = [threading.Thread(target=work.run, name=f"holdfast-{at}") for at in range(count)]
    try:
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
    except BaseException as error:  # P3: after Ctrl-C no thread may go on writing
        work.error = error
        for helper in helpers:
            with contextlib.suppress(RuntimeError):  # it was not started
                helper.join()
        if isinstance(error, RuntimeError) and isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None  # CPython: Ctrl-C within Thread.start() may become a RuntimeError
        raise
    if work.error is not None:
        raise work.error
    return [work.results[at] for at in range(len(items))]


class _Work(Generic[T, R]):
    def __init__(self, function: Callable[[T], R], items: Sequence[T]) -> None:
        self._function = function
        self._pairs = iter(enumerate(items))
        self._lock = threading.Lock()
        self.results: dict[int, R] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        while self.error is None:
            with self._lock:
                pair = next(self._pairs, None)
            if pair is None:
                return
            try:
                self.results[pair[0]] = self._function(pair[1])
            except BaseException as error:  # `each` raises it
                self.error = error
