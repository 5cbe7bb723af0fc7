"""`holdfast undo`."""

from __future__ import annotations

from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.restoring import turn


@command()
@pass_app
def undo(app: App) -> int:
    """Take back the last restore. Any number of times, also after later saves.

    Asks nothing, because `holdfast redo` turns it round.
    """
    return turn(app, back=True)
