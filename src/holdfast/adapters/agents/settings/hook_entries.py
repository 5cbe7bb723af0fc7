"""The hook entries of Holdfast in a settings file: recognised by their command, added, removed. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.adapters.agents.base import Agent, HookEntry
from holdfast.adapters.agents.settings.jsonc import JsonNode, NotJSON, add_item, add_member, parse, remove_child

_COMMANDS = ("command", "bash", "powershell")


def is_ours(value: Any, agent: str) -> bool:
    """Whether a handler runs `holdfast hook AGENT`, however it is written."""
    if not isinstance(value, dict):
        return False
    for key in _COMMANDS:
        text = value.get(key)
        if isinstance(text, str) and _runs_us(_words(text, value.get("args")), agent):
            return True
    return False


def has_ours(value: Any, agent: str) -> bool:
    """Whether an entry, or a handler in it, is Holdfast's."""
    if isinstance(value, dict) and isinstance(value.get("hooks"), list):
        return any(is_ours(handler, agent) for handler in value["hooks"])
    return is_ours(value, agent)


def found_entries(text: str, agent: str) -> list[HookEntry]:
    """The entries of Holdfast in a settings text. NotJSON if it cannot be parsed."""
    hooks = parse(text).get("hooks") if text.strip() else None
    return [
        HookEntry(member.key, item.plain())
        for member in (hooks.members or [] if hooks else [])
        for item in member.value.items or []
        if has_ours(item.plain(), agent)
    ]


def are_same(found: list[HookEntry], wanted: list[HookEntry]) -> bool:
    """Whether two lists of entries are equal, whatever the order of events."""
    return sorted(found, key=_event) == sorted(wanted, key=_event)


def _event(entry: HookEntry) -> str:
    return entry.event


def with_entries(text: str, agent: Agent, entries: list[HookEntry]) -> str:
    """The text with exactly these entries of Holdfast; unchanged if it has them already."""
    if not text.strip():
        listed: dict[str, list[Any]] = {}
        for entry in entries:
            listed.setdefault(entry.event, []).append(entry.value)
        return json.dumps({**agent.frame, "hooks": listed}, indent=2) + "\n"
    if are_same(found_entries(text, agent.name), entries):
        return text
    given, text = text, without_entries(text, agent.name)
    for key, value in agent.frame.items():
        root = parse(text)
        if root.get(key) is None:
            text = add_member(text, root, key, value)
    for entry in entries:
        text = _with_entry(text, entry)
    return _checked(given, text, agent.name, agent.frame)


def without_entries(text: str, agent: str) -> str:
    """The text without any entry of Holdfast, and without lists that become empty by that."""
    given = text
    while text.strip():
        shorter = _without_one(text, agent)
        if shorter is None:
            break
        text = shorter
    return text if text == given else _checked(given, text, agent, {})


def _checked(before: str, after: str, agent: str, frame: Mapping[str, Any]) -> str:
    """The text after an edit, after checking that everything else in it has the same meaning (P1)."""
    if {**frame, **_of_others(before, agent)} != {**frame, **_of_others(after, agent)}:
        raise NotJSON("the entries of Holdfast cannot be separated from the rest; a key may be duplicated")
    return after


def _of_others(text: str, agent: str) -> dict[str, Any]:
    """The value of a text, without the entries of Holdfast and containers of nothing else."""
    found = parse(text).plain()
    hooks = found.get("hooks") if isinstance(found, dict) else None
    if not isinstance(hooks, dict):
        return dict(found) if isinstance(found, dict) else {"": found}
    kept = {event: _left(listed, agent) if isinstance(listed, list) else listed for event, listed in hooks.items()}
    found["hooks"] = {event: listed for event, listed in kept.items() if listed != []}
    return {key: value for key, value in found.items() if key != "hooks" or value}


def _left(listed: list[Any], agent: str) -> list[Any]:
    found = []
    for item in listed:
        if has_ours(item, agent) and isinstance(item.get("hooks"), list):
            item = {**item, "hooks": [each for each in item["hooks"] if not is_ours(each, agent)]}
            found += [item] if item["hooks"] else []
        elif not has_ours(item, agent):
            found.append(item)
    return found


def _with_entry(text: str, entry: HookEntry) -> str:
    root = parse(text)
    if root.members is None:
        raise NotJSON("it is not an object")
    hooks = root.get("hooks")
    if hooks is None:
        return add_member(text, root, "hooks", {entry.event: [entry.value]})
    if hooks.members is None:
        raise NotJSON('"hooks" is not an object')
    listed = hooks.get(entry.event)
    if listed is None:
        return add_member(text, hooks, entry.event, [entry.value])
    if listed.items is None:
        raise NotJSON(f'"hooks" has a {entry.event!r} that is not a list')
    return add_item(text, listed, entry.value)


def _without_one(text: str, agent: str) -> str | None:
    """The text with one entry of Holdfast removed; None if there is none."""
    root = parse(text)
    hooks = root.get("hooks")
    if hooks is None or hooks.members is None:
        return None
    for number, member in enumerate(hooks.members):
        for position, item in enumerate(member.value.items or []):
            if has_ours(item.plain(), agent):
                return _remove(text, root, hooks, number, position, item, agent)
    return None


def _remove(text: str, root: JsonNode, hooks: JsonNode, number: int, position: int, item: JsonNode, agent: str) -> str:
    """Remove a handler of Holdfast, and containers of nothing else."""
    members, listed = hooks.members or [], (hooks.members or [])[number].value
    handlers = item.get("hooks")
    inner = handlers.items or [] if handlers else []
    if handlers and any(not is_ours(handler.plain(), agent) for handler in inner):
        ours = next(at for at, handler in enumerate(inner) if is_ours(handler.plain(), agent))
        return remove_child(text, handlers, ours)
    if len(listed.items or []) > 1:
        return remove_child(text, listed, position)
    if len(members) > 1:
        return remove_child(text, hooks, number)
    at = next(at for at, member in enumerate(root.members or []) if member.value is hooks)
    return remove_child(text, root, at)


def _words(text: str, args: Any) -> list[str]:
    if isinstance(args, list):
        return [text, *(word for word in args if isinstance(word, str))]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _runs_us(words: list[str], agent: str) -> bool:
    """Whether a command does just that, perhaps with the name of an event; one that does more is not Holdfast's."""
    words = words[:-2] if words[-2:] == ["||", "true"] else words
    at = next((at for at, word in enumerate(words) if word == "hook" and words[at + 1 : at + 2] == [agent]), 0)
    if not at or len(words) > at + 3:
        return False
    program, *switches = words[:at]
    if not switches:
        return Path(program).name in ("holdfast", "holdfast.exe")
    return switches[-2:] == ["-m", "holdfast.cli"] and all(word.startswith("-") for word in switches[:-1])
