"""`holdfast compact`."""

from __future__ import annotations

from dataclasses import asdict

from holdfast.cli import render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app


@command()
@pass_app
def compact(app: App) -> None:
    """Make the store as small as possible.

    Everything is packed anew, by the git program where there is one. No checkpoint is deleted. Takes seconds for a
    store of some MB, minutes for some GB; other processes that save wait meanwhile.
    """
    done = app.open().compact()
    if app.json:
        app.document(asdict(done))
        return
    streams.answer(f"{render.size(done.before_bytes)} before, {render.size(done.after_bytes)} now")
    if done.note:
        streams.note(done.note)
