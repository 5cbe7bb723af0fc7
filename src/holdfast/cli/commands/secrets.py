"""`holdfast secrets`."""

from __future__ import annotations

import click

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.model.documents import short


@command()
@click.option("--all", "every", is_flag=True, help="Scan all checkpoints again.")
@pass_app
def secrets(app: App, *, every: bool) -> None:
    """List keys and passwords that checkpoints contain.

    New files that git does not track, states and conversations are scanned when they are saved. The secrets themselves
    are never shown. Remove one from every checkpoint with `holdfast purge --secret ID`.

    \b
    holdfast secrets
    holdfast secrets --all
    """
    found = app.open().secrets(every=every)
    if app.json:
        app.items([each._asdict() for each in found.found], skipped=list(found.skipped))
        return
    for each in found.found:
        words = (each.id, each.kind, each.place, each.masked, f"since {short(each.checkpoint)}")
        streams.answer("  ".join(map(render.escape, words)))
    if not found.found:
        streams.answer("No secrets found")
    else:
        streams.note(f"\nRemove one with: {app.typed('purge', '--secret', found.found[0].id)}")
    render.note_list(found.skipped, "Too large to be scanned")
