"""`holdfast redo`."""

from __future__ import annotations

from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.restoring import turn


@command()
@pass_app
def redo(app: App) -> int:
    """Do the last undone restore again.

    Does not ask, because `holdfast undo` reverses it.
    """
    return turn(app, back=False)
