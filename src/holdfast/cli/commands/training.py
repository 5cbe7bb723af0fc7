"""`holdfast training`."""

from __future__ import annotations

import click

from holdfast.cli.command import Command, Group, json_option
from holdfast.cli.commands.show import print_details
from holdfast.cli.context import App, pass_app
from holdfast.location import KINDS

_DIR = click.option(
    "--dir", "folder", metavar="PLACE", help="The folder of the checkpoints, or s3://…  [default: as -C]"
)


@click.group(cls=Group, invoke_without_command=True)
@click.option("--info", "ref", metavar="REF", help="Show one checkpoint, as `training info REF`.")
@_DIR
@click.pass_context
def training(ctx: click.Context, /, *, ref: str | None, folder: str | None) -> None:
    """Look at the checkpoints of a training run.

    log, show, diff, verify, usage, prune, rm and pin work on a run too, in a folder or in an object store.

    \b
    holdfast training info latest --dir runs/exp1/checkpoints --json
    holdfast training --info latest --dir runs/exp1/checkpoints
    holdfast diff ./runs/exp1/checkpoints 1000 2000
    holdfast log s3://bucket/runs/exp1
    """
    if ref is None and folder is not None:
        raise click.UsageError("--dir needs --info REF, or follows `info`", ctx)
    if ref is None and ctx.invoked_subcommand is None:
        raise click.UsageError("Missing command, or --info REF.", ctx)
    if ref is not None and ctx.invoked_subcommand is not None:
        raise click.UsageError("--info is given together with a command", ctx)
    if ref is not None:
        _show(ctx.obj, ref, folder)


training.params.append(json_option())


@training.command(cls=Command)
@click.argument("ref", default="latest")
@_DIR
@pass_app
def info(app: App, *, ref: str, folder: str | None) -> None:
    """Show one checkpoint: latest, best, or a step."""
    _show(app, ref, folder)


def _show(app: App, ref: str, folder: str | None) -> None:
    place = str(app.directory or app.folder()) if folder is None else folder
    location = next(kind for kind in KINDS if kind.name == "training").load()(place)
    print_details(app, location.get(ref))
