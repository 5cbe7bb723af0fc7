"""`holdfast restore`."""

from __future__ import annotations

import click

from holdfast.cli import conversations, documents, output, picking, progress
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.documents import short
from holdfast.cli.exits import Exit
from holdfast.cli.restoring import plan_lines, show_restored


@command()
@click.argument("ref")
@click.argument("paths", nargs=-1)
@click.option("--pick", is_flag=True, help="Choose from a list what to restore.")
@click.option("--keep-new", is_flag=True, help="Leave files made since the checkpoint.")
@click.option("--skip-damaged", is_flag=True, help="Restore what is sound where stored bytes are damaged.")
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
    skip_damaged: bool,
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
    holdfast restore b14 --with-conversation
    """
    workspace = app.open()
    chosen = app.paths(workspace, paths)
    kept = conversations.find(workspace.get(ref)) if with_conversation else None
    plan = workspace.preview(ref, chosen, keep_new=keep_new)
    if pick and plan:
        chosen = picking.pick(plan, json=app.json)
        plan = workspace.preview(plan.checkpoint, chosen, keep_new=keep_new)
    if dry_run or not (plan or plan.blocked):
        said = None if dry_run else conversations.bring(kept, app)
        if app.json:
            app.document({"plan": documents.flat(plan), "restored": None, **conversations.document(said)})
        else:
            (output.answer if dry_run else output.note)("\n".join(plan_lines(plan, workspace.path)))
            conversations.show(said)
        return Exit.DONE
    if not (app.json or yes):
        output.notes(plan_lines(plan, workspace.path))
    if plan:
        app.confirm("Restore?", yes=yes)
    with progress.shown() as shown:
        done = workspace.restore(
            plan.checkpoint, chosen, plan, keep_new=keep_new, skip_damaged=skip_damaged, progress=shown
        )
    said = conversations.bring(kept, app)
    if app.json:
        app.document(
            {"plan": documents.flat(plan), "restored": documents.restored(done), **conversations.document(said)}
        )
    else:
        show_restored(done, f"Restored {short(done.checkpoint)}", next_step="undo with: holdfast undo")
        conversations.show(said)
    return Exit.DONE if done.ok else Exit.INCOMPLETE
