"""`holdfast redo`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.restore_output import turn


@command()
@click.option("--touch", is_flag=True, help="Give restored files the present time, so that tools build again.")
@pass_app
def redo(app: App, *, touch: bool) -> int:
    """Do the last undone restore again.

    Does not ask, because `holdfast undo` reverses it.
    """
    return turn(app, back=False, touch=touch)
