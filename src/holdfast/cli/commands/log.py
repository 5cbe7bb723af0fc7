"""`holdfast log`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import fast_log
from holdfast.cli.command import Count
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.location import Capability


@location_command(Capability.LIST, refs=(0, 0), takes_paths=True, takes_count=True, after_dashes="[-- PATHS...]")
@click.argument("refs", nargs=-1, metavar="[LOCATION] [A..B] [PATH]...")
@click.option(
    "-n",
    "--limit",
    type=Count(min=0),
    metavar="N",
    default=fast_log.LIMIT,
    help="How many turns to list, or checkpoints with --flat; 0 lists all.",
    show_default=True,
)
@click.option("--before", metavar="CURSOR", help="Only checkpoints older than this one, for the next page.")
@pass_app
def log(app: App, *, words: list[str], options: dict[str, Any], limit: int, before: str | None) -> None:
    """List checkpoints, newest first.

    An agent's turn is one entry; --flat lists every checkpoint. With PATHs, list only checkpoints that changed
    them. In a flow store, list the sessions or, with --session, the checkpoints of one.

    \b
    holdfast log --stat src/app.py
    holdfast log --since yesterday --actor claude-code --grep login
    holdfast log a3..a9 --flat
    holdfast log --type feature
    holdfast log runs/exp1
    holdfast log sqlite:///state.db --session s1
    """
    named = options.pop("paths", None)
    fast_log.log(app, limit, before=before, words=words, after_dashes=named, **options)
