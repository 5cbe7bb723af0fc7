"""`holdfast prune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import click

from holdfast.cli import documents, locations, output, render, training
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command
from holdfast.cli.documents import short
from holdfast.cli.listing import message
from holdfast.errors import Refused
from holdfast.model import Checkpoint, Pruned

if TYPE_CHECKING:
    from holdfast.retention import Policy
    from holdfast.workspace import Workspace


@command()
@click.argument("location", required=False)
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the newest N.")
@click.option("--keep-for", metavar="TIME", help="Keep those younger than this: 12h, 30d, 2w.")
@click.option("--keep-per-session", type=click.IntRange(min=0), metavar="N", help="Keep the newest N of each session.")
@click.option(
    "--keep-every", type=click.IntRange(min=1), metavar="N", help="Keep those with a multiple of N as number."
)
@click.option("--max-size", metavar="SIZE", help="Then delete the oldest until the rest fits: 500MB, 2GiB.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--session", metavar="ID", help="With a location: the session to prune.")
@click.option("--all", "every", is_flag=True, help="With a location: prune all sessions of a tenant.")
@locations.option_tenant
@locations.option_namespace
@locations.option_keys
@pass_app
def prune(app: App, /, *, location: str | None, dry_run: bool, yes: bool, every: bool, **wishes: Any) -> None:
    """Delete checkpoints that no rule keeps, and free their disk.

    Each option is a reason to keep; what has none is deleted. Pinned and named checkpoints, the current one and what an
    undo needs always stay. Without options the [retention] of the configuration is used. In a project, no option
    deletes what the rule for a checkpoint's type keeps.

    With a flow LOCATION it prunes one session, or --all; the newest of each namespace and those tagged `pinned` stay,
    and --keep-last counts over all of them together.

    \b
    holdfast prune --keep-last 50 --keep-for 30d --dry-run
    holdfast prune --max-size 2GiB --yes
    holdfast prune sqlite:///state.db --all --keep-per-session 10
    """
    locations.check_location(location)
    flow = {name: wishes.pop(name) for name in ("session", "tenant", "namespace", "keys")}
    if place := locations.asked(app, location, flow, not_here={}):
        from holdfast.cli.flow.prune import prune as prune_location

        prune_location(app, place, _asked_for(wishes) or _nothing_said(), every=every, dry_run=dry_run, yes=yes)
        return
    locations.check_words(None, flow["session"], every=every)
    if run := training.run_of(app):
        training.prune(app, run, wishes, dry_run=dry_run, yes=yes)
        return
    _prune_workspace(app, wishes, dry_run=dry_run, yes=yes)


def _prune_workspace(app: App, wishes: dict[str, Any], *, dry_run: bool, yes: bool) -> None:
    workspace = app.open()
    policy = _policy(workspace, wishes)
    plan = workspace.prune(policy)
    if not plan:
        _tell_nothing(app, plan)
        return
    if not app.json and (dry_run or not yes):
        _show(plan, answer=dry_run)
    if dry_run:
        if app.json:
            app.document({"plan": _document(plan), "pruned": None})
        return
    app.confirm("Delete them?", yes=yes)
    done = workspace.prune(policy, dry_run=False, plan=plan)
    if app.json:
        app.document({"plan": _document(plan), "pruned": _document(done)})
    else:
        gone = render.count(len(done.removed), "checkpoint")
        output.answer(f"{gone} deleted, {render.size(done.bytes_freed)} freed")
        _tell_over(done)
        if done.unfreed_bytes:
            more = f"{render.size(done.unfreed_bytes)} more could not be freed: no room to copy the rest of a pack."
            output.note(f"{more} Make room, then run `{app.typed('compact')}`.")


def _policy(workspace: Workspace, wishes: dict[str, Any]) -> Policy:
    """What was asked for, or what the configuration says; Refused where neither says anything."""
    from holdfast.retention import Policy
    from holdfast.workspace.config import read_settings

    if asked_for := _asked_for(wishes):
        return asked_for
    configured = read_settings(workspace.path).retention
    if configured is None or (configured.keeps_all and not configured.by_kind and configured.max_bytes is None):
        if workspace.kind_rules():
            return Policy()  # the rules that the store has for its types are enough
        _nothing_said()
    return configured


def _asked_for(wishes: dict[str, Any]) -> Policy | None:
    """What the options say, if they say anything."""
    from holdfast.retention import Policy
    from holdfast.workspace.quantities import parse_size, parse_span

    if all(wish is None for wish in wishes.values()):
        return None
    span, size = wishes["keep_for"], wishes["max_size"]
    return Policy(
        keep_last=wishes["keep_last"],
        keep_for=None if span is None else parse_span(span, "--keep-for"),
        keep_every=wishes["keep_every"],
        keep_last_per_session=wishes["keep_per_session"],
        max_bytes=None if size is None else parse_size(size, "--max-size"),
    )


def _nothing_said() -> NoReturn:
    raise Refused(
        "nothing says what to keep, so everything is kept",
        hint="Pass --keep-last N, --keep-for 30d, --keep-per-session N or --max-size 2GiB.",
    )


def _tell_nothing(app: App, plan: Pruned) -> None:
    if app.json:
        app.document({"plan": _document(plan), "pruned": None})
    else:
        output.answer(f"Nothing to delete: {render.all_stay(len(plan.kept))}")
    _tell_over(plan)


def _show(plan: Pruned, *, answer: bool) -> None:
    """Print the plan; to stderr if a question follows."""
    say = output.answer if answer else output.note
    reasons: dict[str, int] = {}
    for why in plan.kept.values():
        reasons[why] = reasons.get(why, 0) + 1
    say(f"To be deleted, for good: {render.count(len(plan.removed), 'checkpoint')}")
    for line in render.listing({_line(each): "" for each in plan.removed}):
        say(line)
    say(f"To be kept: {render.count(len(plan.kept), 'checkpoint')}")
    for why, number in sorted(reasons.items(), key=lambda pair: -pair[1]):
        say(f"    {number:,} {render.escape(why)}")
    say(f"About {render.size(plan.bytes_freed)} would come back")
    _tell_over(plan)


def _tell_over(plan: Pruned) -> None:
    """Say that a cap is not met although all that may go does."""
    if plan.over_bytes:
        output.note(f"What must stay is {render.size(plan.over_bytes)} above the size asked for")


def _line(checkpoint: Checkpoint) -> str:
    return "  ".join(filter(None, (short(checkpoint.id), render.local(checkpoint.timestamp), message(checkpoint))))


def _document(pruned: Pruned) -> dict[str, Any]:
    return {
        "removed": [documents.checkpoint(each) for each in pruned.removed],
        "kept": pruned.kept,
        "bytes_freed": pruned.bytes_freed,
        "over_bytes": pruned.over_bytes,
        "unfreed_bytes": pruned.unfreed_bytes,
        "is_done": pruned.is_done,
    }
