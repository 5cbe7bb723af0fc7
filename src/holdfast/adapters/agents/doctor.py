"""Whether the hooks of an agent are installed, allowed to run, and have fired; and what they do not cover."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.adapters.agents.agent import Agent, Entry, Places, Scope
from holdfast.adapters.agents.codex import trusted_hash
from holdfast.adapters.agents.settings.jsonc import NotJSON, parse
from holdfast.adapters.agents.settings.ours import are_same, found_entries, is_ours
from holdfast.adapters.agents.settings.reading import decode, read_bytes
from holdfast.adapters.agents.settings.shim import is_current
from holdfast.adapters.agents.windows import Fired, Windows
from holdfast.errors import Refused

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found of one agent."""

    agent: str
    title: str
    is_used: bool
    """Whether the agent has a folder of its own here."""
    installed: dict[str, str] = field(default_factory=dict)
    """The settings file with our hooks, by scope."""
    trusted: bool | None = None
    """None: the agent does not ask."""
    fired: Fired | None = None
    """When the hooks last fired in this workspace."""
    problems: tuple[str, ...] = ()
    """What keeps the hooks from working, each with what to do."""
    not_covered: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether nothing is in the way of installed hooks."""
        return not self.problems


def examine(agent: Agent, places: Places, words: Sequence[str], windows: Windows) -> Examined:
    """Look at the settings of one agent, and at what its hooks left in this workspace. Changes nothing."""
    installed: dict[str, str] = {}
    problems: list[str] = []
    trusted: bool | None = None
    for scope in Scope:
        path = agent.settings(places, scope)
        try:
            text = decode(path, read_bytes(path))
            entries = _ours(agent, text, words)
        except NotADirectoryError:  # there is no such file, nor could there be
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
    return Examined(
        agent=agent.name,
        title=agent.title,
        is_used=agent.data(places).is_dir(),
        installed=installed,
        trusted=trusted,
        fired=windows.fired.get(agent.name),
        problems=tuple(dict.fromkeys(problems)),
        not_covered=agent.not_covered,
    )


def _why(error: Exception) -> str:
    return error.message if isinstance(error, Refused) else getattr(error, "strerror", None) or str(error)


def _ours(agent: Agent, text: str, words: Sequence[str]) -> list[Entry]:
    if agent.own_file is None:
        return found_entries(text, agent.name)
    is_ours = text.partition("\n")[0] == agent.own_file(words).partition("\n")[0]
    return [Entry("plugin", {"text": text})] if is_ours else []


def _wrong_entries(agent: Agent, entries: list[Entry], words: Sequence[str], scope: Scope, places: Places) -> list[str]:
    again = f"run: holdfast install {agent.name} --{scope.value}"
    wanted = agent.entries(words) if agent.own_file is None else [Entry("plugin", {"text": agent.own_file(words)})]
    if not is_current(places.environ, places.python):
        return [f"{words[0]} is not there, or is of another Holdfast: {again}"]
    return [] if are_same(entries, wanted) else [f"the entries are not those of this Holdfast: {again}"]


def _allowed(
    agent: Agent, path: Path, text: str, entries: list[Entry], places: Places, scope: Scope
) -> tuple[bool | None, list[str]]:
    if agent.name == "claude-code":
        return None, _claude_code(agent, places)
    if agent.name == "copilot":
        return None, _copilot(agent, path, places)
    if agent.name == "gemini":
        return _gemini(agent, text, entries, places, scope)
    if agent.name == "codex":
        return _codex(path, text, places)
    return None, []


def _claude_code(agent: Agent, places: Places) -> list[str]:
    own, private = (agent.settings(places, scope) for scope in (Scope.USER, Scope.PROJECT))
    return _switched_off(own, private.with_name("settings.json"), private)


def _copilot(agent: Agent, path: Path, places: Places) -> list[str]:
    """A file of hooks may switch its own off, and settings all of them."""
    shared = places.project / ".github" / "copilot" / "settings.json"
    off = _switched_off(agent.data(places) / "settings.json", shared, shared.with_name("settings.local.json"))
    return off or _switched_off(path)


def _switched_off(*paths: Path) -> list[str]:
    """Any of these files may switch hooks off; of several that say something, the nearest to the project decides."""
    off = None
    for path in paths:
        with contextlib.suppress(OSError, Refused, NotJSON):
            said = parse(decode(path, read_bytes(path))).get("disableAllHooks")
            if said is not None and isinstance(said.value, bool):
                off = path if said.value else None
    return [f"hooks are switched off (disableAllHooks in {off})"] if off else []


def _gemini(
    agent: Agent, text: str, entries: list[Entry], places: Places, scope: Scope
) -> tuple[bool | None, list[str]]:
    said = _mapping(_mapping(parse(text).plain()).get("hooksConfig"))
    problems = []
    if said.get("enabled") is False:
        problems.append("hooks are switched off (hooksConfig.enabled)")
    if "holdfast" in _listed(said.get("disabled")):
        problems.append("our hook is switched off (hooksConfig.disabled)")
    if scope is Scope.USER:
        return None, problems
    trusted = _listed(_json(agent.data(places) / "trusted_hooks.json").get(str(places.project)))
    ours = [handler for each in entries for handler in _listed(each.value.get("hooks")) if is_ours(handler, agent.name)]
    keys = {f"{handler.get('name', '')}:{handler.get('command', '')}" for handler in ours}
    return keys <= set(map(str, trusted)), problems


def _codex(path: Path, text: str, places: Places) -> tuple[bool | None, list[str]]:
    """Codex keeps a hash for each hook that the user accepted, under the file, the event and two numbers."""
    file = places.chosen("CODEX_HOME", ".codex") / "config.toml"
    try:
        config = durable.parse_toml(decode(file, read_bytes(file)).encode())
    except (OSError, Refused, ValueError) as error:
        return None, [f"{file} cannot be read ({_why(error)}): fix it"]
    problems = []
    features = _mapping(config.get("features"))
    if False in (features.get("hooks"), features.get("codex_hooks")):
        problems.append("hooks are switched off ([features] hooks)")
    state = _mapping(_mapping(config.get("hooks")).get("state"))
    said = [(_mapping(state.get(key)), wanted) for key, wanted in _codex_hashes(path, text).items()]
    if any(each.get("enabled") is False for each, _ in said):
        problems.append("hooks of ours are switched off: start codex, and switch them on (/hooks)")
    trusted = all(each.get("trusted_hash") == wanted for each, wanted in said)
    if not trusted:
        once = any(each.get("trusted_hash") for each, _ in said)
        yet = "as they are now" if once else "yet"
        problems.append(f"not trusted {yet}: start codex, and accept the hooks (/hooks)")
    return trusted, problems


def _codex_hashes(path: Path, text: str) -> dict[str, str]:
    """The hash that each of our hooks is trusted by, under the name that Codex has for it."""
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
        return _mapping(json.loads(decode(path, read_bytes(path))))
    except (OSError, Refused, ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    """What somebody wrote, if it is a mapping, as it should be."""
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
