"""Configuration of a workspace: `holdfast.toml` in it, or `[tool.holdfast]` in its `pyproject.toml`.

Read by the command line and by the checkpoint service. `Workspace` itself reads neither and knows only its arguments;
`Workspace(path, **read_settings(path).options())` hands them over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Refused, Unavailable
from holdfast.workspace.given import a_path
from holdfast.workspace.quantities import parse_size, parse_span

if TYPE_CHECKING:
    from holdfast.retention import Policy

OWN, SHARED = "holdfast.toml", "pyproject.toml"
_MOST_BYTES = 1 << 20


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
    own = _table(folder / OWN, ())
    shared = _table(folder / SHARED, ("tool", "holdfast"))
    if own is not None and shared is not None:
        raise Refused(
            f"{OWN} and [tool.holdfast] in {SHARED} both configure {workspace}", hint="Keep one and remove the other."
        )
    if own is None and shared is None:
        return Settings()
    return _settings(own if shared is None else shared, OWN if shared is None else SHARED)  # type: ignore[arg-type]


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
    values = _checked(table, _KEYS, file, "")
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


def _checked(table: Mapping[str, Any], keys: Mapping[str, Callable[[Any, str], Any]], file: str, above: str) -> Any:
    values = {}
    for key, value in table.items():
        if key not in keys:
            raise Refused(f"{file}: there is no key {above + key!r}", hint=_nearest(key, keys, above))
        try:
            values[key] = keys[key](value, above + key)
        except Refused as error:
            raise Refused(f"{file}: {error.message}", hint=error.hint) from None
    return values


def _nearest(key: str, keys: Mapping[str, object], above: str) -> str:
    import difflib  # start-up cost, for a misspelt key only

    near = difflib.get_close_matches(key, keys, n=1)
    return f"Did you mean {above}{near[0]}?" if near else f"The keys are {', '.join(above + name for name in keys)}."


def _patterns(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Refused(f"{what} is {value!r}", hint='Write a list of texts, such as ["*.log", "data/"].')
    return value


def _bytes(value: Any, what: str) -> int:
    if isinstance(value, str):
        return parse_size(value, what)
    return _number(value, what)


def _switch(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{what} is {value!r}", hint="Write true or false.")
    return value


def _number(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{what} is {value!r}", hint="Write a whole number, 0 or more.")
    return value


def _span(value: Any, what: str) -> Any:
    if not isinstance(value, str):
        raise Refused(f"{what} is {value!r}", hint='Write a number and s, m, h, d or w, such as "30d".')
    return parse_span(value, what)


def _retention(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{what} is {value!r}", hint="It is a table: [retention] with lines such as keep_last = 100.")
    values = _reasons({key: each for key, each in value.items() if key != _TYPES}, what)
    if _TYPES in value:
        values[_TYPES] = _types(value[_TYPES], f"{what}.{_TYPES}")
    _policy(values)  # Refused for what makes no sense
    return values


def _reasons(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    for key in value:
        if key not in _REASONS:
            raise Refused(f"there is no key {f'{what}.{key}'!r}", hint=_nearest(key, _REASONS, f"{what}."))
    return {key: _REASONS[key](each, f"{what}.{key}") for key, each in value.items()}


def _types(value: Any, what: str) -> dict[str, dict[str, Any] | None]:
    if not isinstance(value, dict):
        raise Refused(f"{what} is {value!r}", hint=f"It is a table: [{what}] with lines such as automatic = 10.")
    return {kind: _type(rule, f"{what}.{kind}") for kind, rule in value.items()}


def _type(value: Any, what: str) -> dict[str, Any] | None:
    """A number keeps the last so many, `"forever"` all (None); a table has reasons of its own."""
    if value == _FOREVER:
        return None
    if isinstance(value, dict):
        return _reasons(value, what)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{what} is {value!r}", hint=f'Write a whole number, "{_FOREVER}", or a table of reasons.')
    return {"keep_last": value}


_TYPES, _FOREVER = "types", "forever"
_REASONS: dict[str, Callable[[Any, str], Any]] = {
    "keep_last": _number,
    "keep_for": _span,
    "keep_every": _number,
    "keep_last_per_session": _number,
    "max_bytes": _bytes,
}
_KEYS: dict[str, Callable[[Any, str], Any]] = {
    "exclude_patterns": _patterns,
    "ignored_file_max_bytes": _bytes,
    "ignored_total_max_bytes": _bytes,
    "watch": _switch,
    "retention": _retention,
}


# reading


def _table(path: Path, keys: tuple[str, ...]) -> Mapping[str, Any] | None:
    """A table of a file; None if either is not there. A file that does not mention us is not even parsed."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(f"{path.name} cannot be read: {error.strerror}", hint="Mend that, or remove it.") from error
    if keys and not all(key.encode() in data for key in keys):
        return None
    if len(data) > _MOST_BYTES:
        raise Refused(f"{path.name} is above 1 MiB", hint=f"Keep the configuration in a file of its own, {OWN}.")
    import tomllib  # start-up cost, only where there is something to read

    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path.name} is not TOML: {error}", hint="Mend that line.") from None
    for key in keys:
        if key not in table:
            return None
        table = table[key]
        if not isinstance(table, dict):
            raise Refused(f"{path.name}: {key} is {table!r}", hint="It is a table: [tool.holdfast].")
    return table
