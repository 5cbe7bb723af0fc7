"""`holdfast copy`."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import locations
from holdfast.cli.app import App, pass_app
from holdfast.cli.command import command


@command()
@click.argument("location", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--session", metavar="ID", help="Only that session. [default: all]")
@click.option("--tenant", metavar="NAME", help="Only that tenant. [default: all; with --session, the unnamed one]")
@click.option("--keys", metavar="FILE", help="The keys that open FROM. [default: $HOLDFAST_FLOW_KEYS]")
@click.option("--to-keys", metavar="FILE", help="The keys that seal TO. [default: those of FROM]")
@click.option("--to-plaintext", is_flag=True, help="Write TO without encryption.")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@pass_app
def copy(
    app: App, /, *, location: str, target: str, to_keys: str | None, to_plaintext: bool, dry_run: bool, **flow: Any
) -> int:
    """Copy the states of a flow location to another, unchanged.

    States, metadata, pending writes, order and times are the same there, whatever kind of store each is. FROM is not
    changed, and what is at TO already stays. A session that was deleted in FROM counts as deleted at TO, too. One that
    was deleted at TO, or has other checkpoints under the same ids there, is skipped and listed. Run again after an
    interruption, it continues where it stopped.

    \b
    holdfast copy sqlite:///state.db postgresql://localhost/states
    holdfast copy sqlite:///state.db sqlite:///sealed.db --to-keys keys.json
    """
    for word in (location, target):
        locations.check_location(word)
    place = locations.of_location(app, location, flow, not_here={})

    from holdfast.cli.flow.copying import copy as copy_location

    return copy_location(app, place, target, to_keys=to_keys, to_plaintext=to_plaintext, dry_run=dry_run)
