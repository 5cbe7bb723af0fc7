"""A progress bar for long work, on a terminal only, and only once the work has turned out to be long."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.cli import output, render
from holdfast.model import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

SHOWN_AFTER_SECONDS = 0.5


@contextmanager
def shown() -> Iterator[Progress | None]:
    """Give what a library call takes as `progress`; None where nobody is watching."""
    if not output.is_terminal(sys.stderr):
        yield None
        return
    late = _LateBar()
    try:
        yield late
    finally:
        late.close()


class _LateBar:
    """Draws nothing, and imports nothing, until the work has gone on for a while."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._bar: Bar | None = None
        self._stages: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._start < SHOWN_AFTER_SECONDS:
                return
            self._bar = _new_bar()
        if stage not in self._stages:
            self._stages[stage] = self._bar.add_task(render.escape(stage), total=total or None)
        self._bar.update(self._stages[stage], completed=done, total=total or None)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _new_bar() -> Bar:
    from rich.console import Console  # start-up cost, paid only for long work on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar
