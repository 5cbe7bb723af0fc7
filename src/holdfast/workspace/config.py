"""Configuration of a workspace: `holdfast.toml` in it, or `[tool.holdfast]` in its `pyproject.toml`.

Read by the command line and by the checkpoint service. `Workspace` itself reads neither and knows only its arguments;
`Workspace(path, **read_settings(path).options())` hands them over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Refused
from holdfast.workspace.given import a_path
from holdfast.workspace.quantities import parse_size, parse_span
from holdfast.workspace.tables import Checks, checked, find_table, nearest, number, shown, switch, texts

if TYPE_CHECKING:
    from holdfast.retention import Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force for a workspace, and which file says so."""

    exclude_patterns: list[str] = field(default_factory=list)
    ignored_file_max_bytes: int = 1 << 20
    ignored_total_max_bytes: int = 64 << 20
    watch: bool = False
    """Whether a long-lived process (the checkpoint service) has the kernel tell what changes."""
    retention: Policy | None = None
    """What `prune` keeps where nothing else is said; None: nothing is said."""
    file: str | None = None
    """The name of the file; None where there is none."""
    given: frozenset[str] = frozenset()
    """The keys that the file has, those of the retention with `retention.` before them."""

    def options(self) -> dict[str, Any]:
        """The arguments for a `Workspace`."""
        return {
            "exclude_patterns": self.exclude_patterns,
            "ignored_file_max_bytes": self.ignored_file_max_bytes,
            "ignored_total_max_bytes": self.ignored_total_max_bytes,
        }


def read_settings(workspace: str | os.PathLike[str]) -> Settings:
    """Read the configuration of a folder; the defaults where it has none.

    Refused, with the file, the key and the nearest valid one, for what is unknown, contradicts itself or is of a wrong
    type.
    """
    folder = Path(a_path(workspace, "the workspace"))
    found = find_table(folder)
    return Settings() if found is None else _settings(*found)


def in_force(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Every key with its value, as JSON has it, and where that comes from: a file, or `default`."""
    values: dict[str, Any] = settings.options() | {"watch": settings.watch}
    for key in _REASONS:
        value = None if settings.retention is None else getattr(settings.retention, key)
        values[f"retention.{key}"] = f"{value / timedelta(days=1):g}d" if isinstance(value, timedelta) else value
    values[f"retention.{_TYPES}"] = _told_types(settings.retention)
    return {key: (value, settings.file or "" if key in settings.given else "default") for key, value in values.items()}


def _told_types(policy: Policy | None) -> list[str]:
    if policy is None:
        return []
    from holdfast.retention import told

    return [f"{kind}: {told(rule)}" for kind, rule in policy.by_kind.items()]


# checking


def _settings(table: Mapping[str, Any], file: str) -> Settings:
    values = checked(table, _KEYS, file, "")
    values.pop("index", None)
    retention = values.pop("retention", None)
    given = frozenset(values) | {f"retention.{key}" for key in retention or ()}
    settings = Settings(**values, retention=_policy(retention), file=file, given=given)
    if settings.ignored_file_max_bytes > settings.ignored_total_max_bytes:
        raise Refused(
            f"{file}: ignored_file_max_bytes is greater than ignored_total_max_bytes",
            hint=f"One file may take {settings.ignored_file_max_bytes} bytes, all together"
            f" {settings.ignored_total_max_bytes}.",
        )
    return settings


def _policy(values: Mapping[str, Any] | None) -> Policy | None:
    if values is None:
        return None
    from holdfast.retention import Policy  # start-up cost, for those who have one

    reasons = {key: value for key, value in values.items() if key != _TYPES}
    return Policy(**reasons, by_kind={kind: _policy(rule) for kind, rule in values.get(_TYPES, {}).items()})


def _bytes(value: Any, what: str) -> int:
    if isinstance(value, str):
        return parse_size(value, what)
    return number(value, what)


def _span(value: Any, what: str) -> Any:
    if not isinstance(value, str):
        raise Refused(f"{what} is {shown(value)}", hint='Write a number and s, m, h, d or w, such as "30d".')
    return parse_span(value, what)


def _retention(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(
            f"{what} is {shown(value)}", hint="It is a table: [retention] with lines such as keep_last = 100."
        )
    values = _reasons({key: each for key, each in value.items() if key != _TYPES}, what)
    if _TYPES in value:
        values[_TYPES] = _types(value[_TYPES], f"{what}.{_TYPES}")
    _policy(values)  # Refused for what makes no sense
    return values


def _reasons(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    for key in value:
        if key not in _REASONS:
            raise Refused(f"there is no key {f'{what}.{key}'!r}", hint=nearest(key, _REASONS, f"{what}."))
    return {key: _REASONS[key](each, f"{what}.{key}") for key, each in value.items()}


def _types(value: Any, what: str) -> dict[str, dict[str, Any] | None]:
    if not isinstance(value, dict):
        raise Refused(f"{what} is {shown(value)}", hint=f"It is a table: [{what}] with lines such as automatic = 10.")
    return {kind: _type(rule, f"{what}.{kind}") for kind, rule in value.items()}


def _type(value: Any, what: str) -> dict[str, Any] | None:
    """A number keeps the last so many, `"forever"` all (None); a table has reasons of its own."""
    if value == _FOREVER:
        return None
    if isinstance(value, dict):
        return _reasons(value, what)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{what} is {shown(value)}", hint=f'Write a whole number, "{_FOREVER}", or a table of reasons.')
    return {"keep_last": value}


def _of_others(value: Any, what: str) -> None:
    """Read, and checked, by the room whose table it is."""


_TYPES, _FOREVER = "types", "forever"
_REASONS: Checks = {
    "keep_last": number,
    "keep_for": _span,
    "keep_every": number,
    "keep_last_per_session": number,
    "max_bytes": _bytes,
}
_KEYS: Checks = {
    "exclude_patterns": texts,
    "ignored_file_max_bytes": _bytes,
    "ignored_total_max_bytes": _bytes,
    "watch": switch,
    "retention": _retention,
    "index": _of_others,  # `holdfast.adapters.index`
}
