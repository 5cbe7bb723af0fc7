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
from holdfast.location import is_url
from holdfast.model.documents import short

if TYPE_CHECKING:
    from holdfast.model import Checkpoint

_REFS = frozenset({"a", "b", "bad", "before", "good", "ref", "refs", "since"})
_ACTORS = frozenset({"actor", "agent"})
_WHERES = frozenset({"path", "paths", "directory", "folder", "keys", "to_keys"})
_PLAIN = re.compile(r"[\w.@+:/-]+")  # what needs no quoting in any shell


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem] | None:
    """What a word may become, by the name of what it is for; None leaves it to the parameter itself."""
    if param.name in _WHERES or (AFTER_DASHES in ctx.meta and param.name in _REFS):
        return [CompletionItem(incomplete, type="file")]
    words = [*ctx.params.values(), *ctx.args]  # the latter while the value of an option is still to come
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
    from holdfast.workspace.peek import glimpse  # the engine, for those who complete a checkpoint

    options = ctx.find_root().params
    directory = options.get("directory")
    try:
        start = Path(directory or os.getcwd())
    except FileNotFoundError:
        return []
    return glimpse(start, store=options.get("store"), environ=os.environ, upward=directory is None)


def _line(message: str) -> str | None:
    """What a shell can show next to a word."""
    return "".join(letter if letter.isprintable() else " " for letter in message)[:60].strip() or None
