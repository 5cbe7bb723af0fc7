"""Installing the skill: a folder of files that agents read instructions from, written and removed one by one.

Agents see the skill once `SKILL.md` is there: it is written last and removed first.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from holdfast import durable
from holdfast.adapters.agents.base import SettingsPaths, SettingsScope
from holdfast.adapters.agents.settings.install import SettingsChange, plan_remove_file, plan_write_file
from holdfast.errors import Refused

SKILL = "skill"
"""What `holdfast install` calls it."""
NAME = "checkpoint-manager"
_SOURCE = Path(__file__).parents[1] / "skill"
_MARK = b"holdfast install skill"  # in each of its files


def skill_folder(places: SettingsPaths, scope: SettingsScope) -> Path:
    """The folder of the skill, in the project's or the user's `.claude/skills`."""
    above = places.project / ".claude" if scope is SettingsScope.PROJECT else places.data("claude-code")
    return above / "skills" / NAME


def plan_install_skill(scope: SettingsScope, places: SettingsPaths) -> list[SettingsChange]:
    """Plan to write every file. Refused if one is there that Holdfast did not write."""
    return [_plan(name, scope, places, removes=False) for name in _names()]


def plan_uninstall_skill(scope: SettingsScope, places: SettingsPaths) -> list[SettingsChange]:
    """Plan to remove every file that is as Holdfast wrote it; those of others, and those that were edited, stay."""
    return [_plan(name, scope, places, removes=True) for name in reversed(_names())]


def remove_bytecode(scope: SettingsScope, places: SettingsPaths) -> None:
    """Remove what Python made of the scripts, so that their folder can be removed."""
    cache = skill_folder(places, scope) / "scripts" / "__pycache__"
    for name in _names():
        for made in cache.glob(f"{Path(name).stem}.*.pyc"):
            durable.disk().unlink(str(made))
    with suppress(OSError):  # it is not there, or contains others
        durable.disk().rmdir(str(cache))


def _names() -> list[str]:
    """The files, relative to the folder, in the order in which they are written."""
    found = sorted(path.relative_to(_SOURCE).as_posix() for path in _SOURCE.rglob("*") if path.suffix in (".md", ".py"))
    return sorted(found, key=lambda name: name == "SKILL.md")


def _plan(name: str, scope: SettingsScope, places: SettingsPaths, *, removes: bool) -> SettingsChange:
    path = skill_folder(places, scope) / name
    if removes:
        return plan_remove_file(SKILL, path, places)
    change = plan_write_file(SKILL, path, (_SOURCE / name).read_bytes(), places)
    if change.before is not None and _MARK not in change.before:
        raise Refused(f"{path} was not written by Holdfast", hint="Move its folder away, and install again.")
    return change
