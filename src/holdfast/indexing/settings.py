"""Settings of an index: the kind of each, and their changes.

Only semantic settings change vectors or chunks. An unknown setting counts as semantic and is reported: a needless
re-embedding shows up in the plan before it is paid for, a stale index would not.
"""

from __future__ import annotations

import base64
import enum
import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from holdfast.digest import canonical


class SettingKind(enum.StrEnum):
    """What a setting is for."""

    SEMANTIC = "semantic"
    """Changes chunks or vectors."""
    LAYOUT = "layout"
    """How a store arranges vectors."""
    QUERY = "query"
    """How queries are made."""
    OPERATIONAL = "operational"
    """Speed, address, timeouts."""
    SECRET = "secret"
    """Never stored, never hashed (P7)."""


_KINDS = {
    SettingKind.SECRET: {
        "api_key", "apikey", "key", "token", "secret", "password", "credentials", "authorization", "headers", "auth",
        "bearer", "passwd", "pwd", "passphrase", "credential", "cookie", "cookies", "dsn", "connection_string",
    },
    SettingKind.OPERATIONAL: {
        "batch_size", "batch", "workers", "threads", "concurrency", "parallel", "timeout", "timeout_s", "retries",
        "max_retries", "device", "base_url", "url", "host", "port", "endpoint", "rate_limit", "cache_dir", "verbose",
        "progress", "log_level", "usd_per_mtok", "price", "user_agent", "proxy",
    },
    SettingKind.QUERY: {"query_model", "query_prompt", "query_instruction", "top_k", "rerank", "reranker", "ef_search"},
    SettingKind.LAYOUT: {
        "metric", "distance", "hnsw", "ef_construct", "m", "index_type", "nlist", "shards", "replicas", "on_disk",
        "collection", "table", "quantization",
    },
    SettingKind.SEMANTIC: {
        "model", "revision", "dimension", "datatype", "normalize", "normalise", "doc_prompt", "document_prompt",
        "chunk_size", "size", "overlap", "separator", "separators", "splitter", "parser", "language", "encoding",
        "include", "exclude", "extensions", "max_bytes", "version", "implementation", "calibration", "family",
    },
}  # fmt: skip
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names}
_SECRET_ENDS = tuple(f"_{name}" for name in sorted(_KINDS[SettingKind.SECRET]))
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_URL_USER = re.compile(r"(?<=://)[^/@\s]+@")
_URL_ARGUMENT = re.compile(r"([?&;])([^=&;?\s]+)=([^&;\s]*)")


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting that changed."""

    name: str
    """Dotted, from the top."""
    kind: SettingKind
    old: Any
    new: Any
    is_known: bool
    """Whether the kind is known; an unknown one counts as semantic, to be safe."""


def kind_of(name: str) -> tuple[SettingKind, bool]:
    """Return the kind of a setting by the last part of its name, and whether it is known."""
    last = _CAMEL_CASE.sub("_", name.rpartition(".")[2]).replace("-", "_").lower()
    if last.endswith(_SECRET_ENDS):
        return SettingKind.SECRET, True
    found = _KIND_OF.get(last)
    return (found, True) if found is not None else (SettingKind.SEMANTIC, False)


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without secrets, at any depth and in URLs."""
    return {
        str(name): _redacted(value)
        for name, value in settings.items()
        if kind_of(str(name))[0] is not SettingKind.SECRET
    }


def _redacted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_redacted(each) for each in value)
    if isinstance(value, str) and "://" in value:
        return _URL_ARGUMENT.sub(_unless_secret, _URL_USER.sub("", value))
    return value


def _unless_secret(found: re.Match[str]) -> str:
    return found[1] if kind_of(found[2])[0] is SettingKind.SECRET else found[0]


def semantic(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the settings that change chunks or vectors."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found[str(name)] = semantic(value)
        elif kind_of(str(name))[0] is SettingKind.SEMANTIC:
            found[str(name)] = value
    return found


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[SettingChange]:
    """Return every setting that differs, by name, except secrets."""
    before, after = dict(_flat(old)), dict(_flat(new))
    found = []
    for name in sorted(before.keys() | after.keys()):
        kind, is_known = kind_of(name)
        one, other = before.get(name), after.get(name)
        if kind is not SettingKind.SECRET and plain(one) != plain(other):
            found.append(SettingChange(name, kind, one, other, is_known))
    return found


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def relevant(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as JSON values, without those that change neither chunks, vectors nor answers."""
    dropped = (SettingKind.SECRET, SettingKind.OPERATIONAL)
    return {str(name): _relevant(value) for name, value in settings.items() if kind_of(str(name))[0] not in dropped}


def _relevant(value: Any) -> Any:
    if isinstance(value, Mapping):
        return relevant(value)
    if isinstance(value, list | tuple):
        return [_relevant(each) for each in value]
    return plain(_redacted(value))


def plain(value: Any) -> Any:
    """Return a value as it is after storing it as JSON and loading it: tuples and sets are lists, paths are text.

    A set is sorted, so that the same set is the same list in every process.
    """
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted((plain(each) for each in value), key=canonical)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    if isinstance(value, os.PathLike):
        return os.fsdecode(value).replace(os.sep, "/")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta | Decimal | UUID) else value
