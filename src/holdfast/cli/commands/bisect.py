"""`holdfast bisect`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli import render, run_command, streams
from holdfast.cli.command import AFTER_DASHES, command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.model import Bisected, Checkpoint, documents
from holdfast.model.documents import short
from holdfast.workspace.location import message

_SKIP = 125


@command(after_dashes="-- COMMAND...")
@click.argument("good")
@click.argument("bad", default="latest")
@pass_app
@click.pass_context
def bisect(ctx: click.Context, app: App, *, good: str, bad: str) -> int:
    """Find the first checkpoint at which a command fails.

    GOOD is a checkpoint at which it succeeds, BAD a later one at which it fails. The command comes after --, and is
    run in a scratch folder with the files of one checkpoint after the other; the folder itself is not touched. It
    exits with 0 for good, 125 for a checkpoint that cannot be tested, anything else for bad.

    \b
    holdfast bisect b3 latest -- pytest -q tests/test_login.py
    """
    words = ctx.meta.get(AFTER_DASHES, ())
    if not words:
        raise click.UsageError("no command is named; it comes after --")

    def test(folder: Path, checkpoint: Checkpoint) -> bool | None:
        ended = run_command.run(words, folder=folder, environ={"HOLDFAST_CHECKPOINT": checkpoint.id}, aside=True)
        if ended.interrupted:
            raise KeyboardInterrupt
        return None if ended.status == _SKIP else ended.status == 0

    def tell(checkpoint: Checkpoint, verdict: str, left: int) -> None:
        rest = f"  (at most {left} more)" if left else ""
        streams.note(f"{short(checkpoint.id)}  {verdict}{rest}  {render.first_line(message(checkpoint))}".rstrip())

    found = app.open().bisect(good, bad, test, tell=tell)
    if app.json:
        app.document(documents.bisected(found))
    else:
        _print(found)
    return Exit.DONE if found.first_bad else Exit.INCOMPLETE


def _print(found: Bisected) -> None:
    if found.first_bad is None:
        some = ", ".join(short(each.id) for each in found.unsure)
        streams.answer(f"The first bad one is among those that could not be tested: {some}")
        return
    first = found.first_bad
    streams.answer(
        f"{render.paint(short(first.id), 'cyan')} is the first bad one: {render.first_line(message(first))}".rstrip(
            ": "
        )
    )
    streams.note(f"See what it changed with: {typed('diff', short(found.last_good.id), short(first.id))}")
