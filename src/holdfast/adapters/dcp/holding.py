"""The lock of a folder, held by the coordinator from the beginning of a save to its end.

Nobody tells a writer that another rank has failed. So a lock is also let go when the next save of the same thread
begins, when the thread that took it has ended, and when its writer is gone.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import Unavailable
from holdfast.training.folder import TrainingFolder

WAIT_S = 600.0


@dataclass(frozen=True, slots=True, eq=False)
class _Hold:
    stack: contextlib.ExitStack
    thread: threading.Thread


_holds: dict[Path, _Hold] = {}
"""By folder; not in the writer, which may be pickled for another process."""


def take(folder: TrainingFolder, writer: object) -> None:
    """Take the lock of a folder for a writer. A save that is in flight in another thread is waited for."""
    _settle(folder.path)
    stack = contextlib.ExitStack()
    stack.enter_context(folder.writing())
    hold = _holds[folder.path] = _Hold(stack, threading.current_thread())
    weakref.finalize(writer, _drop, folder.path, hold)


def let_go(path: Path) -> None:
    """Give the lock back, if this thread has it."""
    hold = _holds.get(path)
    if hold is not None and hold.thread is threading.current_thread():
        _drop(path, hold)


def _settle(path: Path) -> None:
    hold = _holds.get(path)
    if hold is None:
        return
    if hold.thread is not threading.current_thread():
        hold.thread.join(WAIT_S)
        if hold.thread.is_alive() and _holds.get(path) is hold:
            raise Unavailable(f"another save to {path} is in flight", hint="Wait for its future before you save again.")
    _drop(path, hold)


def _drop(path: Path, hold: _Hold) -> None:
    if _holds.get(path) is hold:
        del _holds[path]
    hold.stack.close()
