"""`holdfast training`."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli import training as runs
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import Command, Group


@click.group(cls=Group)
def training() -> None:
    """Look at the checkpoints of a training run.

    log, show, verify, prune and diff know such a folder too.

    \b
    holdfast training info latest --dir runs/exp1/checkpoints --json
    holdfast -C runs/exp1/checkpoints diff 1000 2000
    """


@training.command(cls=Command)
@click.argument("ref", default="latest")
@click.option("--dir", "folder", metavar="PATH", default=".", help="The folder of the checkpoints.", show_default=True)
@pass_app
def info(app: App, *, ref: str, folder: str) -> None:
    """Show one checkpoint: latest, best, or a step."""
    runs.show(app, runs.open_run(Path(folder)), ref)
