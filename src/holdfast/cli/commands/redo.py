"""`holdfast redo`."""

from __future__ import annotations

from holdfast.cli import documents, progress
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.exits import Exit
from holdfast.cli.restoring import show_restored


@command()
@pass_app
def redo(app: App) -> int:
    """Do the last undone restore again.

    Asks nothing, because `holdfast undo` turns it round.
    """
    workspace = app.open()
    with progress.shown() as shown:
        done = workspace.redo(progress=shown)
    if app.json:
        app.document({"restored": documents.restored(done)})
    else:
        show_restored(done, verb="Redid the restore; back at", next_step="undo with: holdfast undo")
    return Exit.DONE if done.ok else Exit.INCOMPLETE
