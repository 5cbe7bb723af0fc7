"""`holdfast adopt`."""

from __future__ import annotations

import click

from holdfast.cli import streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.exit_codes import Exit
from holdfast.cli.restore_output import note_changed, show_restored
from holdfast.model import Plan, documents
from holdfast.model.documents import short


@command()
@click.argument("directory", metavar="DIR")
@click.option("--fork-store", metavar="PATH", help="The folder of the fork's store. [default: chosen for it]")
@click.option("-y", "--yes", is_flag=True, hidden=True, expose_value=False)  # it does not ask any more
@pass_app
def adopt(app: App, *, directory: str, fork_store: str | None) -> int:
    """Bring a fork's files and state back into the workspace.

    DIR is a folder that `holdfast fork` made of this workspace. Saves the fork as a checkpoint here, and restores it.
    Files that it replaces are saved first: `holdfast undo` brings them back.

    \b
    holdfast adopt ../attempt-2
    """
    project = app.project()
    plans: list[Plan] = []
    done = project.adopt(directory, store=fork_store, approve=plans.append)
    restored = done.rolled_back.restored
    if app.json:
        said = {"checkpoint": done.checkpoint.to_dict(), "source": done.source, "ok": done.ok}
        said |= {"restored": documents.restored(restored), "changed_since_fork": done.changed_since_fork}
        app.document({"adopted": said})
    else:
        for plan in plans:
            note_changed(plan)
        is_first = project.workspace.count_restores() <= 1
        what, step = f"Adopted as {short(done.checkpoint.id)}", f"undo with: {typed('undo')}"
        show_restored(app, restored, what, next_step=step, is_first=is_first)
        if done.changed_since_fork:
            streams.note(f"The workspace changed since {short(done.source)}; holdfast undo brings those changes back.")
    return Exit.DONE if done.ok else Exit.INCOMPLETE
