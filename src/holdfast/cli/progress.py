"""A progress bar for long work, on a terminal only, and only once the work has turned out to be long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.cli import caller, render, streams
from holdfast.model import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

SHOWN_AFTER_SECONDS = 0.5
_IN_BYTES = ("reading", "writing")


@contextmanager
def shown() -> Iterator[Progress | None]:
    """Yield what a library call takes as `progress`; None without a terminal."""
    if not streams.is_terminal(sys.stderr):
        yield None
        return
    late = _LateBar()
    try:
        yield late
    finally:
        late.close()


class _LateBar:
    """Draws nothing, and imports nothing, until the work has gone on for a while; then also amid a long step."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._told: dict[str, tuple[int, int]] = {}
        self._bar: Bar | None = None
        self._closed = False
        self._stages: dict[str, TaskID] = {}
        self._lock = threading.RLock()
        self._timer = threading.Timer(SHOWN_AFTER_SECONDS, caller.in_thread(self._draw))
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            self._told[stage] = done, total
            if self._bar is not None or time.monotonic() - self._start >= SHOWN_AFTER_SECONDS:
                self._draw()

    def _draw(self) -> None:
        with self._lock:
            if not self._told or self._closed:
                return
            if self._bar is None:
                self._bar = _new_bar()
            for stage, (done, total) in self._told.items():
                if stage not in self._stages:
                    self._stages[stage] = self._bar.add_task(
                        render.escape(stage), total=total or None, in_bytes=stage.startswith(_IN_BYTES)
                    )
                self._bar.update(self._stages[stage], completed=done, total=total or None)
                if " " in stage and total and done >= total and stage.startswith(_IN_BYTES):  # one large file
                    self._bar.remove_task(self._stages.pop(stage))
            self._told.clear()

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()


def _new_bar() -> Bar:
    from rich.console import Console  # start-up cost, paid only for long work on a terminal
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Count(ProgressColumn):
        """How much is done: bytes, or pieces of work."""

        def render(self, task: Task) -> Text:
            shown = [
                "?" if each is None else render.size(int(each)) if task.fields["in_bytes"] else f"{int(each):,}"
                for each in (task.completed, task.total)
            ]
            return Text("/".join(shown))

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), Count(), TimeElapsedColumn())
    caller.show_now()
    bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar
