"""Settings of an index: of what kind each is, and what a change of one costs.

Only semantic settings make vectors or chunks what they are. A setting that nobody has classified counts as semantic,
and is named, so that it can be classified: a needless re-embedding is told before it is paid for, a stale index is not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class SettingKind(enum.StrEnum):
    """What a setting is for."""

    SEMANTIC = "semantic"
    """Makes chunks or vectors what they are."""
    LAYOUT = "layout"
    """How a store arranges vectors."""
    QUERY = "query"
    """How queries are made."""
    OPERATIONAL = "operational"
    """How fast, from where, with what patience."""
    SECRET = "secret"
    """Never stored, never hashed."""


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
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")
_ASKED = re.compile(r"([?&;])([^=&;?\s]+)=([^&;\s]*)")


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that differs."""

    name: str
    """Dotted, from the top."""
    kind: SettingKind
    old: Any
    new: Any
    is_known: bool
    """Whether the kind is known; otherwise it is taken for semantic, to be safe."""


def kind_of(name: str) -> tuple[SettingKind, bool]:
    """Of what kind a setting is, by the last part of its name; also whether that is known."""
    last = _HUMP.sub("_", name.rpartition(".")[2]).replace("-", "_").lower()
    if last.endswith(_SECRET_ENDS):
        return SettingKind.SECRET, True
    found = _KIND_OF.get(last)
    return (found, True) if found is not None else (SettingKind.SEMANTIC, False)


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be stored: secrets are left out, at any depth, and of addresses."""
    return {
        str(name): _harmless(value)
        for name, value in settings.items()
        if kind_of(str(name))[0] is not SettingKind.SECRET
    }


def _harmless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if type(value) in (list, tuple):
        return type(value)(_harmless(each) for each in value)
    if isinstance(value, str) and "://" in value:
        return _ASKED.sub(_unless_secret, _OF_URL.sub("", value))
    return value


def _unless_secret(found: re.Match[str]) -> str:
    return found[1] if kind_of(found[2])[0] is SettingKind.SECRET else found[0]


def semantic(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Only what makes chunks and vectors what they are."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found[str(name)] = semantic(value)
        elif kind_of(str(name))[0] is SettingKind.SEMANTIC:
            found[str(name)] = value
    return found


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[SettingChange]:
    """Every setting that differs, by name. Secrets are never told."""
    before, after = dict(_flat(old)), dict(_flat(new))
    found = []
    for name in sorted(before.keys() | after.keys()):
        kind, is_known = kind_of(name)
        one, other = before.get(name), after.get(name)
        if kind is not SettingKind.SECRET and _plain(one) != _plain(other):
            found.append(SettingChange(name, kind, one, other, is_known))
    return found


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _plain(value: Any) -> Any:
    """A value as it compares after it was stored: the order of a set and the kind of a list do not count."""
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return list(value) if isinstance(value, tuple) else value
