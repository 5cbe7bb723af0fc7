"""`holdfast uninstall`."""

from __future__ import annotations

import click

from holdfast.adapters.agents.base import AGENT_NAMES, find_agent
from holdfast.adapters.agents.settings.install import plan_uninstall
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.install_output import change, places, scope_of


@command()
@click.argument("agents", metavar="AGENT...", nargs=-1, required=True, type=click.Choice(AGENT_NAMES))
@click.option("--user", is_flag=True, help="From your own settings. [default]")
@click.option("--project", is_flag=True, help="From the settings of this project.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@pass_app
def uninstall(app: App, *, agents: tuple[str, ...], user: bool, project: bool, dry_run: bool) -> None:
    """Remove the hooks from an agent's settings.

    A file that was not changed since gets back exactly its old content. Checkpoints stay.

    \b
    holdfast uninstall claude-code
    """
    scope, around = scope_of(user, project), places(app)
    changes = [plan_uninstall(find_agent(name), scope, around) for name in dict.fromkeys(agents)]
    change(app, changes, dry_run=dry_run, done="hooks removed from", nothing="there are no hooks of Holdfast")
