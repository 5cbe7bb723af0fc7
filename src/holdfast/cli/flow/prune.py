"""`holdfast prune LOCATION`: delete what no rule keeps, of one session or of all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from holdfast.cli import output, render
from holdfast.cli.app import App
from holdfast.cli.flow import telling
from holdfast.cli.flow.opening import Location, keys_of, opened, session_of
from holdfast.cli.locations import Asked
from holdfast.flow import CheckpointMetadata, Pruned, States
from holdfast.retention import Policy


def prune(app: App, place: Asked, policy: Policy, *, every: bool, dry_run: bool, yes: bool) -> None:
    """Show what would go, ask, and delete that; the newest of each namespace and what is tagged `pinned` stay."""
    if every == (place.session is not None):
        raise click.UsageError("prune needs --session ID or --all with a location, one of them")
    with opened(place.location, keys_of(place)) as location:
        states = location.tenant(place.tenant or "")
        location.check_tenant(place.tenant or "")
        session = None if place.session is None else session_of(location, states, place.session)
        _tell_others(location, place)
        plan = states.prune(policy, session, namespace=place.namespace, dry_run=True)
        if not plan:
            _tell_nothing(app, states, plan)
            return
        if not app.json and (dry_run or not yes):
            _show(plan, answer=dry_run)
        if dry_run:
            if app.json:
                app.document({"plan": _document(states, plan), "pruned": None})
            return
        app.confirm("Delete them?", yes=yes)
        done = states.prune(policy, session, namespace=place.namespace, plan=plan)
        if app.json:
            app.document({"plan": _document(states, plan), "pruned": _document(states, done)})
        else:
            gone = render.count(len(done.removed), "checkpoint")
            output.answer(f"{gone} deleted, {render.size(done.bytes_freed)} freed")


def _tell_others(location: Location, place: Asked) -> None:
    """A deletion stays with one tenant; say so where that is not all."""
    if place.tenant is None and place.session is None:
        others = [name for name in location.tenants(None) if name]
        if others:
            output.note(f"Only the tenant without a name; pass --tenant for: {', '.join(map(telling.name, others))}")


def _tell_nothing(app: App, states: States, plan: Pruned) -> None:
    if app.json:
        app.document({"plan": _document(states, plan), "pruned": None})
    else:
        output.answer(f"Nothing to delete: {render.all_stay(len(plan.kept))}")


def _show(plan: Pruned, *, answer: bool) -> None:
    """Print the plan; to stderr if a question follows."""
    say = output.answer if answer else output.note
    say(f"To be deleted, for good: {render.count(len(plan.removed), 'checkpoint')}")
    for each in plan.removed[: render.LIST_MAX]:
        say(f"    {_line(each)}")
    if len(plan.removed) > render.LIST_MAX:
        say(f"    … and {len(plan.removed) - render.LIST_MAX:,} more")
    say(f"To be kept: {render.count(len(plan.kept), 'checkpoint')}")
    for why, number in Counter(plan.kept.values()).most_common():
        say(f"    {number:,} {render.escape(why)}")


def _line(told: CheckpointMetadata) -> str:
    names = (telling.name(each) for each in (told.session_id, told.namespace, told.checkpoint_id) if each)
    return f"{' / '.join(names)}  {telling.when(told.timestamp)}"


def _document(states: States, pruned: Pruned) -> dict[str, Any]:
    return {
        "removed": [telling.metadata(states, each) for each in pruned.removed],
        "kept": {str(sequence): why for sequence, why in pruned.kept.items()},
        "bytes_freed": pruned.bytes_freed,
        "is_done": pruned.is_done,
    }
