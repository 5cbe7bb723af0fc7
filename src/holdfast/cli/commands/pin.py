"""`holdfast pin`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import streams, values
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.location import Capability


@location_command(Capability.PIN, refs=(1, 1))
@click.argument("ref", metavar="[LOCATION] REF")
@click.argument("second", required=False, metavar=" ")
@click.option("--off", is_flag=True, help="Unpin it.")
@pass_app
def pin(app: App, *, words: list[str], options: dict[str, Any], off: bool) -> None:
    """Pin a checkpoint: prune never deletes it.

    \b
    holdfast pin a14
    holdfast pin a14 --off
    holdfast pin ./runs/exp1 1000
    """
    with app.location(options) as location:
        found, was = location.pin(words[0], pinned=not off)
        columns = location.item_columns
    if app.json:
        app.document({"checkpoint": found.document})
    else:
        said = ("not pinned", "no longer pinned") if off else ("pinned", "already pinned")
        streams.answer(f"{values.cell(found.cells[0], columns[0].form)}  {said[was]}")
