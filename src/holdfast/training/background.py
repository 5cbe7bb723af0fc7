"""One save at a time, beside the training loop: its error is told by the next call, and its end is waited for."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast.training.staging import Arena

_log = logging.getLogger("holdfast")


class Lane:
    """Where saves go on in the background; at most one, and with it one copy of a state."""

    def __init__(self) -> None:
        self.arena = Arena()
        self.turn = threading.RLock()
        """Held by who waits for the one before, copies and begins: of several threads, one after the other."""
        self._thread: threading.Thread | None = None
        self._fate: dict[str, str] = {}
        """Who came first to a save that was interrupted as its thread began: the thread, or who waits for it."""
        self._result: dict[str, Any] | None = None
        self._error: BaseException | None = None
        atexit.register(self._tell_at_exit)
        os.register_at_fork(after_in_child=self._begin_anew)  # the thread is not in the child, nor is the save its own

    def start(self, work: Callable[[], dict[str, Any]]) -> None:
        """Begin a save. It is the caller's turn, and the one before has been waited for."""
        fate: dict[str, str] = {}

        def run() -> None:
            if fate.setdefault("taken by", "thread") != "thread":
                return  # Ctrl-C came as it began, and it was given up
            try:
                self._result = work()
            except BaseException as error:  # told by whoever waits
                self._error = error

        self._result, self._error, self._fate = None, None, fate
        # Not a daemon: a process that ends waits for it
        self._thread = threading.Thread(target=run, name="holdfast-save")
        self._thread.start()
        fate.setdefault("taken by", "thread")  # if not by now, it will be

    def wait(self) -> dict[str, Any] | None:
        """Wait for the save in flight; returns what it says of itself, once. Raises its error, once."""
        with self.turn:
            # Interrupted within start() a thread may be on its way, or never come, and join() cannot tell: whoever is
            # first decides, and a save that its caller never heard of is not begun any more.
            if self._thread is not None and self._fate.setdefault("taken by", "waiter") == "thread":
                self._thread.join()
            result, error = self._result, self._error
            self._forget()
        if error is not None:
            raise error
        return result

    def _forget(self) -> None:
        self._thread, self._result, self._error = None, None, None

    def _begin_anew(self) -> None:
        self.turn = threading.RLock()  # a thread that is not in the child may have had it
        self._forget()

    def _tell_at_exit(self) -> None:
        if self._error is not None:
            _log.error("the last save in the background failed, and nobody asked: %s", self._error)


lane = Lane()


def wait_for_save() -> dict[str, Any] | None:
    """Wait for the save that `block=False` began, and return what it says of itself; None if there is none.

    Raises the error of that save.
    """
    return lane.wait()
