"""`holdfast prune`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import render, streams, values
from holdfast.cli.command import Count
from holdfast.cli.context import App, pass_app
from holdfast.cli.location_command import location_command
from holdfast.errors import Refused
from holdfast.location import Capability, InvalidOption

if TYPE_CHECKING:
    from holdfast.location import PrunePlan
    from holdfast.retention import Policy


@location_command(Capability.PRUNE, refs=(0, 0))
@click.argument("location", required=False)
@click.option("--keep-last", type=Count(min=0), metavar="N", help="Keep the newest N.")
@click.option("--keep-for", metavar="TIME", help="Keep checkpoints younger than this: 12h, 30d, 2w.")
@click.option("--keep-per-session", type=Count(min=0), metavar="N", help="Keep the newest N of each session.")
@click.option("--keep-every", type=Count(min=1), metavar="N", help="Keep checkpoints whose number is a multiple of N.")
@click.option("--max-size", metavar="SIZE", help="Then delete the oldest until the rest fits: 500MB, 2GiB.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def prune(app: App, *, words: list[str], options: dict[str, Any], dry_run: bool, yes: bool, **rules: Any) -> None:
    """Delete checkpoints that no rule keeps, and free disk space.

    Each --keep option names checkpoints to keep; the others are deleted. Pinned and named checkpoints, the current
    one and what an undo needs always stay. Without options, the [retention] table of the configuration is used. In
    a workspace, checkpoints that the rule for their type keeps also stay.

    \b
    holdfast prune --keep-last 50 --keep-for 30d --dry-run
    holdfast prune --max-size 2GiB --yes
    holdfast prune runs/exp1 --keep-last 3
    holdfast prune sqlite:///state.db --all --keep-per-session 10
    """
    asked_for = _policy(rules)
    with app.location(options) as location:
        policy = asked_for or location.default_policy()
        if policy is None:
            raise Refused(
                "no rule says what to keep, so nothing is deleted",
                hint="Pass --keep-last N, --keep-for 30d, --keep-per-session N or --max-size 2GiB.",
            )
        plan = location.plan_prune(policy, datetime.now(UTC))
        if app.json and (dry_run or not plan.removed):
            app.items((each.document for each in plan.removed), plan=plan.document, pruned=None)
            return
        if not plan.removed:
            streams.answer(f"Nothing to delete: {render.all_stay(len(plan.kept))}")
            if dry_run:
                _show_kept(plan)
            values.notes(plan.notes)
            return
        if not app.json and (dry_run or not yes):
            _show(plan, answer=dry_run)
        elif not app.json:
            values.notes(plan.notes)
        if dry_run:
            return
        app.confirm("Delete them?", yes=yes)
        done = location.prune(plan)
    if app.json:
        app.items((each.document for each in done.removed), plan=plan.document, pruned=done.document)
        return
    freed = "" if done.bytes_freed is None else f", {render.size(done.bytes_freed)} freed"
    streams.answer(f"{render.count(len(done.removed), 'checkpoint')} deleted{freed}")
    values.notes(done.notes)


def _policy(rules: dict[str, Any]) -> Policy | None:
    """What the options say, if they say anything."""
    from holdfast.configuration import parse_size, parse_span
    from holdfast.retention import Policy

    if all(rule is None for rule in rules.values()):
        return None
    span, size = rules["keep_for"], rules["max_size"]
    try:
        keep_for = None if span is None else parse_span(span, "--keep-for")
        max_bytes = None if size is None else parse_size(size, "--max-size")
    except Refused as error:
        raise InvalidOption(error.message, hint=error.advice) from None
    return Policy(
        keep_last=rules["keep_last"],
        keep_for=keep_for,
        keep_every=rules["keep_every"],
        keep_last_per_session=rules["keep_per_session"],
        max_bytes=max_bytes,
    )


def _show(plan: PrunePlan, *, answer: bool) -> None:
    """Print the plan; to stderr if a question follows."""
    say = streams.answer if answer else streams.note
    say(f"Would delete {render.count(len(plan.removed), 'checkpoint')} for good{':' if plan.removed else ''}")
    for line in values.lines(plan.columns, [item.cells for item in plan.removed[: render.LIST_MAX]]):
        say(f"    {line}")
    if len(plan.removed) > render.LIST_MAX:
        say(f"    … and {len(plan.removed) - render.LIST_MAX:,} more")
    say(f"Would keep {render.count(len(plan.kept), 'checkpoint')}{':' if plan.kept else ''}")
    _show_kept(plan, say)
    if plan.bytes_freed is not None:
        say(f"Would free about {render.size(plan.bytes_freed)}")
    values.notes(plan.notes)


def _show_kept(plan: PrunePlan, say: Any = streams.answer) -> None:
    """Print why checkpoints stay."""
    found = Counter(plan.kept.values()).most_common()
    width = max((len(f"{number:,}") for _, number in found), default=0)
    for why, number in found:
        say(f"    {number:>{width},} {render.escape(why)}")
