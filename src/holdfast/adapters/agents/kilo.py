"""Kilo: a fork of opencode, with the same plugins and commands in folders of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.agents import opencode
from holdfast.adapters.agents.base import Agent, HookEntry, SettingsPaths, SettingsScope
from holdfast.adapters.agents.event import AgentEvent, EventFields
from holdfast.adapters.agents.slash_commands import SLASH_COMMANDS, markdown_for_plugin

NAME = "kilo"


def _settings(places: SettingsPaths, scope: SettingsScope) -> Path:
    return _folder(places, scope) / "plugins" / "holdfast.js"


def _folder(places: SettingsPaths, scope: SettingsScope) -> Path:
    return places.data("kilo") if scope is SettingsScope.USER else places.project / ".kilo"


def _entries(words: Sequence[str]) -> list[HookEntry]:
    return []


def _own_file(words: Sequence[str]) -> str:
    return opencode.plugin(NAME, words)


def _commands(places: SettingsPaths, scope: SettingsScope, program: Sequence[str]) -> dict[Path, str]:
    folder = _folder(places, scope) / "commands"
    return {folder / f"holdfast-{each.name}.md": markdown_for_plugin(each) for each in SLASH_COMMANDS}


def _read(fields: EventFields, environ: Mapping[str, str]) -> AgentEvent:
    return replace(opencode.AGENT.read(fields, environ), agent=NAME)


AGENT = Agent(
    name=NAME,
    title="Kilo",
    settings=_settings,
    entries=_entries,
    read=_read,
    frame={},
    own_file=_own_file,
    speaks=False,
    commands=_commands,
    not_covered=opencode.AGENT.not_covered,
)
