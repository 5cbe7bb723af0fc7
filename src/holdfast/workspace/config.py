"""Configuration of a workspace: `holdfast.toml` in it, or `[tool.holdfast]` in its `pyproject.toml`.

Read by the command line and by the checkpoint service. `Workspace` itself reads neither and knows only its arguments;
pass them with `Workspace(path, **read_settings(path).options())`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.configuration import find_configuration
from holdfast.validation import check_place

if TYPE_CHECKING:
    from holdfast.retention import Policy

_THINNING_KEYS = ("keep_for", "keep_turns_for", "keep_hourly_for", "max_bytes")
_RETENTION_KEYS = ("keep_last", "keep_for", "keep_every", "keep_last_per_session", "max_bytes")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a workspace, and the file that they come from."""

    exclude_patterns: list[str] = field(default_factory=list)
    ignored_file_max_bytes: int = 1 << 20
    ignored_total_max_bytes: int = 64 << 20
    watch: bool = False
    """Whether a long-lived process (the checkpoint service) watches the folder through the kernel."""
    helper: bool = False
    """Whether commands leave a helper in the background, which the next ones use."""
    scan_secrets: bool = True
    """Whether a save looks for keys and passwords in what it stores."""
    redact: bool = False
    """Whether secrets are replaced in conversations that agents' hooks capture."""
    git_objects_max_bytes: int = 512 << 20
    """How much is stored of the objects that only the folder's git repository has."""
    retention: Policy | None = None
    """What `prune` keeps if its caller does not say; None if the configuration does not say either."""
    thinning: Policy | bool = True
    """What is kept of automatic checkpoints; True: `retention.AUTOMATIC`, False: all of them."""
    check: str | None = None
    """The command that says whether a checkpoint is good."""
    check_timeout_s: float = 600.0
    locations: tuple[str, ...] = ()
    """Flow stores, training runs and indexes of the project, which `holdfast ui` shows."""
    file: str | None = None
    """The name of the file; None if there is none."""
    keys_in_file: frozenset[str] = frozenset()
    """The keys that the file sets; those of the retention table as `retention.keep_last`."""

    def options(self) -> dict[str, Any]:
        """Return the arguments for a `Workspace`."""
        return {
            "exclude_patterns": self.exclude_patterns,
            "ignored_file_max_bytes": self.ignored_file_max_bytes,
            "ignored_total_max_bytes": self.ignored_total_max_bytes,
            "scan_secrets": self.scan_secrets,
            "redact": self.redact,
            "git_objects_max_bytes": self.git_objects_max_bytes,
            "check_command": self.check,
            "check_timeout_s": self.check_timeout_s,
        }


def read_settings(workspace: str | os.PathLike[str]) -> Settings:
    """Read the configuration of a folder; the defaults if it has none.

    Refused, with the file, the line and the key, for an unknown key or an invalid value.
    """
    table = find_configuration(Path(check_place(workspace, "the workspace")))
    if table is None:
        return Settings()
    from holdfast.workspace import config_file  # start-up cost, only for folders that have a configuration

    return config_file.read(table)


def in_force(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Return every key with its value, as JSON has it, and its origin: a file, or `default`."""
    values: dict[str, Any] = settings.options() | {"watch": settings.watch, "helper": settings.helper}
    values |= {"check": values.pop("check_command"), "check_timeout": f"{values.pop('check_timeout_s'):g}s"}
    values["locations"] = list(settings.locations)
    for key in _RETENTION_KEYS:
        value = None if settings.retention is None else getattr(settings.retention, key)
        values[f"retention.{key}"] = _plain(value)
    values["retention.types"] = _describe_types(settings.retention)
    values |= _describe_thinning(settings.thinning)
    in_file = settings.keys_in_file
    return {key: (value, settings.file or "" if key in in_file else "default") for key, value in values.items()}


def _plain(value: object) -> object:
    return f"{value / timedelta(days=1):g}d" if isinstance(value, timedelta) else value


def _describe_thinning(found: Policy | bool) -> dict[str, object]:
    if found is False:
        return {"thinning": False}
    from holdfast.retention import AUTOMATIC

    policy = AUTOMATIC if found is True else found
    return {f"thinning.{key}": _plain(getattr(policy, key)) for key in _THINNING_KEYS}


def _describe_types(policy: Policy | None) -> list[str]:
    if policy is None:
        return []
    from holdfast.retention import told

    return [f"{kind}: {told(rule)}" for kind, rule in policy.by_kind.items()]
