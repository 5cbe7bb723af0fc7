"""`holdfast fork`."""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.model.documents import short


@command()
@click.argument("ref")
@click.argument("directory", metavar="DIR")
@click.option("--fork-store", metavar="PATH", help="The folder of the fork's store. [default: chosen for it]")
@pass_app
def fork(app: App, *, ref: str, directory: str, fork_store: str | None) -> int:
    """Continue from a checkpoint in another folder.

    DIR is new or empty, and outside the workspace. It gets the files and the state of the checkpoint, and a store of
    its own that knows where it came from. Several can be worked on side by side; `holdfast adopt` brings one back.

    \b
    holdfast fork latest ../attempt-1
    holdfast fork latest ../attempt-2
    """
    done = app.project().fork(ref, directory, store=fork_store)
    if app.json:
        app.document({"forked": asdict(done) | {"checkpoint": done.checkpoint.to_dict(), "ok": done.ok}})
    else:
        written = render.count(len(done.written), "path")
        streams.answer(f"Forked {short(done.source)} to {render.escape(done.directory)}: {written}")
        render.note_list(done.failed, "could not be written", noun="path")
        render.note_list(done.missing, "not in the checkpoint", noun="path")
        streams.note(f"Bring it back with: {typed('adopt', directory)}")
    return Exit.DONE if done.ok else Exit.INCOMPLETE
