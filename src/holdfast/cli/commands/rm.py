"""`holdfast rm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli import documents, output, render
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.documents import short
from holdfast.cli.exits import Exit, of_error
from holdfast.cli.listing import message
from holdfast.errors import HoldfastError
from holdfast.model import Checkpoint

if TYPE_CHECKING:
    from holdfast.workspace import Workspace


@command()
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def rm(app: App, *, refs: tuple[str, ...], yes: bool) -> int:
    """Delete checkpoints for good. The folder itself is not touched.

    The disk that they took is free once the store's packs are merged, which happens as they accumulate.

    \b
    holdfast rm b3 b4
    holdfast rm latest --yes
    """
    workspace = app.open()
    doomed = list({found.id: found for found in map(workspace.get, refs)}.values())
    if not app.json and not yes:
        output.note(f"To be deleted, for good: {render.count(len(doomed), 'checkpoint')}")
        output.notes(f"    {_line(checkpoint)}" for checkpoint in doomed)
        if any(checkpoint.operation for checkpoint in doomed):
            output.note("What was made before a restore is needed to undo it.")
    app.confirm("Delete?", yes=yes)
    deleted, failed = _delete(workspace, doomed)
    if app.json:
        errors = {
            entry: {"kind": of_error(error).kind, "message": error.message, "hint": error.hint}
            for entry, error in failed.items()
        }
        app.document({"deleted": [documents.checkpoint(entry) for entry in deleted], "failed": errors})
    else:
        if deleted:
            output.answer(f"Deleted {', '.join(short(entry.id) for entry in deleted)}")
        for entry, error in failed.items():
            output.note(render.escape(f"{short(entry)} was not deleted: {error}"))
    return of_error(next(iter(failed.values()))) if failed else Exit.DONE


def _delete(workspace: Workspace, doomed: list[Checkpoint]) -> tuple[list[Checkpoint], dict[str, HoldfastError]]:
    """Delete each; one that cannot be deleted does not keep the others."""
    deleted, failed = [], {}
    for checkpoint in doomed:
        try:
            deleted.append(workspace.delete(checkpoint.id))
        except HoldfastError as error:
            failed[checkpoint.id] = error
    return deleted, failed


def _line(checkpoint: Checkpoint) -> str:
    words = [short(checkpoint.id), render.local(checkpoint.timestamp), render.escape(checkpoint.name or "")]
    words += ["pinned" if checkpoint.pinned else "", message(checkpoint)]
    return "  ".join(filter(None, words))
