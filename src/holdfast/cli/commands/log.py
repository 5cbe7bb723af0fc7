"""`holdfast log`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import fast_log
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.location import Capability


@location_command(Capability.LIST, refs=(0, 0))
@click.argument("location", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    default=fast_log.LIMIT,
    help="How many to list; 0 lists all.",
    show_default=True,
)
@click.option("--before", metavar="CURSOR", help="The next page: only those older than this one.")
@pass_app
def log(app: App, *, words: list[str], options: dict[str, Any], limit: int, before: str | None) -> None:
    """List checkpoints, newest first.

    In a flow store it lists the sessions or, with --session, the checkpoints of one.

    \b
    holdfast log
    holdfast log -n 5 --session s1
    holdfast log --type feature
    holdfast log --before a14
    holdfast log runs/exp1
    holdfast log sqlite:///state.db --session s1
    """
    fast_log.log(app, limit, before=before, **options)
