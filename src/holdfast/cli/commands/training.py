"""`holdfast training`."""

from __future__ import annotations

import click

from holdfast.cli.command import Command, Group
from holdfast.cli.commands.show import print_details
from holdfast.cli.context import App, pass_app
from holdfast.location import KINDS


@click.group(cls=Group)
def training() -> None:
    """Look at the checkpoints of a training run.

    log, show, diff, verify, usage, prune, rm and pin work on a run too, in a folder or in an object store.

    \b
    holdfast training info latest --dir runs/exp1/checkpoints --json
    holdfast diff ./runs/exp1/checkpoints 1000 2000
    holdfast log s3://bucket/runs/exp1
    """


@training.command(cls=Command)
@click.argument("ref", default="latest")
@click.option("--dir", "folder", metavar="PLACE", help="The folder of the checkpoints, or s3://…  [default: as -C]")
@pass_app
def info(app: App, *, ref: str, folder: str | None) -> None:
    """Show one checkpoint: latest, best, or a step."""
    place = str(app.directory or app.folder()) if folder is None else folder
    location = next(kind for kind in KINDS if kind.name == "training").load()(place)
    print_details(app, location.get(ref))
