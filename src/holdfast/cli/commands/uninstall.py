"""`holdfast uninstall`."""

from __future__ import annotations

import click

from holdfast.adapters.agents.base import find_agent
from holdfast.adapters.agents.settings.install import (
    SettingsChange,
    plan_uninstall,
    plan_uninstall_commands,
    plan_uninstall_plugin,
)
from holdfast.adapters.agents.settings.skill import SKILL, plan_uninstall_skill, remove_bytecode
from holdfast.cli.agent_name import AgentName
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app
from holdfast.cli.install_output import KEPT, change, command_words, places, scope_of, slash_words


@command()
@click.argument("agents", metavar="AGENT...", nargs=-1, required=True, type=AgentName(SKILL))
@click.option("--user", is_flag=True, help="From your own settings. [default]")
@click.option("--project", is_flag=True, help="From the settings of this project.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@pass_app
def uninstall(app: App, *, agents: tuple[str, ...], user: bool, project: bool, dry_run: bool) -> None:
    """Remove the hooks from an agent's settings.

    Also removes its commands and its plugin, except files that you edited. If a settings file has not changed since the
    install, its old content is restored exactly. Checkpoints stay.

    \b
    holdfast uninstall claude-code
    holdfast uninstall skill --project
    """
    scope, around = scope_of(user, project), places(app)
    changes: list[SettingsChange] = []
    for name in dict.fromkeys(agents):
        if name == SKILL:
            changes += plan_uninstall_skill(scope, around)
            if not dry_run:
                remove_bytecode(scope, around)
        else:
            agent, program = find_agent(name), slash_words(name)
            changes += plan_uninstall_plugin(agent, scope, around, command_words(name), program)
            changes += plan_uninstall_commands(agent, scope, around, program)
            changes.append(plan_uninstall(agent, scope, around))
    change(app, changes, dry_run=dry_run, done=_done, nothing=_nothing)


def _done(change: SettingsChange) -> str:
    return "removed" if change.agent == SKILL or change.is_command else "hooks removed from"


def _nothing(change: SettingsChange) -> str:
    if change.is_command:
        return KEPT if change.is_kept else "are not installed"
    if change.agent != SKILL:
        return "no hooks are installed"
    return "is not installed" if change.before is None else "was edited, or is not Holdfast's, and stays"
