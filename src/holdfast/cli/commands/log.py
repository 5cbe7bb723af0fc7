"""`holdfast log`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import listing, locations
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command


@command()
@click.argument("location", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    default=listing.LIMIT,
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
    listing.log(app, limit, safety=safety, session=session, before=before, actor=actor)
