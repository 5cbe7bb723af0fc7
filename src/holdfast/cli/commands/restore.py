"""`holdfast restore`."""

from __future__ import annotations

from functools import partial

import click

from holdfast.cli import conversations, picking
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.restoring import carry_out


@command()
@click.argument("ref")
@click.argument("paths", nargs=-1)
@click.option("--pick", is_flag=True, help="Choose from a list what to restore.")
@click.option("--keep-new", is_flag=True, help="Leave files made since the checkpoint.")
@click.option("--keep-mine", is_flag=True, help="Undo only what agents did since; keep everything else.")
@click.option("--agent", metavar="ACTOR", help="With --keep-mine: only this one.")
@click.option("--skip-damaged", is_flag=True, help="Restore what is sound where stored bytes are damaged.")
@click.option("--touch", is_flag=True, help="Give restored files the present time, so that tools build again.")
@click.option("--with-conversation", is_flag=True, help="Also bring back what was said, as a new conversation.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def restore(
    app: App,
    *,
    ref: str,
    paths: tuple[str, ...],
    pick: bool,
    keep_new: bool,
    keep_mine: bool,
    agent: str | None,
    skip_damaged: bool,
    touch: bool,
    with_conversation: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Bring the folder back to a checkpoint.

    Shows what it will do and asks. What it replaces or removes is saved first: `holdfast undo` brings it back.
    With PATHS (from the current folder, or from the one that -C names) nothing else is touched.

    \b
    holdfast restore latest
    holdfast restore b14 src/ config.toml --yes
    holdfast restore b14 --pick
    holdfast restore b14 --keep-mine
    holdfast restore b14 --with-conversation
    """
    workspace = app.open()
    chosen = app.paths(workspace, paths)
    if agent is not None and not keep_mine:
        raise click.UsageError("--agent goes with --keep-mine")
    kept = conversations.find(workspace.get(ref)) if with_conversation else None
    preview = partial(workspace.preview, keep_new=keep_new, keep_mine=keep_mine, agent=agent)
    plan = preview(ref, chosen)
    if pick and plan:
        chosen = picking.pick(plan, json=app.json)
        plan = preview(plan.checkpoint, chosen)
    options = {"dry_run": dry_run, "yes": yes, "skip_damaged": skip_damaged, "touch": touch}
    return carry_out(app, workspace, plan, chosen, **options, kept=kept)
