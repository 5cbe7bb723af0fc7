"""The keys of a workspace's configuration, as msgspec checks them.

Apart from `config`, because importing msgspec takes several milliseconds and most folders have no configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

import msgspec

from holdfast.configuration import ByteSize, ConfigTable, Duration
from holdfast.retention import AUTOMATIC, SPANS, Policy
from holdfast.workspace.config import Settings

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Reasons(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reasons to keep a checkpoint."""

    keep_last: _Count | None = None
    keep_for: Duration | None = None
    keep_every: Annotated[int, msgspec.Meta(ge=1)] | None = None
    keep_last_per_session: _Count | None = None

    def reasons(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in _Reasons.__struct_fields__}
        return values | {"keep_for": None if self.keep_for is None else timedelta(0) + self.keep_for}


class _Retention(_Reasons, frozen=True, forbid_unknown_fields=True):
    max_bytes: ByteSize | None = None
    types: dict[str, _Count | Literal["forever"] | _Reasons] = {}

    def policy(self) -> Policy:
        max_bytes = None if self.max_bytes is None else int(self.max_bytes)
        return Policy(
            **self.reasons(), max_bytes=max_bytes, by_kind={kind: _rule(rule) for kind, rule in self.types.items()}
        )


class _Thinning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keep_for: Duration | None = None
    keep_turns_for: Duration | None = None
    keep_hourly_for: Duration | None = None
    max_bytes: ByteSize | None = None

    def policy(self) -> Policy:
        """Return the default policy with the given values."""
        spans = {name: timedelta(0) + value for name in SPANS if (value := getattr(self, name)) is not None}
        return replace(AUTOMATIC, **spans, max_bytes=None if self.max_bytes is None else int(self.max_bytes))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exclude_patterns: list[str] = []
    ignored_file_max_bytes: ByteSize = ByteSize(Settings().ignored_file_max_bytes)
    ignored_total_max_bytes: ByteSize = ByteSize(Settings().ignored_total_max_bytes)
    watch: bool = False
    helper: bool = False
    scan_secrets: bool = True
    redact: bool = False
    git_objects_max_bytes: ByteSize = ByteSize(Settings().git_objects_max_bytes)
    check: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    check_timeout: Duration | None = None
    locations: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    retention: _Retention | None = None
    thinning: bool | _Thinning = True
    index: Any = None
    """Checked by `holdfast.adapters.index`, where an index is used."""


def read(table: ConfigTable) -> Settings:
    """Return the settings of a configuration. Refused, with file, line and key, if one is not valid."""
    found = table.decode(_File)
    if found.ignored_file_max_bytes > found.ignored_total_max_bytes:
        raise table.error(
            ("ignored_file_max_bytes",),
            "ignored_file_max_bytes is greater than ignored_total_max_bytes",
            f"One file may take {found.ignored_file_max_bytes} bytes, all together {found.ignored_total_max_bytes}.",
        )
    thinning = found.thinning
    tables = [name for name in ("retention", "thinning") if isinstance(table.values.get(name), Mapping)]
    keys = frozenset(table.values) - {*tables, "index"}
    return Settings(
        exclude_patterns=found.exclude_patterns,
        ignored_file_max_bytes=int(found.ignored_file_max_bytes),
        ignored_total_max_bytes=int(found.ignored_total_max_bytes),
        watch=found.watch,
        helper=found.helper,
        scan_secrets=found.scan_secrets,
        redact=found.redact,
        git_objects_max_bytes=int(found.git_objects_max_bytes),
        check=found.check,
        check_timeout_s=Settings().check_timeout_s
        if found.check_timeout is None
        else found.check_timeout.total_seconds(),
        locations=found.locations,
        retention=None if found.retention is None else found.retention.policy(),
        thinning=thinning if isinstance(thinning, bool) else thinning.policy(),
        file=table.file,
        keys_in_file=keys | {f"{name}.{key}" for name in tables for key in table.values[name]},
    )


def _rule(rule: int | str | _Reasons) -> Policy | None:
    """Return the policy of one type: a number keeps that many, `"forever"` all of them."""
    if isinstance(rule, _Reasons):
        return Policy(**rule.reasons())
    return Policy(keep_last=rule) if isinstance(rule, int) else None
