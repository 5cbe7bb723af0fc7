"""`holdfast watch`."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams
from holdfast.cli.command import Number, command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.remedies import notice_lines, sentence
from holdfast.cli.start import start_helper
from holdfast.errors import HoldfastError
from holdfast.model import documents
from holdfast.model.checkpoint import TYPE
from holdfast.model.documents import short
from holdfast.workspace.upkeep.type_policies import WATCH

if TYPE_CHECKING:
    from holdfast.model import Checkpoint
    from holdfast.workspace import Workspace

_MOST_SECONDS = 30 * 86400.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Seconds(Number):
    """A time that a clock can wait for."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number.", param, ctx)
        return seconds


@command()
@click.option(
    "--quiet",
    type=_Seconds(min=0.0, max=_MOST_SECONDS),
    default=2.0,
    metavar="SECONDS",
    show_default=True,
    help="Save once nothing has changed for this long.",
)
@click.option(
    "--every",
    type=_Seconds(min=0.1, max=_MOST_SECONDS),
    default=60.0,
    metavar="SECONDS",
    show_default=True,
    help="Save at the latest this long after a change.",
)
@click.option("-m", "--message", metavar="MESSAGE", default="watch", show_default=True, help="The message of each.")
@click.option("--session", metavar="ID", help="The session that they belong to.")
@click.option("--actor", metavar="NAME", help="Who saves them.")
@pass_app
def watch(app: App, *, quiet: float, every: float, message: str, session: str | None, actor: str | None) -> None:
    """Save a checkpoint whenever the folder has changed.

    Runs until Ctrl-C or SIGTERM, and prints a line for each checkpoint; a last one is saved if something changed since.
    With --json it prints one document at the end.

    \b
    holdfast watch
    holdfast watch --quiet 10 --session night
    """
    saves = _Saves(app, app.open(create=True), message, session, actor)
    start_helper()  # while somebody watches, other commands are quick
    watching = saves.workspace.watch()
    with _Stop() as stop, watching:
        streams.note(render.escape(f"Watching {saves.workspace.path}; Ctrl-C ends it."))
        saves.save()
        if watching.doubt:
            streams.note(render.escape(f"It saves every {every:g} seconds: {watching.doubt}."))
        with contextlib.suppress(_Stopped):
            while True:
                with stop.may_end():
                    if not watching.wait(every):
                        continue
                    watching.settle(quiet, every)
                saves.save()
        if watching.wait(0.0):
            saves.save()
    if app.json:
        app.items(map(documents.checkpoint, saves.made))


class _Saves:
    """Saves, and tells of what was saved and of what could not be."""

    def __init__(self, app: App, workspace: Workspace, message: str, session: str | None, actor: str | None) -> None:
        self.workspace = workspace
        self.made: list[Checkpoint] = []
        self._app = app
        self._actor = actor
        self._save = partial(workspace.save, message, session=session)
        self._problem = ""

    def save(self) -> None:
        """Save if something changed. A failure is printed once and tried again; a deleted folder ends it."""
        try:
            whose, metadata = self.workspace.first_saves.attribute(self._actor)  # not what was there before it watched
            saved = self._save(actor=whose, metadata={TYPE: "automatic", WATCH: True, **metadata})
        except HoldfastError as error:
            if not self.workspace.path.is_dir() or not self.workspace.store.is_dir():
                raise
            if error.message != self._problem:
                streams.note(render.escape(f"Not saved: {sentence(error)}"))
            self._problem = error.message
            time.sleep(0.2)
            return
        self.workspace.first_saves.note(self._actor)
        self._problem = ""
        if not saved.is_new:
            return
        self.made.append(saved)
        if not self._app.json:
            files = render.count(self.workspace.changed_count(saved), "file")
            streams.answer(f"{render.paint(short(saved.id), 'cyan')}  {files} {'changed' if saved.parent else 'saved'}")
            streams.flush()
        if not saved.complete:
            failures = sum(entry.reason.is_failure for entry in saved.uncovered)
            streams.note(f"{render.count(failures, 'path')} could not be saved: {typed('show', short(saved.id))}")
        streams.notes(map(render.escape, notice_lines(self.workspace.after_save())))


class _Stopped(Exception):
    """Somebody asked for the end."""


class _Stop:
    """Turns Ctrl-C and SIGTERM into an end between two saves; asked a second time, into an end at once."""

    def __init__(self) -> None:
        self._asked = self._may_end = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> _Stop:
        self._before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` gave

    @contextlib.contextmanager
    def may_end(self) -> Iterator[None]:
        """Where the end may come at once."""
        self._may_end = True
        try:
            if self._asked:
                raise _Stopped
            yield
        finally:
            self._may_end = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        if self._may_end:
            self._may_end = False
            raise _Stopped
