"""One writer at a time: a lock that the kernel frees when its owner dies (P9)."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from holdfast.durable import platform
from holdfast.durable.disk import open_to_owner
from holdfast.errors import Unavailable

_POLL_S = 0.01
_TOLD_AFTER_S = 1.0
_held: weakref.WeakSet[Lock] = weakref.WeakSet()
_listeners: list[Callable[[str], None]] = []


def on_wait(listener: Callable[[str], None]) -> None:
    """Have a function called when a lock has been waited for for a second, with who has it. Once is enough."""
    if listener not in _listeners:
        _listeners.append(listener)


class Lock:
    """An exclusive lock on a file that stays empty. Also excludes other threads; a thread must not take it twice.

    It belongs to the open file, so the kernel frees it with its process, however that ends; a forked child closes
    its copy, so that it cannot keep the lock alive.
    """

    def __init__(self, path: Path, *, timeout_s: float = 600.0) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._fd = -1
        self._since = 0.0

    def acquire(self, *, wait: bool = True) -> bool:
        """Take the lock; without `wait`, return at once whether it was free. Unavailable after the timeout."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | platform.O_CLOEXEC, 0o600)
        try:
            open_to_owner(fd, 0o600)
            is_ours = self._take(fd, wait=wait)
        except BaseException:  # also Ctrl-C while it waits
            os.close(fd)
            raise
        if not is_ours:
            os.close(fd)
            return False
        self._fd, self._since = fd, time.monotonic()
        _held.add(self)
        return True

    def held_s(self) -> float:
        """Return for how many seconds the lock has been held, if it is."""
        return time.monotonic() - self._since

    def _take(self, fd: int, *, wait: bool) -> bool:
        begun, is_told = time.monotonic(), False
        give_up = begun + (self._timeout_s if wait else 0.0)
        while True:
            if platform.lock_file(fd):
                return True
            if time.monotonic() >= give_up:
                break
            if not is_told and time.monotonic() >= begun + _TOLD_AFTER_S:
                is_told = True
                for listener in _listeners:
                    listener(f"another process{_owner(fd)}")
            time.sleep(_POLL_S)
        if not wait:
            return False
        raise Unavailable(
            f"another process{_owner(fd)} has been writing to this store for {self._timeout_s:.0f} seconds",
            hint="Wait for it to end, or end it; its lock is freed at once.",
        )

    def release(self) -> None:
        """Free the lock."""
        fd = self._part()  # first: once the kernel has freed the lock, another thread may set these fields
        if fd >= 0:
            platform.unlock_file(fd)  # explicitly: a child forked meanwhile has a copy of `fd`, which keeps the lock
            os.close(fd)

    def forget(self) -> None:
        """Close this copy of the file; a process with another copy keeps the lock."""
        fd = self._part()
        if fd >= 0:
            os.close(fd)

    def _part(self) -> int:
        """Return the open file, if any, and drop it from this object."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        return fd

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def _owner(fd: int) -> str:
    """Name the process that has the lock, if the system shows it."""
    from holdfast.durable.platform.processes import lock_owner  # start-up cost: only for who waits long

    owner = lock_owner(fd)
    return f" ({owner})" if owner else ""


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.forget()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_in_child)
