"""`holdfast training`."""

from __future__ import annotations

import click

from holdfast.cli.command import Command, CommandGroup, json_option
from holdfast.cli.commands.show import print_details
from holdfast.cli.context import App, pass_app
from holdfast.location import KINDS, is_url

_DIR = click.option(
    "--dir", "folder", metavar="PLACE", help="The folder of the checkpoints, or s3://…  [default: as -C, or below]"
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--info", "ref", metavar="REF", help="Show one checkpoint, as `training info REF`.")
@_DIR
@click.pass_context
def training(ctx: click.Context, /, *, ref: str | None, folder: str | None) -> None:
    """Inspect the checkpoints of a training run.

    Without --dir, uses the run in the current folder, or the only one in the folders below it.

    log, show, diff, verify, usage, prune, rm and pin also work on a run, in a folder or in an object store.

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
    from holdfast.training.checkpoints import find_run  # start-up cost

    place = folder
    if place is None:
        place = str(app.directory or app.folder())
        place = place if is_url(place) else str(find_run(place))
    location = next(kind for kind in KINDS if kind.name == "training").load()(place)
    print_details(app, location.get(ref))
