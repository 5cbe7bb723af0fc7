"""Writes that wait a moment for a commit to go along with: a transaction costs a sync, however much is in it.

Whoever waits returns when the transaction that took its writes is on disk, or else commits them itself; nothing is
promised before it is so.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable

from holdfast.errors import HoldfastError

Apply = Callable[[sqlite3.Connection], None]
"""Adds the writes in a transaction; raises what its caller is told, and then has changed nothing."""
_MOST_SECONDS = 30.0


class Waiting:
    """Writes of one call."""

    __slots__ = ("apply", "error", "is_done", "settled")

    def __init__(self, apply: Apply) -> None:
        self.apply = apply
        self.error: HoldfastError | None = None
        self.is_done = False
        self.settled = threading.Lock()
        self.settled.acquire()


class Shared:
    """Those that are in one transaction."""

    def __init__(self, members: list[Waiting]) -> None:
        self._members = members

    def apply(self, db: sqlite3.Connection) -> None:
        """Add the writes of all; one that is refused does not harm the others."""
        for each in self._members:
            try:
                each.apply(db)
            except HoldfastError as error:
                each.error = error

    def settle(self, *, is_done: bool) -> None:
        """Tell them all: their writes are on disk, or were not written and they must see to it themselves."""
        for each in self._members:
            each.is_done = is_done
            each.settled.release()


class Sharing:
    """Who waits, of the threads of one process."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def take(self) -> Shared:
        """Those that wait now; the caller settles them, whatever happens."""
        taken = []
        while self._waiting:
            try:
                taken.append(self._waiting.popleft())
            except IndexError:  # another thread was quicker
                break
        return Shared(taken)

    def offer(self, apply: Apply, seconds: float) -> bool:
        """Wait for a commit to go along with; False if none came, and the caller must commit by itself.

        Only one waits: who comes second does not, and takes the first along.
        """
        if self._waiting:
            return False
        mine = Waiting(apply)
        self._waiting.append(mine)
        if not mine.settled.acquire(timeout=seconds):
            try:
                self._waiting.remove(mine)
                return False
            except ValueError:  # just taken; to add the same once more would change nothing, and none waits for ever
                mine.settled.acquire(timeout=_MOST_SECONDS)
        if mine.is_done and mine.error is not None:
            raise mine.error
        return mine.is_done
