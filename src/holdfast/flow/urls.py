"""Opens stores by URL. The module of a back end, and its driver, is imported when a URL names it."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import Extra, Refused
from holdfast.flow.states import States
from holdfast.flow.store import StateStore
from holdfast.flow.validation import check_sizes, check_ttl
from holdfast.serde import Keys, Registry, Serde, default_registry
from holdfast.validation import check_known, without_driver

_HINT = "Use memory://, sqlite:///state.db, postgresql://… or redis://…"
_BACK_ENDS = {
    "memory": "memory", "sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres", "redis": "redis",
    "rediss": "redis", "unix": "redis", "redis+cluster": "redis", "rediss+cluster": "redis",
}  # fmt: skip
_SQLALCHEMY_MEMORY = ("sqlite:", "sqlite://", "sqlite:///", "sqlite:///:memory:")


_OPTIONS = {
    "memory": ("create",),
    "sqlite": ("synchronous", "timeout", "create"),
    "postgres": ("schema", "pool_size", "timeout", "prepare", "create"),
    "redis": ("prefix", "timeout", "create", "allow_eviction"),
}
"""The options of each back end; its class, with its driver, is imported when it is opened."""


def open_store(url: str, *, tenant: str = "", **options: Any) -> StateStore:
    """Open a back end. Options are those of its class: `synchronous`, `schema`, `prefix` …, `create`.

    `synchronous`, `schema` and `prefix` may also be in the URL: `postgresql://…?schema=mine`. URLs of SQLAlchemy name
    a driver, too, which is not used: `sqlite+aiosqlite:///state.db`, `postgresql+asyncpg://…`.
    """
    back_end = check_store_options(url, options)
    plain = without_driver(url)
    if back_end == "memory" or (plain != url and plain in _SQLALCHEMY_MEMORY):
        from holdfast.flow.memory import MemoryStore

        return MemoryStore(tenant=tenant)
    if back_end == "sqlite":
        from holdfast.flow.sqlite import SQLiteStore

        path, more = _sqlite_path(plain)
        return SQLiteStore(path, tenant=tenant, **more, **options)
    if back_end == "postgres":
        plain, given = _taken(plain if plain == url else _libpq(plain), "schema")
        return _driven("postgres", "PostgresStore")(plain, tenant=tenant, **(given | options))
    plain, given = _taken(plain, "prefix")
    return _driven("redis", "RedisStore")(plain, tenant=tenant, **(given | options))


def check_store_options(url: str, options: Mapping[str, Any], *, more: Iterable[str] = ()) -> str:
    """The back end of a URL. Refused if there is none, or for an option that neither it nor `more` has."""
    if not isinstance(url, str):
        raise Refused(f"the URL of a store is a {type(url).__name__}, not a str", hint=_HINT)
    scheme = without_driver(url).partition(":")[0]
    back_end = _BACK_ENDS.get(scheme)
    if back_end is None:
        raise Refused(f"unknown kind of store: {scheme!r}", hint=_HINT)
    check_known(options, {*_OPTIONS[back_end], *more}, f"a {back_end} store")
    return back_end


def open_states(
    url: str,
    *,
    tenant: str = "",
    registry: Registry = default_registry,
    on_unknown: Literal["raise", "keep"] = "raise",
    keys: Keys | None = None,
    compress: bool = True,
    ttl: timedelta | float | None = None,
    max_state_bytes: int = 1 << 30,
    memory_bytes: int = 64 << 20,
    clock: Callable[[], float] = time.time,
    **options: Any,
) -> States:
    """Open a store by its URL; `open_checkpointer` does the same for asyncio. `ttl` is a timedelta, or seconds."""
    check_sizes(max_state_bytes, memory_bytes)  # before a file is created
    lifetime = check_ttl(ttl)
    return States(
        open_store(url, tenant=tenant, **options),
        serde=Serde(registry, on_unknown=on_unknown),
        keys=keys,
        compress=compress,
        ttl=lifetime,
        max_state_bytes=max_state_bytes,
        memory_bytes=memory_bytes,
        clock=clock,
    )


def _driven(file: str, name: str) -> Callable[..., StateStore]:
    """The class of a back end; NotInstalled if its driver is missing."""
    with Extra(file):
        found: Callable[..., StateStore] = getattr(importlib.import_module(f"holdfast.flow.{file}"), name)
    return found


def _libpq(url: str) -> str:
    """The URL with the name that libpq has for the option `ssl` of asyncpg."""
    return re.sub(r"(?<=[?&])ssl=", "sslmode=", url)


def _taken(url: str, option: str) -> tuple[str, dict[str, str]]:
    """Split one of our own options off a URL: the driver does not know it."""
    before, mark, query = url.partition("?")
    pairs = query.split("&") if mark else []
    ours = [pair for pair in pairs if pair.partition("=")[0] == option]
    if not ours:
        return url, {}
    rest = "&".join(pair for pair in pairs if pair not in ours)
    return f"{before}?{rest}" if rest else before, {option: unquote(ours[-1].partition("=")[2])}


def _sqlite_path(url: str) -> tuple[str, dict[str, Any]]:
    """The file of `sqlite:///state.db` (relative) or `sqlite:////var/state.db`, and the options after a `?`."""
    parts = urlsplit(url)
    path = unquote(parts.path, errors="surrogateescape")[1:]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_cut = set(url) & set("#\t\r\n") or url.endswith("?")  # the parser drops these, and would name another file
    if parts.netloc or not url.startswith("sqlite:///") or not path or options.keys() - {"synchronous"} or is_cut:
        raise Refused(
            "this SQLite URL names no file, or has an unknown option",
            hint="Write sqlite:///state.db or sqlite:////var/lib/app/state.db; # is written as %23, ? as %3F.",
        )
    if path == ":memory:" or path.startswith("file:"):  # special names of SQLite, not files
        raise Refused(
            f"{path} is a special name of SQLite, not a file",
            hint="Write memory:// for states in memory, or sqlite:///state.db; put ./ before such a name.",
        )
    return os.path.expanduser(path), options
