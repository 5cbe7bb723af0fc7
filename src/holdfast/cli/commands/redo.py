"""`holdfast redo`."""

from __future__ import annotations

import click

from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.restore_output import turn_back


@command()
@click.option(
    "--touch", is_flag=True, help="Set the modification time of restored files to now, so that build tools notice."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def redo(app: App, *, touch: bool, dry_run: bool, yes: bool) -> int:
    """Redo the restore that was last undone.

    Does not ask, because `holdfast undo` reverses it. But it asks if checkpoints were saved since.
    """
    return turn_back(app, back=False, dry_run=dry_run, yes=yes, touch=touch)
