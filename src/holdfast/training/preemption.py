"""SIGTERM, which a scheduler sends before it takes the machine away."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any


class Preemption:
    """Records SIGTERM, so that the loop can save at its next opportunity."""

    def __init__(self) -> None:
        self.is_received = False
        self._is_reported = False
        self._before: Any = None
        self._listens = False
        self._owner = 0

    def listen(self) -> None:
        """Install the signal handler. Only the main thread can; in other threads this does nothing."""
        if threading.current_thread() is threading.main_thread() and not self._listens:
            self._owner = os.getpid()
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._listens = True

    def unlisten(self) -> None:
        """Restore the previous handler."""
        if self._listens:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
            self._listens = False

    def tell(self) -> bool:
        """Return whether it was received. If it was, the caller now has to act on it."""
        self._is_reported = self._is_reported or self.is_received
        return self.is_received

    def leave(self, *, is_over: bool) -> None:
        """Restore the previous handler. If the loop is over, raise a signal that nobody was told about again."""
        self.unlisten()  # first: a signal from now on goes to the previous handler
        if is_over and not self._is_reported:
            self.end()

    def end(self) -> None:
        """Raise the signal again for the previous handler, after the save."""
        if self.is_received:
            self.is_received = False
            self.unlisten()
            os.kill(os.getpid(), signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # A second signal means: do not wait. A forked child has no loop that would act on it.
        if self.is_received or os.getpid() != self._owner:
            self.unlisten()
            os.kill(os.getpid(), signal.SIGTERM)
        self.is_received = True
