"""`holdfast init`."""

from __future__ import annotations

import click

from holdfast.cli import progress, render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.cli.fast_save import show_saved
from holdfast.model import documents


@command()
@click.option("--save", is_flag=True, help="Also save a first checkpoint.")
@pass_app
def init(app: App, *, save: bool) -> int:
    """Create a store for this folder. (`save` creates one if there is none.)

    In a git repository, the store is for all of it; `holdfast -C . init` makes one for exactly this folder.

    \b
    holdfast init
    holdfast -C path/to/project init --save
    """
    workspace, created = app.open_here()
    with progress.shown() as shown:
        saved = workspace.save("first checkpoint", progress=shown) if save else None
    new = saved is not None and saved.is_new
    if app.json:
        place = {"workspace": str(workspace.path), "store": str(workspace.store), "created": created}
        app.document(place | {"checkpoint": documents.whole_checkpoint(saved) if saved else None, "new": new})
    else:
        streams.answer(f"{'Created a store' if created else 'There is a store already'} for {_shown(workspace.path)}")
        streams.answer(f"in {_shown(workspace.store)}")
        if saved:
            show_saved(app, workspace, saved)
        else:
            streams.note(f"Save a checkpoint with: {typed('save')}")
    return Exit.DONE if saved is None or saved.complete else Exit.INCOMPLETE


def _shown(path: object) -> str:
    return render.escape(str(path))
