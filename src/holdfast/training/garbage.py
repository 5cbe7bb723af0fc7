"""Python's search for garbage in cycles, paused while many objects are made that are none."""

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
    """Keep the collector from looking through everything again and again while a large state is taken apart.

    A state of 20,000 tensors makes a few hundred thousand objects, which it would search several times over: more than
    half of the time. It is on again afterwards if it was before; what is garbage then is found then.
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


def _begin_anew() -> None:
    """In a child process: whoever paused it is not here to end that."""
    global _lock, _paused
    _lock = threading.Lock()
    if _paused and _was_on:
        gc.enable()
    _paused = 0


os.register_at_fork(after_in_child=_begin_anew)
