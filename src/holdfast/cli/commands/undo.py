"""`holdfast undo`."""

from __future__ import annotations

from holdfast.cli import documents, progress
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.exits import Exit
from holdfast.cli.restoring import show_restored


@command()
@pass_app
def undo(app: App) -> int:
    """Take back the last restore. Any number of times, also after later saves.

    Asks nothing, because `holdfast redo` turns it round.
    """
    workspace = app.open()
    with progress.shown() as shown:
        done = workspace.undo(progress=shown)
    if app.json:
        app.document({"restored": documents.restored(done)})
    else:
        show_restored(done, verb="Undid the restore; back at", next_step="redo with: holdfast redo")
    return Exit.DONE if done.ok else Exit.INCOMPLETE
