"""`holdfast show`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.location import Capability, Details


@location_command(Capability.GET, refs=(0, 1))
@click.argument("ref", required=False, metavar="[LOCATION]")
@click.argument("checkpoint", required=False, metavar="[REF]")
@pass_app
def show(app: App, *, words: list[str], options: dict[str, Any]) -> None:
    """Show one checkpoint in full.

    REF is a checkpoint [default: latest]. In a flow store it shows the state, too; --json prints all of it.

    \b
    holdfast show latest
    holdfast show a14 --state conversation > conversation.json
    holdfast show ./runs/exp1 best
    holdfast show sqlite:///state.db --session s1
    """
    with app.location(options) as location:
        print_details(app, location.get(words[0] if words else None))


def print_details(app: App, found: Details) -> None:
    """Print one checkpoint."""
    if found.is_raw:
        values.notes(found.notes)
        streams.document(found.document)
    elif app.json:
        app.document({"checkpoint": found.document})
    else:
        streams.answer("\n".join(map(render.escape, found.lines)) if found.lines else values.fields(found.fields))
        if found.state is not None:
            streams.answer()
            streams.answer(values.state(found.state))
        streams.notes(render.listing(found.missing))
        values.notes(found.notes)
