"""Completing words on the command line: checkpoints, paths, sessions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from holdfast.cli.command import AFTER_DASHES
from holdfast.errors import HoldfastError
from holdfast.location import is_url
from holdfast.model.documents import short

if TYPE_CHECKING:
    from holdfast.model import Checkpoint

_REFS = frozenset({"a", "b", "bad", "before", "good", "ref", "refs", "since"})
_ACTORS = frozenset({"actor", "agent"})
_WHERES = frozenset({"path", "paths", "directory", "folder", "keys", "to_keys"})
_SHOWN = 50
_PLAIN = re.compile(r"[\w.@+:/-]+")  # what needs no quoting in any shell


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem] | None:
    """What a word may become, by the name of what it is for; None leaves it to the parameter itself."""
    if param.name in _WHERES or (AFTER_DASHES in ctx.meta and param.name in _REFS):
        return [CompletionItem(incomplete, type="file")]
    words = [*ctx.params.values(), *ctx.args]  # the latter while the value of an option is still to come
    words = [each for word in words for each in (word if isinstance(word, tuple) else (word,))]
    if any(is_url(word) for word in words if isinstance(word, str)):
        return []  # a server is not asked for the sake of a word
    if param.name in _REFS:
        return [item for item in _refs(ctx) if item.value.startswith(incomplete)]
    if param.name == "session":
        return _words((found.session for found in _checkpoints(ctx)), incomplete)
    if param.name in _ACTORS:
        return _words((found.actor for found in _checkpoints(ctx)), incomplete)
    return None


def _words(names: Iterable[str | None], incomplete: str) -> list[CompletionItem]:
    known = dict.fromkeys(name for name in names if name)
    return [CompletionItem(name) for name in known if _PLAIN.fullmatch(name) and name.startswith(incomplete)]


def complete_folder(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A folder."""
    return [CompletionItem(incomplete, type="dir")]


def _refs(ctx: click.Context) -> list[CompletionItem]:
    found = _checkpoints(ctx)
    items = [CompletionItem("latest", help=_line(found[0].message))] if found else []
    named = [(each.name or "", each.message) for each in found]
    items += [CompletionItem(name, help=_line(message)) for name, message in named if _PLAIN.fullmatch(name)]
    return items + [CompletionItem(short(each.id), help=_line(each.message)) for each in found]


def _checkpoints(ctx: click.Context) -> list[Checkpoint]:
    """The newest checkpoints of the folder, or of the nearest one above it that has any; none on any error.

    Recovers nothing, and reads the catalog without a check against the refs: good enough for completion.
    """
    import sqlite3  # the engine, for those who complete a checkpoint

    from holdfast.workspace import store_paths
    from holdfast.workspace.store_trust import check_private
    from holdfast.workspace.stored.repository import Repository

    options, environ = ctx.find_root().params, os.environ
    directory, store = options.get("directory"), options.get("store")
    try:
        real = Path(os.path.realpath(directory or os.getcwd()))
        for folder in (real,) if directory else (real, *real.parents):
            repository = Repository(store_paths.store_folder(folder, store=store, environ=environ))
            check_private(repository.folder, environ)
            if repository.exists and (repository.own / "catalog.db").exists():
                rows = repository.catalog.newest(limit=_SHOWN, session=None, safety=False)
                return [repository.checkpoint(row) for row in rows]
    except (HoldfastError, OSError, ValueError, sqlite3.Error):
        pass
    return []


def _line(message: str) -> str | None:
    """What a shell can show next to a word."""
    return "".join(letter if letter.isprintable() else " " for letter in message)[:60].strip() or None
