"""A pause of the garbage collector while many objects are created that are no garbage."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_paused = 0
_was_on = False


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Disable the collector while a large state is taken apart or rebuilt.

    A state of 20,000 tensors creates some hundred thousand objects, which the collector would traverse several times:
    more than half of the time. Afterwards it is enabled again if it was before, and finds what is garbage by then.
    """
    global _paused, _was_on
    with _lock:
        if not _paused:
            _was_on = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused and _was_on:
                gc.enable()


def _reset_in_child() -> None:
    """End the pause in a forked child, which does not have the thread that would end it."""
    global _lock, _paused
    _lock = threading.Lock()
    if _paused and _was_on:
        gc.enable()
    _paused = 0


os.register_at_fork(after_in_child=_reset_in_child)
