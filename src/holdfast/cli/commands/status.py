"""`holdfast status`."""

from __future__ import annotations

from holdfast.cli import status_output
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app


@command()
@pass_app
def status(app: App) -> None:
    """Show the last save, what changed since, and problems.

    `holdfast` alone does the same in a workspace.

    \b
    holdfast status
    holdfast status --json
    """
    status_output.print_status(app)
