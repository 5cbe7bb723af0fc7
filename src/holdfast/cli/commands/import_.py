"""`holdfast import`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import progress, render, streams
from holdfast.cli.command import command
from holdfast.cli.context import App, decline, pass_app
from holdfast.cli.exit_codes import Exit
from holdfast.escaping import without_password
from holdfast.location import is_url

if TYPE_CHECKING:
    from holdfast.importers import Imported, ImportPlan
    from holdfast.serde import Keys

_SHOWN = 20


@command(name="import")
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="[TO]", required=False)
@click.option("--kind", metavar="NAME", help="The format of SOURCE. [default: detected]")
@click.option(
    "--keys",
    metavar="FILE",
    envvar="HOLDFAST_FLOW_KEYS",
    help="The keys to encrypt TO with, if it is a flow store. [default: $HOLDFAST_FLOW_KEYS]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def import_(
    app: App, /, *, source: str, target: str | None, kind: str | None, keys: str | None, dry_run: bool, yes: bool
) -> int:
    """Import the checkpoints that another tool made.

    SOURCE is the folder, file or URL that the other tool saved into; its format is detected. Holdfast only reads
    SOURCE, and executes nothing in it. Shows the plan first and, on a terminal, asks. An import only adds: TO keeps
    everything it has. To continue after an interruption, or to add what is new, run it again.

    TO is where the checkpoints go: a folder, a flow store or a training run, depending on SOURCE. You can leave it
    out for a shadow git repository, a skill's project or a session of Claude Code: they name their folder
    themselves.

    \b
    holdfast import ~/.praisonai/checkpoints/0123456789ab --dry-run
    holdfast import checkpoints.sqlite sqlite:///state.db
    holdfast import old/checkpoints runs/imported
    holdfast import ~/.claude/projects/-home-ada-project
    """
    from holdfast.importers import ImportRequest, open_import  # start-up cost, for this command only

    if app.directory:
        raise click.UsageError("-C is not for import; name the folder as TO")
    request = ImportRequest(
        _place(source),
        None if target is None else _place(target),
        keys=_keys(keys, target),
        workspace_options=app.workspace_options(),
    )
    opened = open_import(request, kind=kind)
    try:
        with progress.shown() as shown:
            plan = opened.plan(shown)
        if not app.json:
            _show(plan, answer=dry_run)
        if dry_run:
            return _end(app, plan, None)
        if plan.new and not yes and not app.json and streams.can_ask() and not streams.ask("Import them?"):
            decline()
        with progress.shown() as shown:
            done = opened.run(shown)
        return _end(app, plan, done)
    finally:
        opened.close()


def _keys(file: str | None, target: str | None) -> Keys | None:
    """The keys of the file; none if TO is a folder: the variable may be set for other commands."""
    if file is None or target is None or not is_url(target):
        return None
    from holdfast.serde import read_keys  # start-up cost, for encrypted stores only

    return read_keys(file)


def _place(word: str) -> str:
    return word if is_url(word) else os.path.expanduser(word)


def _show(plan: ImportPlan, *, answer: bool) -> None:
    say = streams.answer if answer else streams.note
    say(render.escape(f"To be imported: {plan.source} → {plan.target}"))
    size = f", {render.size(plan.bytes)}" if plan.bytes is not None and plan.new else ""
    there = f"; {plan.present:,} there already" if plan.present else ""
    say(f"    {plan.title}: {render.count(plan.new, 'new checkpoint')}{size}{there}")
    for line in plan.notes:
        say(f"    {render.escape(line)}")
    for line in _left(plan.not_carried):
        say(f"    {line}")


def _left(losses: Any) -> list[str]:
    if not losses:
        return []
    lines = ["Not carried over:"]
    for each in losses[:_SHOWN]:
        times = f" (in {render.count(each.checkpoints, 'checkpoint')})" if each.checkpoints > 1 else ""
        lines.append(f"    {render.escape(each.what)}: {render.escape(each.why)}{times}")
    if len(losses) > _SHOWN:
        lines.append(f"    … and {len(losses) - _SHOWN:,} more; --json lists all")
    return lines


def _end(app: App, plan: ImportPlan, done: Imported | None) -> int:
    """Print what was done, or with None that nothing was."""
    losses = plan.not_carried if done is None else done.not_carried
    if app.json:
        app.document({"plan": _plan_document(plan), "imported": None if done is None else _done_document(done)})
    elif done is not None:
        there = f"; {done.present:,} there already" if done.present else ""
        streams.answer(f"{render.count(done.added, 'checkpoint')} imported into {render.escape(plan.target)}{there}")
        streams.notes(render.escape(line) for line in done.notes if line not in plan.notes)
        if list(losses) != list(plan.not_carried):
            streams.notes(_left(losses))
    return Exit.INCOMPLETE if losses else Exit.DONE


def _plan_document(plan: ImportPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "source": without_password(plan.source),
        "target": without_password(plan.target),
        "checkpoints": plan.checkpoints,
        "present": plan.present,
        "new": plan.new,
        "bytes": plan.bytes,
        "not_carried": _losses(plan.not_carried),
        "notes": list(plan.notes),
    }


def _done_document(done: Imported) -> dict[str, Any]:
    return {
        "added": done.added,
        "present": done.present,
        "not_carried": _losses(done.not_carried),
        "notes": list(done.notes),
    }


def _losses(losses: Any) -> list[dict[str, Any]]:
    return [each._asdict() for each in losses]
