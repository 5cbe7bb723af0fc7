"""`holdfast install`."""

from __future__ import annotations

import importlib.util

import click

from holdfast.adapters.agents.base import SettingsPaths, SettingsScope, find_agent
from holdfast.adapters.agents.settings.install import (
    SettingsChange,
    plan_install,
    plan_install_commands,
    plan_install_plugin,
    plan_uninstall,
    plan_uninstall_commands,
    plan_uninstall_plugin,
)
from holdfast.adapters.agents.settings.skill import SKILL, plan_install_skill
from holdfast.cli import streams
from holdfast.cli.agent_name import AgentName
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app, typed
from holdfast.cli.install_output import KEPT, change, command_words, places, scope_of, slash_words


@command()
@click.argument("agents", metavar="AGENT...", nargs=-1, required=True, type=AgentName(SKILL))
@click.option("--user", is_flag=True, help="In your own settings, for every project. [default]")
@click.option("--project", is_flag=True, help="In the settings of this project.")
@click.option(
    "--plugin", is_flag=True, help="As a plugin: hooks, commands and MCP server in one folder (Claude Code only)."
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@pass_app
def install(app: App, *, agents: tuple[str, ...], user: bool, project: bool, plugin: bool, dry_run: bool) -> None:
    """Set up a coding agent to save checkpoints by itself.

    Adds hooks to the agent's settings file, where everything else stays as it is, including comments. Also adds
    commands to the agent, such as /holdfast:undo. AGENT is one of claude-code, gemini, codex, cursor, copilot,
    opencode, kilo, qwen and droid. Or it is `skill`, which writes the folder .claude/skills/checkpoint-manager,
    with instructions and scripts for any agent that reads skills.

    \b
    holdfast install claude-code
    holdfast install claude-code --plugin
    holdfast install skill --project
    holdfast install codex --project --dry-run
    holdfast doctor
    """
    scope, around = scope_of(user, project), places(app)
    changes: list[SettingsChange] = []
    for name in dict.fromkeys(agents):
        if name == SKILL:
            changes += plan_install_skill(scope, around)
        else:
            changes += _planned(name, scope, around, plugin=plugin)
    change(app, changes, dry_run=dry_run, done=_done, nothing=_nothing)
    if not (app.json or dry_run) and any(each for each in changes if each.agent != SKILL):
        if "codex" in agents:
            streams.note("Codex runs no hook that you have not trusted: start it once and accept them (/hooks).")
        if scope is SettingsScope.PROJECT and set(agents) - {SKILL}:
            streams.note("The files contain paths of this computer: do not commit them.")
        if plugin and importlib.util.find_spec("mcp") is None:
            streams.note("The MCP server of the plugin cannot start without: pip install 'holdfast[mcp]'")
        streams.note(f"Restart the agent, then check that the hooks run: {typed('doctor')}")


def _planned(name: str, scope: SettingsScope, around: SettingsPaths, *, plugin: bool) -> list[SettingsChange]:
    """Plan one form of the hooks, then the removal of the other: in between, an event that comes twice counts once."""
    agent, words, program = find_agent(name), command_words(name), slash_words(name)
    if not plugin:
        changes = [plan_install(agent, scope, around, words), *plan_install_commands(agent, scope, around, program)]
        return changes + plan_uninstall_plugin(agent, scope, around, words, program)
    changes = plan_install_plugin(agent, scope, around, words, program)
    old = [*plan_uninstall_commands(agent, scope, around, program), plan_uninstall(agent, scope, around)]
    return changes + [each for each in old if each]


def _done(change: SettingsChange) -> str:
    if change.removes:
        return "removed" if change.is_command else "hooks removed from"
    if change.is_command:
        return "installed"
    return "wrote" if change.agent == SKILL else "hooks installed in"


def _nothing(change: SettingsChange) -> str:
    if change.is_command:
        return KEPT if change.is_kept else "are already installed"
    return "is already there" if change.agent == SKILL else "hooks are already installed"
