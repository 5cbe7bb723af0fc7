"""`holdfast rm`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit, of_error
from holdfast.cli.location_command import location_command
from holdfast.cli.remedies import error_document, sentence
from holdfast.errors import HoldfastError
from holdfast.location import Capability, Item, Location


@location_command(Capability.DELETE, refs=(1, None))
@click.argument("refs", metavar="[LOCATION] REF...", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def rm(app: App, *, words: list[str], options: dict[str, Any], yes: bool) -> int:
    """Delete checkpoints for good. The folder itself is not touched.

    In a workspace, disk space is freed later, when the store is repacked. `holdfast compact` repacks it now.

    \b
    holdfast rm a3 a4
    holdfast rm latest --yes
    holdfast rm ./runs/exp1 1000
    holdfast rm sqlite:///state.db c1 --session s1
    """
    with app.location(options) as location:
        columns = location.item_columns
        doomed = list({found.id: found for found in map(location.find, words)}.values())
        if not app.json and not yes:
            streams.note(f"Would delete {render.count(len(doomed), 'checkpoint')} for good:")
            streams.notes(f"    {line}" for line in values.lines(columns, [item.cells for item in doomed]))
            if any(item.document.get("operation") for item in doomed):
                streams.note("A checkpoint saved before a restore is needed to undo that restore.")
        app.confirm("Delete?", yes=yes)
        deleted, failed = _delete(location, doomed)
    if app.json:
        errors = {entry: {"kind": of_error(error).kind} | error_document(error) for entry, error in failed.items()}
        app.items((entry.document for entry in deleted), failed=errors)
    else:
        if deleted:
            streams.answer(f"Deleted {', '.join(values.cell(entry.cells[0], columns[0].form) for entry in deleted)}")
        for entry, error in failed.items():
            streams.note(render.escape(f"{entry} was not deleted: {sentence(error)}"))
    return of_error(next(iter(failed.values()))) if failed else Exit.DONE


def _delete(location: Location, doomed: list[Item]) -> tuple[list[Item], dict[str, HoldfastError]]:
    """Delete each; one that cannot be deleted does not keep the others."""
    deleted, failed = [], {}
    for item in doomed:
        try:
            deleted.append(location.delete(item.id))
        except HoldfastError as error:
            failed[item.id] = error
    return deleted, failed
