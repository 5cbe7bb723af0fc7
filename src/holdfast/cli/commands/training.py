"""`holdfast training`."""

from __future__ import annotations

import click

from holdfast.cli import training as runs
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import Command, Group


@click.group(cls=Group)
def training() -> None:
    """Look at the checkpoints of a training run.

    log, show, verify, prune and diff work in the folder of a run too, also in an object store.

    \b
    holdfast training info latest --dir runs/exp1/checkpoints --json
    holdfast -C runs/exp1/checkpoints diff 1000 2000
    holdfast -C s3://bucket/runs/exp1 log
    """


@training.command(cls=Command)
@click.argument("ref", default="latest")
@click.option("--dir", "folder", metavar="PLACE", help="The folder of the checkpoints, or s3://…  [default: as -C]")
@pass_app
def info(app: App, *, ref: str, folder: str | None) -> None:
    """Show one checkpoint: latest, best, or a step."""
    runs.show(app, runs.open_run(app.directory or app.folder() if folder is None else folder), ref)
