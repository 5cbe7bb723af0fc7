"""`holdfast pin`."""

from __future__ import annotations

import click

from holdfast.cli import documents, output
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command


@command()
@click.argument("ref")
@click.option("--off", is_flag=True, help="No longer keep it.")
@pass_app
def pin(app: App, *, ref: str, off: bool) -> None:
    """Mark a checkpoint to be kept when others are pruned.

    \b
    holdfast pin b14
    holdfast pin b14 --off
    """
    workspace = app.open()
    was = workspace.get(ref).pinned
    found = workspace.pin(ref, pinned=not off)
    if app.json:
        app.document({"checkpoint": documents.checkpoint(found)})
    else:
        said = ("not pinned", "no longer pinned") if off else ("pinned", "pinned already")
        output.answer(f"{documents.short(found.id)}  {said[was]}")
