"""`holdfast log`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli import documents, locations, output, render, training
from holdfast.cli.app import App, pass_app, typed
from holdfast.cli.command import command
from holdfast.cli.restoring import message
from holdfast.model import Checkpoint

if TYPE_CHECKING:
    from holdfast.workspace import Workspace

_LIMIT = 20
_TITLES = ("id", "when", "name", "by", "message")


@command()
@click.argument("location", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    default=_LIMIT,
    help="How many to list; 0 lists all.",
    show_default=True,
)
@click.option("--all", "safety", is_flag=True, help="Also list those made before each restore.")
@click.option("--session", metavar="ID", help="Only those of a session.")
@click.option("--before", metavar="REF", help="Only those older than this one: the next page.")
@click.option("--actor", metavar="ACTOR", help="Only those of an agent and its sub-agents, or of the user.")
@locations.option_tenant
@locations.option_namespace
@locations.option_keys
@pass_app
def log(
    app: App,
    /,
    *,
    location: str | None,
    limit: int,
    safety: bool,
    session: str | None,
    before: str | None,
    actor: str | None,
    **flow: Any,
) -> None:
    """List checkpoints, newest first.

    With a flow LOCATION (sqlite:///state.db, postgresql://…, redis://…) it lists the sessions there or, with --session,
    the checkpoints of one. --before then takes the number that the last page ended with.

    \b
    holdfast log
    holdfast log -n 5 --session s1
    holdfast log --before b14
    holdfast log --actor claude-code
    holdfast log sqlite:///state.db --session s1
    """
    locations.check_location(location)
    asked = {**flow, "session": session}
    if place := locations.asked(app, location, asked, not_here={"--actor": actor, "--all": safety}):
        from holdfast.cli.flow.log import log as log_location

        log_location(app, place, limit, before)
        return
    if run := training.run_of(app):
        training.log(app, run, limit)
        return
    _log_workspace(app, limit=limit, safety=safety, session=session, before=before, actor=actor)


def _log_workspace(
    app: App, *, limit: int, safety: bool, session: str | None, before: str | None, actor: str | None
) -> None:
    workspace = app.open()
    found = workspace.list(limit + 1 if limit else None, session=session, actor=actor, safety=safety, before=before)
    shown = found[:limit] if limit else found
    more = len(found) > len(shown)
    if app.json:
        app.document({"checkpoints": [documents.checkpoint(entry) for entry in shown], "more": more})
        return
    if not shown:
        output.note("There are no older ones." if before else _nothing(workspace, session, actor))
        return
    render.table(_TITLES, [_row(entry) for entry in shown])
    if more:
        given = (("--session", session), ("--actor", actor), ("-n", str(limit) if limit != _LIMIT else None))
        same = ["--all"] if safety else []
        same += [word for name, value in given if value for word in (name, value)]
        output.note(f"There are more: {typed('log', *same, '--before', documents.short(shown[-1].id))}")


def _nothing(workspace: Workspace, session: str | None, actor: str | None) -> str:
    if session is not None or actor is not None:
        return f"No checkpoints of this {'session' if actor is None else 'actor'}."
    if workspace.list(1, safety=True):
        return f"No checkpoints but those made before restores; list them with: {typed('log', '--all')}"
    return f"No checkpoints yet; make the first one with: {typed('save')}"


def _row(checkpoint: Checkpoint) -> tuple[str, ...]:
    when = render.ago if output.is_terminal(sys.stdout) else render.local
    flags = [checkpoint.name, "pinned" if checkpoint.pinned else "", "" if checkpoint.complete else "incomplete"]
    step = "" if checkpoint.step is None else f"#{checkpoint.step}"
    by = [checkpoint.actor, checkpoint.session, step]
    return (
        documents.short(checkpoint.id),
        when(checkpoint.timestamp),
        render.escape(" · ".join(filter(None, flags))),
        render.escape(" ".join(filter(None, by))),
        message(checkpoint),
    )
