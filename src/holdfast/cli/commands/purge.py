"""`holdfast purge`."""

from __future__ import annotations

import click

from holdfast.cli import progress, render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.model import PurgePlan, documents
from holdfast.model.documents import short


@command()
@click.argument("paths", metavar="PATH...", nargs=-1)
@click.option("--secret", "secrets", metavar="ID", multiple=True, help="Remove what `holdfast secrets` lists.")
@click.option("--lines", is_flag=True, help="Also cut single lines of it out of states and messages.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def purge(app: App, *, paths: tuple[str, ...], secrets: tuple[str, ...], lines: bool, dry_run: bool, yes: bool) -> int:
    """Remove a path's content from every checkpoint, for good.

    For a secret that was saved. The checkpoints stay, without it, and say so. The folder itself is not touched:
    a path that is still there is saved again by the next save, unless .holdfastignore leaves it out. Nothing brings
    back what was purged.

    \b
    holdfast purge .env
    holdfast purge 'keys/*.pem' --dry-run
    holdfast purge --secret 3f9a1c20
    """
    if not paths and not secrets:
        raise click.UsageError("name a PATH, or a secret with --secret")
    workspace = app.open()
    chosen = app.paths(workspace, paths) or []
    with progress.shown() as shown:
        plan = workspace.purge(*chosen, dry_run=True, lines=lines, secrets=secrets, progress=shown)
    if dry_run:
        if app.json:
            app.document({"plan": documents.flat(plan), "purged": None})
        else:
            streams.answer("\n".join(_lines(plan)))
        return Exit.DONE
    if not (app.json or yes):
        streams.notes(_lines(plan))
    app.confirm("Purge, for good?", yes=yes)
    with progress.shown() as shown:
        done = workspace.purge(*chosen, lines=lines, secrets=secrets, progress=shown)
    plan = done.plan
    if app.json:
        purged = {"objects": done.objects, "bytes_freed": done.bytes_freed}
        app.document({"plan": documents.flat(plan), "purged": purged})
    else:
        touched = render.count(len(plan.checkpoints), "checkpoint")
        freed = render.size(done.bytes_freed)
        streams.answer(f"Purged {render.count(len(plan.paths), 'path')} from {touched}; {freed} freed")
        render.note_list(_at(plan), "Other paths still contain it, or a key of it (purge these, too)")
        partly = "Still repeated here (the same purge with --lines cuts lines out of states, messages and metadata)"
        render.note_list(_named(plan.partly), partly)
        still = "Still in the folder: the next save saves it again, unless .holdfastignore names it"
        render.note_list(plan.in_workspace, still)
    return Exit.INCOMPLETE if plan.also_at or plan.partly else Exit.DONE


def _lines(plan: PurgePlan) -> list[str]:
    """Return what a purge would do, in lines for people."""
    lines = [f"Purging would take {render.size(plan.bytes_freed)} out of the checkpoints, for good:"]
    lines += render.listing(plan.paths)
    lines.append(f"  from {render.count(len(plan.checkpoints), 'checkpoint')}, which would be rewritten")
    lines += render.listing([short(each) for each in plan.checkpoints])
    if plan.states:
        lines.append("  and out of states that repeat it")
        lines += render.listing(_named(plan.states))
    if plan.partly:
        lines.append("  but it stays, in part, in these; --lines cuts lines out of states, messages and metadata")
        lines += render.listing(_named(plan.partly))
    if plan.also_at:
        lines.append("  but these paths contain it too, or a key of it, and stay as they are")
        lines += render.listing(_at(plan))
    if plan.in_workspace:
        lines.append("  (still in the folder: the next save saves it again, unless .holdfastignore names it)")
        lines += render.listing(plan.in_workspace)
    return lines


def _named(found: dict[str, list[str]]) -> dict[str, str]:
    return {short(each): ", ".join(names) for each, names in found.items()}


def _at(plan: PurgePlan) -> dict[str, str]:
    return {path: short(checkpoint) for path, checkpoint in plan.also_at.items()}
