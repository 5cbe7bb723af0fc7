"""Importing checkpoints that other tools made: `open_import(source)` finds the kind of a source and plans its import.

An import reads the source and never changes it, executes nothing of it (P7), adds each checkpoint atomically (P3), adds
nothing twice, and reports what it cannot carry over (P4). One file per kind of source; a new kind is one file with a
function `recognize` and a class that has the methods of `Import`, and one line in `KINDS`.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.durable.os_errors import os_errors
from holdfast.errors import NotFound, Refused
from holdfast.escaping import escape, without_password
from holdfast.importers.model import Import, Imported, ImportPlan, ImportRequest, NotCarried
from holdfast.importers.sqlite_source import sqlite_path
from holdfast.location import KINDS as LOCATIONS
from holdfast.location import is_url
from holdfast.model import Progress

__all__ = ["KINDS", "Import", "ImportKind", "ImportPlan", "ImportRequest", "Imported", "NotCarried", "open_import"]


_UNCHANGED = "Nothing was imported."
_LOOKED_AT, _NAMED = 200, 5
_OTHER_DATABASES = ("mysql", "mariadb", "oracle", "mssql")  # llmfy stores in any that SQLAlchemy knows


class ImportKind(NamedTuple):
    """A line of the registry. Nothing of a kind is imported before `load`."""

    name: str
    title: str
    module: str

    def load(self) -> Any:
        """The module, which has `recognize(source)` and `open_source(request)`."""
        return importlib.import_module(f"holdfast.importers.{self.module}")


KINDS: Sequence[ImportKind] = (
    ImportKind("shadow-git", "a shadow git repository (PraisonAI, Cline, Roo)", "shadow_git"),
    ImportKind("llmfy", "llmfy's table in SQLite or PostgreSQL, or its keys in Redis", "llmfy"),
    ImportKind("langgraph", "the tables of LangGraph's SQLite or PostgreSQL saver", "langgraph"),
    ImportKind("codeweaver", "a checkpoint file of CodeWeaver", "codeweaver"),
    ImportKind("skill", "a skill's .claude/checkpoints", "skill"),
    ImportKind("claude-code", "a transcript of Claude Code, or a folder of them in ~/.claude/projects", "claude_code"),
    ImportKind("training", "a folder of torch.save or safetensors checkpoints", "training_folder"),
)
"""The registry."""


def open_import(request: ImportRequest, *, kind: str | None = None) -> Import:
    """Open a source of a kind, or of the kind that is recognized. Refused or NotFound if it is none, or several.

    Call `plan` of the result, then `run`, and `close` it.
    """
    with os_errors(request.source, outcome=_UNCHANGED):
        return _open(request, kind)


def _open(request: ImportRequest, kind: str | None) -> Import:
    file = sqlite_path(request.source) if is_url(request.source) else request.source
    if file is not None:
        _check_there(file, request.source)
    known: Mapping[str, ImportKind] = {each.name: each for each in KINDS}
    if kind is not None:
        if kind not in known:
            raise Refused(f"unknown kind of source: {kind!r}", hint=f"Use one of: {', '.join(known)}.")
        found = [known[kind]]
    else:
        found = [each for each in KINDS if each.load().recognize(request.source)]
    shown = without_password(request.source)
    if not found and _is_of_other_database(request.source):
        raise Refused(
            f"{shown} cannot be read: only SQLite, PostgreSQL and Redis can",
            hint="Copy its table into an SQLite file, and import that.",
        )
    if not found and (below := _sources_below(request.source)):
        raise Refused(f"{shown} contains several sources", hint=f"Name one: {', '.join(below)}.")
    if not found:
        titles = "; ".join(each.title for each in KINDS)
        raise Refused(f"cannot import {shown}: unknown format", hint=f"A source is one of: {titles}.")
    if len(found) > 1:
        names = " or ".join(each.name for each in found)
        raise Refused(f"{shown} matches several kinds of source", hint=f"Choose one: {names}.")
    return _Opened(found[0].load().open_source(request), request.source)


def _check_there(file: str | os.PathLike[str], source: str) -> None:
    """NotFound if there is no such file, Refused if it is Holdfast's own. OSError if it is an unreadable folder."""
    try:
        mode = os.lstat(file).st_mode if source else 0
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: NUL in the name
        mode = 0
    if not mode:
        named = escape(source) or "''"
        raise NotFound(f"{named} does not exist", hint="Name the folder, the file or the URL to import.")
    if stat.S_ISDIR(mode):
        os.scandir(file).close()
        own = next((each for each in LOCATIONS if each.files and each.is_at(os.fspath(file))), None)
        if own is not None:
            raise Refused(f"{escape(source)} is already {own.title} of Holdfast", hint="Open it where it is.")


def _is_of_other_database(source: str) -> bool:
    return is_url(source) and source.partition("://")[0].partition("+")[0] in _OTHER_DATABASES


def _sources_below(source: str) -> list[str]:
    """The folders of a folder that can be imported by themselves, such as those in `~/.praisonai/checkpoints`."""
    if is_url(source) or not os.path.isdir(source):
        return []
    folders = [os.path.join(source, name) for name in sorted(os.listdir(source))]
    return [
        folder
        for folder in filter(os.path.isdir, folders[:_LOOKED_AT])
        if any(each.load().recognize(folder) for each in KINDS)
    ][:_NAMED]


class _Opened:
    """An import whose errors of the file system are translated."""

    def __init__(self, inner: Import, source: str) -> None:
        self._inner = inner
        self._source = source

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        with os_errors(self._source, outcome=_UNCHANGED):
            return self._inner.plan(progress)

    def run(self, progress: Progress | None = None) -> Imported:
        with os_errors(self._source, outcome="What was imported before is complete; run the import again."):
            return self._inner.run(progress)

    def close(self) -> None:
        self._inner.close()
