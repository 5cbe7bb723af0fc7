"""`holdfast why`."""

from __future__ import annotations

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.model import documents
from holdfast.model.documents import short


@command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@pass_app
def why(app: App, *, paths: tuple[str, ...]) -> None:
    """Show whether checkpoints contain a path, and which rule decides.

    \b
    holdfast why .env build/
    """
    workspace = app.open()
    folders = {path for path in paths if path.endswith("/")}
    named = [(path, app.path(workspace, path)) for path in paths]
    found = [workspace.why(f"{path}/" if given in folders else path) for given, path in named]
    if app.json:
        app.items(map(documents.flat, found))
        return
    for each in found:
        streams.answer(render.escape(each.sentence))
        if each.in_checkpoint and not each.held:
            streams.note(render.escape(f"The last checkpoint, {short(each.in_checkpoint)}, contains it."))
