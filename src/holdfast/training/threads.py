"""Work for a few threads, done by threads of our own: the standard library's pools refuse work once a process ends,
which is when a save that goes on in the background must still be finished."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import Refused

T = TypeVar("T")
R = TypeVar("R")

THREADS = 4


def check_threads(threads: object) -> int | None:
    """Return a number of threads; Refused unless it is a whole number, 1 or more, or None."""
    if threads is None or (isinstance(threads, int) and not isinstance(threads, bool) and threads >= 1):
        return threads
    raise Refused(f"threads is {threads!r}", hint="Give a whole number, 1 or more, or None.")


def each(function: Callable[[T], R], items: Sequence[T], *, threads: int | None = None) -> list[R]:
    """Call a function with each item, in a few threads, and return the results in order.

    The first error ends the work and is raised, once all threads have stopped.
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
    except BaseException as error:  # Ctrl-C: nobody goes on with work that its owner has given up
        work.error = error
        for helper in helpers:
            with contextlib.suppress(RuntimeError):  # it has not begun, and will not
                helper.join()
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
            except BaseException as error:  # raised again by whoever waits
                self.error = error
