"""Saves in the background, one at a time. The next call raises the error of the last one."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from holdfast.training.staging_buffers import StagingBuffer

_log = logging.getLogger("holdfast")


class BackgroundSaver:
    """Runs at most one save in the background, and owns the one copy of a state that this needs."""

    def __init__(self) -> None:
        self.buffer = StagingBuffer()
        self.turn = threading.RLock()
        """Held to wait for the previous save, copy the state and start the next one: one thread at a time."""
        self._thread: threading.Thread | None = None
        self._claim: dict[str, str] = {}
        """Who decides about a save that was interrupted while its thread started: the thread, or a waiter."""
        self._result: dict[str, Any] | None = None
        self._error: BaseException | None = None
        atexit.register(self._log_at_exit)
        os.register_at_fork(after_in_child=self._reset)  # a child has neither the thread nor the save

    def start(self, work: Callable[[], dict[str, Any]]) -> None:
        """Start a save. The caller holds `turn`, and has waited for the previous one."""
        claim: dict[str, str] = {}

        def run() -> None:
            if claim.setdefault("by", "thread") != "thread":
                return  # Ctrl-C arrived while the thread started, and the save was given up
            try:
                self._result = work()
            except BaseException as error:  # `wait` raises it
                self._error = error

        self._result, self._error, self._claim = None, None, claim
        # Not a daemon: a process that ends waits for the save
        self._thread = threading.Thread(target=run, name="holdfast-save")
        self._thread.start()
        claim.setdefault("by", "thread")

    def wait(self) -> dict[str, Any] | None:
        """Wait for the running save. Return its summary once, or raise its error once."""
        with self.turn:
            # After an interrupt within start() the thread may be starting, or never start, and join() cannot tell.
            # The thread that sets "by" first decides: a save whose caller got no answer is not started any more.
            if self._thread is not None and self._claim.setdefault("by", "waiter") == "thread":
                self._thread.join()
            result, error = self._result, self._error
            self._forget()
        if error is not None:
            raise error
        return result

    def _forget(self) -> None:
        self._thread, self._result, self._error = None, None, None

    def _reset(self) -> None:
        self.turn = threading.RLock()  # a thread that the child does not have may hold it
        self._forget()

    def _log_at_exit(self) -> None:
        if self._error is not None:
            _log.error("the last save in the background failed, and nobody waited for it: %s", self._error)


saver = BackgroundSaver()


def wait_for_save() -> dict[str, Any] | None:
    """Wait for the save that `block=False` started. Return its summary; None if there is none.

    Raises the error of that save.
    """
    return saver.wait()
