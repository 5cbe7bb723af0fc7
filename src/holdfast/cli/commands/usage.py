"""`holdfast usage`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import streams, values
from holdfast.cli.command import Count
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.location import Capability


@location_command(Capability.USAGE, refs=(0, 0))
@click.argument("location", required=False)
@click.option(
    "-n",
    "--limit",
    type=Count(min=0),
    metavar="N",
    default=10,
    show_default=True,
    help="List at most N rows in each table; 0 lists all.",
)
@pass_app
def usage(app: App, *, words: list[str], options: dict[str, Any], limit: int) -> None:
    """Show what uses disk space in the store.

    Lists the largest first. Deleting a checkpoint frees its unique bytes, not those that it shares with others. Reads
    every folder of every checkpoint, which takes seconds if there are thousands.

    \b
    holdfast usage
    holdfast usage sqlite:///state.db -n 20
    """
    with app.location(options) as location:
        found = location.usage(limit or None)
    if app.json:
        app.items(found.items, more=found.more, **found.document)
        return
    streams.answer(values.fields(found.fields))
    values.tables(found.tables)
    more = f" List more with -n {2 * limit}." if found.is_cut and limit else ""
    values.notes([*found.notes[:-1], f"{found.notes[-1]}{more}"] if found.notes else [])
