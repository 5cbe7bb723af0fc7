"""Diagnosing the hooks of an agent: whether they are installed, trusted, and have run; and what they do not cover."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.adapters.agents.attribution import AgentSessions, LastEvent
from holdfast.adapters.agents.base import Agent, HookEntry, SettingsPaths, SettingsScope
from holdfast.adapters.agents.codex import trusted_hash
from holdfast.adapters.agents.settings.hook_entries import are_same, found_entries, is_ours
from holdfast.adapters.agents.settings.install import (
    SettingsChange,
    decode_settings,
    plan_install_commands,
    plan_install_plugin,
    read_settings_file,
)
from holdfast.adapters.agents.settings.jsonc import NotJSON, parse
from holdfast.adapters.agents.settings.shim import is_current
from holdfast.errors import HoldfastError, Refused
from holdfast.workspace.store_paths import real_workspace, store_folder

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The diagnosis of one agent."""

    agent: str
    title: str
    is_used: bool
    """Whether the agent's own folder exists."""
    installed: dict[str, str] = field(default_factory=dict)
    """The settings file with the hooks, by scope."""
    trusted: bool | None = None
    """None: the agent does not require it."""
    commands: dict[str, str] = field(default_factory=dict)
    """The files of its commands and of its plugin, each with "as installed", "edited", "old" or "missing"."""
    fired: LastEvent | None = None
    """The last event in this workspace."""
    problems: tuple[str, ...] = ()
    """What prevents the hooks from working, each with what to do."""
    not_covered: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def examine(agent: Agent, places: SettingsPaths, words: Sequence[str], known: AgentSessions) -> AgentReport:
    """Examine the settings of one agent, and its sessions in this workspace. Changes nothing."""
    installed: dict[str, str] = {}
    problems: list[str] = []
    trusted: bool | None = None
    for scope, path in _hook_files(agent, places, words):
        try:
            text = decode_settings(path, read_settings_file(path))
            entries = _ours(agent, text, words)
        except NotADirectoryError:  # there can be no such file
            continue
        except (OSError, Refused, NotJSON) as error:
            problems.append(f"{path} cannot be read ({_why(error)}): fix it")
            continue
        if not entries:
            continue
        installed[scope.value] = str(path)
        problems += _wrong_entries(agent, entries, words, scope, places)
        allowed, why = _allowed(agent, path, text, entries, places, scope)
        problems += why
        trusted = allowed if allowed is not None else trusted
    if installed:
        problems += _no_project(places)
    return AgentReport(
        agent=agent.name,
        title=agent.title,
        is_used=places.data(agent.name).is_dir(),
        installed=installed,
        trusted=trusted,
        commands=_commands(agent, places, words, problems),
        fired=known.fired.get(agent.name),
        problems=tuple(dict.fromkeys(problems)),
        not_covered=agent.not_covered,
    )


def _hook_files(agent: Agent, places: SettingsPaths, words: Sequence[str]) -> list[tuple[SettingsScope, Path]]:
    """Return the files that may have the hooks: the settings, and the last file of a plugin."""
    files = [(scope, agent.settings(places, scope)) for scope in SettingsScope]
    if agent.plugin is not None:
        files += [(scope, list(agent.plugin(places, scope, words, words))[-1]) for scope in SettingsScope]
    return files


def _commands(agent: Agent, places: SettingsPaths, words: Sequence[str], problems: list[str]) -> dict[str, str]:
    """Return the state of each file of the commands, for each place that has at least one."""
    program = [words[0], "slash", agent.name]
    found: dict[str, str] = {}
    for scope in SettingsScope:
        try:
            sets = [plan_install_commands(agent, scope, places, program)]
            sets += [plan_install_plugin(agent, scope, places, words, program)] if agent.plugin else []
        except NotADirectoryError:
            continue
        except (OSError, Refused) as error:
            problems.append(f"the commands cannot be read ({_why(error)})")
            continue
        for files in sets:
            if any(each.before is not None and not each.is_kept for each in files):
                found |= {str(each.path): _state(each) for each in files}
    return found


def _state(change: SettingsChange) -> str:
    if change.before is None:
        return "missing"
    if change.is_kept:
        return "edited"
    return "old" if change else "as installed"


def _no_project(places: SettingsPaths) -> list[str]:
    """Why hooks save nothing in this folder, if it is none that they save: the home folder, a folder of the system."""
    try:
        real = real_workspace(places.project, home=places.home, allow_home=False)
        store_folder(real, store=None, environ=places.environ)
    except HoldfastError as error:
        return [f"nothing is saved here: {error.message}. Start the agent in a project folder"]
    return []


def _why(error: Exception) -> str:
    return error.message if isinstance(error, Refused) else getattr(error, "strerror", None) or str(error)


def _ours(agent: Agent, text: str, words: Sequence[str]) -> list[HookEntry]:
    if agent.own_file is None:
        return found_entries(text, agent.name)
    is_ours = text.partition("\n")[0] == agent.own_file(words).partition("\n")[0]
    return [HookEntry("plugin", {"text": text})] if is_ours else []


def _wrong_entries(
    agent: Agent, entries: list[HookEntry], words: Sequence[str], scope: SettingsScope, places: SettingsPaths
) -> list[str]:
    again = f"run: holdfast install {agent.name} --{scope.value}"
    wanted = agent.entries(words) if agent.own_file is None else [HookEntry("plugin", {"text": agent.own_file(words)})]
    if not is_current(places.environ, places.python):
        return [f"{words[0]} is missing, or belongs to another Holdfast: {again}"]
    return [] if are_same(entries, wanted) else [f"the entries differ from those of this Holdfast: {again}"]


def _allowed(
    agent: Agent, path: Path, text: str, entries: list[HookEntry], places: SettingsPaths, scope: SettingsScope
) -> tuple[bool | None, list[str]]:
    if agent.name == "claude-code":
        return None, _claude_code(agent, places)
    if agent.name == "qwen":
        return None, _switched_off(*(agent.settings(places, each) for each in SettingsScope))
    if agent.name == "droid":
        return None, _droid(path, entries)
    if agent.name == "copilot":
        return None, _copilot(agent, path, places)
    if agent.name == "gemini":
        return _gemini(agent, text, entries, places, scope)
    if agent.name == "codex":
        return _codex(path, text, places)
    return None, []


def _claude_code(agent: Agent, places: SettingsPaths) -> list[str]:
    own, private = (agent.settings(places, scope) for scope in (SettingsScope.USER, SettingsScope.PROJECT))
    return _switched_off(own, private.with_name("settings.json"), private)


def _droid(path: Path, entries: list[HookEntry]) -> list[str]:
    """The events in `hooks.json` replace those in the settings next to it."""
    other = path.with_name("hooks.json")
    hidden = sorted({entry.event for entry in entries} & set(_json(other)))
    return [f"{other} replaces the hooks for {', '.join(hidden)}: copy those of Holdfast there"] if hidden else []


def _copilot(agent: Agent, path: Path, places: SettingsPaths) -> list[str]:
    """A hooks file can disable its own hooks, and the settings can disable all."""
    shared = places.project / ".github" / "copilot" / "settings.json"
    off = _switched_off(places.data(agent.name) / "settings.json", shared, shared.with_name("settings.local.json"))
    return off or _switched_off(path)


def _switched_off(*paths: Path) -> list[str]:
    """Any of these files may disable hooks; the one nearest to the project decides."""
    off = None
    for path in paths:
        with contextlib.suppress(OSError, Refused, NotJSON):
            setting = parse(decode_settings(path, read_settings_file(path))).get("disableAllHooks")
            if setting is not None and isinstance(setting.value, bool):
                off = path if setting.value else None
    return [f"hooks are disabled (disableAllHooks in {off})"] if off else []


def _gemini(
    agent: Agent, text: str, entries: list[HookEntry], places: SettingsPaths, scope: SettingsScope
) -> tuple[bool | None, list[str]]:
    config = _mapping(_mapping(parse(text).plain()).get("hooksConfig"))
    problems = []
    if config.get("enabled") is False:
        problems.append("hooks are disabled (hooksConfig.enabled)")
    if "holdfast" in _listed(config.get("disabled")):
        problems.append("the hook is disabled (hooksConfig.disabled)")
    if scope is SettingsScope.USER:
        return None, problems
    trusted = _listed(_json(places.data(agent.name) / "trusted_hooks.json").get(str(places.project)))
    ours = [handler for each in entries for handler in _listed(each.value.get("hooks")) if is_ours(handler, agent.name)]
    keys = {f"{handler.get('name', '')}:{handler.get('command', '')}" for handler in ours}
    is_trusted = keys <= set(map(str, trusted))
    if not is_trusted:
        problems.append("not trusted yet: start gemini in this folder, and accept the hooks")
    return is_trusted, problems


def _codex(path: Path, text: str, places: SettingsPaths) -> tuple[bool | None, list[str]]:
    """Codex stores a hash of each hook that the user accepted, under its file, event and two indexes."""
    file = places.data("codex") / "config.toml"
    try:
        config = durable.parse_toml(decode_settings(file, read_settings_file(file)).encode())
    except (OSError, Refused, ValueError) as error:
        return None, [f"{file} cannot be read ({_why(error)}): fix it"]
    problems = []
    features = _mapping(config.get("features"))
    if False in (features.get("hooks"), features.get("codex_hooks")):
        problems.append("hooks are disabled ([features] hooks)")
    state = _mapping(_mapping(config.get("hooks")).get("state"))
    states = [(_mapping(state.get(key)), wanted) for key, wanted in _codex_hashes(path, text).items()]
    if any(each.get("enabled") is False for each, _ in states):
        problems.append("hooks are disabled: start codex, and enable them (/hooks)")
    trusted = all(each.get("trusted_hash") == wanted for each, wanted in states)
    if not trusted:
        once = any(each.get("trusted_hash") for each, _ in states)
        yet = "in their current form" if once else "yet"
        problems.append(f"not trusted {yet}: start codex, and accept the hooks (/hooks)")
    return trusted, problems


def _codex_hashes(path: Path, text: str) -> dict[str, str]:
    """The expected hash of each hook, under Codex's key for it."""
    found = {}
    hooks = parse(text).get("hooks")
    for member in (hooks.members or []) if hooks else []:
        event = _CAMEL.sub("_", member.key).lower()
        for number, group in enumerate(_listed(member.value.plain())):
            for position, handler in enumerate(_listed(_mapping(group).get("hooks"))):
                if is_ours(handler, "codex"):
                    found[f"{path}:{event}:{number}:{position}"] = trusted_hash(event, _mapping(group), handler)
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(decode_settings(path, read_settings_file(path))))
    except (OSError, Refused, ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
