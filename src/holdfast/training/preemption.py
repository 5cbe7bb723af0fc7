"""SIGTERM, as a scheduler sends it before it takes the machine away."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any


class Preemption:
    """Notes that SIGTERM has come, so that the loop can save at a place of its own choosing."""

    def __init__(self) -> None:
        self.has_come = False
        self._is_told = False
        self._before: Any = None
        self._listens = False
        self._owner = 0

    def listen(self) -> None:
        """Take the signal. Only the main thread can; elsewhere nothing changes."""
        if threading.current_thread() is threading.main_thread() and not self._listens:
            self._owner = os.getpid()
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._listens = True

    def unlisten(self) -> None:
        """Let the signal do again what it did before."""
        if self._listens:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
            self._listens = False

    def tell(self) -> bool:
        """Whether it has come; from then on it is the caller's to act on."""
        self._is_told = self._is_told or self.has_come
        return self.has_come

    def leave(self, *, is_over: bool) -> None:
        """Listen no longer. A signal that nobody was told of does now what it would have done, if the loop is over."""
        self.unlisten()  # first: what comes from here on does what it would have done
        if is_over and not self._is_told:
            self.end()

    def end(self) -> None:
        """What was to be saved is saved: let the signal do now what it would have done."""
        if self.has_come:
            self.has_come = False
            self.unlisten()
            os.kill(os.getpid(), signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Whoever sends it twice does not want to wait; a child that was forked has no loop, and nobody would end it
        if self.has_come or os.getpid() != self._owner:
            self.unlisten()
            os.kill(os.getpid(), signal.SIGTERM)
        self.has_come = True
