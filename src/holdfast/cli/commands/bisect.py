"""`holdfast bisect`."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.cli import render, run_command, streams
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.model import Bisected, Checkpoint, documents
from holdfast.model.documents import short
from holdfast.workspace.dependencies import editable_paths, led_to, python_environments
from holdfast.workspace.location import message

_SKIP = 125


@command(after_dashes="-- COMMAND...")
@click.argument("good")
@click.argument("bad", default="latest")
@click.option(
    "--in-place", is_flag=True, help="Run in the workspace itself, which is saved first and restored afterwards."
)
@pass_app
@click.pass_context
def bisect(ctx: click.Context, app: App, *, good: str, bad: str, in_place: bool) -> int:
    """Find the first checkpoint at which a command fails.

    GOOD is a checkpoint at which it succeeds, BAD a later one at which it fails. COMMAND comes after --. It runs in
    a scratch folder, with the files of one checkpoint after the other; your folder is not changed. As with git
    bisect run, exit code 0 means good, 125 means that the checkpoint cannot be tested, any other means bad.

    Installed dependencies (node_modules, .venv), which checkpoints do not contain, are linked into the scratch
    folder: a command that writes there changes the real ones. --in-place runs it in the workspace instead.

    \b
    holdfast bisect a3 latest -- pytest -q tests/test_login.py
    holdfast bisect a3 --in-place -- make test
    """
    words = ctx.meta.get(AFTER_DASHES, ())
    if not words:
        raise click.UsageError("no command is given; put it after --")

    workspace = app.open()
    editable = (
        [] if in_place else editable_paths(python_environments(workspace.path, words[0], os.environ), workspace.path)
    )
    if not in_place:
        _warn(workspace.path, words, editable)

    def test(folder: Path, checkpoint: Checkpoint) -> bool | None:
        environ = {} if in_place else led_to(folder, workspace.path, os.environ, editable)
        environ["HOLDFAST_CHECKPOINT"] = checkpoint.id
        ended = run_command.run(words, folder=folder, environ=environ, aside=True)
        if ended.interrupted:
            signal.raise_signal(signal.SIGINT)
        return None if ended.status == _SKIP else ended.status == 0

    with _interrupted_once() if in_place else contextlib.nullcontext():
        found = workspace.bisect(good, bad, test, tell=_tell, in_place=in_place, begun=_tell_begun)
    if app.json:
        app.document(documents.bisected(found))
    else:
        _print(found)
    if found.changed:
        render.note_list(found.changed, "The command changed these, which are linked to the workspace's own")
    render.note_list(found.stale_outputs, "Newer than the files of the folder, perhaps built from others: build again")
    return Exit.DONE if found.first_bad else Exit.INCOMPLETE


def _tell(checkpoint: Checkpoint, verdict: str, left: int) -> None:
    rest = f"  (at most {left} more)" if left else ""
    streams.note(f"{short(checkpoint.id)}  {verdict:<4}{rest}  {render.first_line(message(checkpoint))}".rstrip())


def _tell_begun(saved: Checkpoint) -> None:
    again = typed("restore", short(saved.id))
    streams.note(f"The folder is saved as {short(saved.id)} and restored at the end. If this is killed: {again}")


@contextlib.contextmanager
def _interrupted_once() -> Iterator[None]:
    """For its time SIGTERM and a closed terminal are answered as Ctrl-C is: the folder is brought back. A second one of
    these does not interrupt that."""
    seen = []

    def end(number: int, _: Any) -> None:
        seen.append(number)
        if len(seen) == 1:
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {each: signal.signal(each, end) for each in numbers if signal.getsignal(each) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _warn(folder: Path, words: Sequence[str], editable: Sequence[str]) -> None:
    """Say what leads from the scratch folder back to the workspace, which would be tested at every step."""
    if editable:
        some = ", ".join(render.escape(each) for each in editable)
        streams.note(f"Installed in editable mode from this folder; PYTHONPATH is set to the scratch folder's {some}")
    inner = [word for word in words[1:] if word.startswith(f"{folder}{os.sep}")]
    if inner:
        streams.note(f"The command names the workspace itself, not the scratch folder: {run_command.shown(inner)}")


def _print(found: Bisected) -> None:
    if found.first_bad is None:
        some = ", ".join(short(each.id) for each in found.unsure)
        streams.answer(f"The first bad checkpoint is among those that could not be tested: {some}")
        return
    first = found.first_bad
    said = f"{render.paint(short(first.id), 'cyan')} is the first bad checkpoint: {render.first_line(message(first))}"
    streams.answer(said.rstrip(": "))
    streams.note(f"Show what it changed: {typed('diff', short(found.last_good.id), short(first.id))}")
