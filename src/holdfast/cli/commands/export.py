"""`holdfast export`."""

from __future__ import annotations

import click

from holdfast.cli import progress, render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.model import documents
from holdfast.model.documents import short


@command()
@click.argument("ref")
@click.argument("directory", metavar="DIR")
@click.argument("paths", nargs=-1)
@click.option("--skip-damaged", is_flag=True, help="If stored data is damaged, write what is intact.")
@pass_app
def export(app: App, *, ref: str, directory: str, paths: tuple[str, ...], skip_damaged: bool) -> int:
    """Write a checkpoint's files into another folder.

    DIR is new or empty, and outside the workspace. With PATHS, writes only these.

    \b
    holdfast export latest ../before
    holdfast export a14 /tmp/a14 src/
    """
    workspace = app.open()
    with progress.shown() as shown:
        done = workspace.export(ref, directory, app.paths(workspace, paths), skip_damaged=skip_damaged, progress=shown)
    if app.json:
        app.document({"exported": documents.flat(done) | {"ok": done.ok}})
    else:
        written = render.count(len(done.written), "path")
        streams.answer(f"Exported {written} of {short(done.checkpoint)} to {render.escape(done.directory)}")
        render.note_list(done.failed, "could not be written", noun="path")
        render.note_list(done.missing, "not in the checkpoint", noun="path")
        render.note_list(done.leftovers, "Left by exports that were interrupted, and to be removed")
    return Exit.DONE if done.ok else Exit.INCOMPLETE
