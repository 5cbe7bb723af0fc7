"""What `install` and `uninstall` share: whose settings, what changes, and how it is shown."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Sequence

from holdfast.adapters.agents.base import SettingsPaths, SettingsScope
from holdfast.adapters.agents.settings.install import SettingsChange, apply_change
from holdfast.adapters.agents.settings.shim import shim_path, write_shim
from holdfast.adapters.agents.settings.skill import SKILL
from holdfast.cli import render, streams
from holdfast.cli.context import App
from holdfast.workspace.store_paths import home_folder

KEPT = "was edited, or is not Holdfast's, and stays"


def places(app: App) -> SettingsPaths:
    """What the paths of settings depend on: the real home folder, environment and project folder."""
    return SettingsPaths(home_folder(), os.environ, app.project_folder(), sys.executable)


def command_words(agent: str) -> list[str]:
    """The command that an agent is to run: by its absolute path, so that it works whatever PATH says."""
    return [os.path.abspath(shim_path(os.environ)), "hook", agent]


def slash_words(agent: str) -> list[str]:
    """What a slash command of an agent runs; its name follows."""
    return [os.path.abspath(shim_path(os.environ)), "slash", agent]


def scope_of(user: bool, project: bool) -> SettingsScope:
    """Whose settings are meant; by default the user's."""
    import click

    if user and project:
        raise click.UsageError("--user and --project exclude each other")
    return SettingsScope.PROJECT if project else SettingsScope.USER


def change(
    app: App,
    changes: Sequence[SettingsChange],
    *,
    dry_run: bool,
    done: Callable[[SettingsChange], str],
    nothing: Callable[[SettingsChange], str],
) -> None:
    """Show or carry out changes of settings files, and tell."""
    for each in changes:
        if not dry_run:
            if each.after is not None and each.agent != SKILL:
                write_shim(os.environ, sys.executable)  # first: entries never name what is not there
            apply_change(each, os.environ)
    if app.json:
        app.items(map(_document, changes), dry_run=dry_run)
        return
    quiet = [] if dry_run else [each for each in changes if each.is_command and not each.is_kept]
    for each in changes:
        where = render.escape(str(each.path))
        if each in quiet:
            continue
        if not each:
            streams.answer(f"{each.agent}: {nothing(each)} ({where})")
        elif dry_run:
            streams.answer(_difference(each))
        else:
            streams.answer(f"{each.agent}: {done(each)} {where}")
            if each.before is not None and not ((each.agent == SKILL or each.is_command) and each.removes):
                streams.note(f"Backup of the previous file: {render.escape(str(each.backup))}")
    for agent, removes in dict.fromkeys((each.agent, each.removes) for each in quiet):
        own = [each for each in quiet if (each.agent, each.removes) == (agent, removes)]
        streams.answer(f"{agent}: commands {done(own[0]) if any(own) else nothing(own[0])} ({_names(own)})")


def _names(commands: Sequence[SettingsChange]) -> str:
    """Where the commands of an agent are."""
    return render.escape(os.path.commonpath([each.path.parent for each in commands]))


def _document(each: SettingsChange) -> dict[str, object]:
    has_backup = bool(each) and each.before is not None
    return {
        "agent": each.agent,
        "path": str(each.path),
        "changed": bool(each),
        "backup": str(each.backup) if has_backup else None,
        "diff": _difference(each),
    }


def _difference(each: SettingsChange) -> str:
    """A diff of the two texts, as `diff -u` has it."""
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (each.before, each.after))
    old, new = ("/dev/null" if data is None else str(each.path) for data in (each.before, each.after))
    return render.escape("\n".join(difflib.unified_diff(before, after, old, new, lineterm="")), keep="\n\t")
