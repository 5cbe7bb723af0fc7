"""The paths that each checkpoint changed, kept in a file beside the catalog: reading them from the store takes three
objects a checkpoint.

The file is only a cache. Readers fill it; its keys are commits, which change if a checkpoint is rewritten,
and each row has a checksum; what it lacks is read from the store.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from holdfast.durable.sqlite import connect
from holdfast.workspace.stored.catalog import Row
from holdfast.workspace.stored.repository import Repository

if TYPE_CHECKING:
    from holdfast.workspace.pathspec import Scope

_FILE = "changes.db"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS changed (git_commit TEXT PRIMARY KEY, paths TEXT NOT NULL, checksum INTEGER NOT NULL)
WITHOUT ROWID
"""
_FIRST_PAGE = 100
_KEYS_AT_ONCE = 500  # fewer than the variables that SQLite allows in a statement
_PATHS_MAX = 1000  # a longer list, such as that of the first save, is read from the store each time
_FEW = 1000  # rows of deleted checkpoints that do not matter


class ChangedLists:
    """Which checkpoints changed some paths. For one walk."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._path = repository.own / _FILE
        self._fresh: dict[str, list[str]] = {}
        self._db: sqlite3.Connection | None = None

    def changing(self, scope: Scope, before: str | None, filters: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the checkpoints older than `before` that changed one of the paths, newest first. `filters` are those of
        the catalog. What was read from the store is kept, also if the caller stops early."""
        catalog, limit = self._repository.catalog, _FIRST_PAGE
        with contextlib.suppress(sqlite3.Error):
            self._db = connect(os.fspath(self._path), timeout_s=0.1, create=False) if self._path.exists() else None
        try:
            with catalog.kept_open():
                while page := catalog.commits(limit=limit, before=before, **filters):
                    known = self._known([commit for _, commit in page])
                    chosen = {commit for commit, paths in known.items() if any(path in scope for path in paths)}
                    ids = [each for each, commit in page if commit in chosen or commit not in known]
                    for row in catalog.by_ids(ids):
                        if row.commit in chosen or any(path in scope for path in self._read(row)):
                            yield row
                    before, limit = page[-1][0], _KEYS_AT_ONCE
        finally:
            self._close()
            self._write()

    def _known(self, commits: Sequence[str]) -> Mapping[str, list[str]]:
        """Return the lists that the file has, of some commits."""
        found: dict[str, list[str]] = {}
        if self._db is None:
            return found
        wanted = ",".join("?" * len(commits))
        try:
            for commit, text, checksum in self._db.execute(
                f"SELECT git_commit, paths, checksum FROM changed WHERE git_commit IN ({wanted})", commits
            ):
                if _checksum(commit, text) == checksum:
                    found[commit] = json.loads(text)
        except (sqlite3.Error, ValueError, TypeError):
            self._close()
            with contextlib.suppress(OSError):
                self._path.unlink()
        return found

    def _read(self, row: Row) -> list[str]:
        paths = self._repository.files_changed_in(row)
        if len(paths) <= _PATHS_MAX:
            self._fresh[row.commit] = paths
        return paths

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _write(self) -> None:
        """Add what is new. A kill leaves the rows of before or of after."""
        if not self._fresh:
            return
        rows = [(commit, json.dumps(paths)) for commit, paths in self._fresh.items()]
        self._fresh = {}
        with contextlib.suppress(sqlite3.Error, OSError):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with contextlib.closing(connect(os.fspath(self._path), timeout_s=0.1)) as db:
                db.execute("PRAGMA synchronous=OFF")  # a power loss may damage it; then it is made again
                db.execute(_SCHEMA)
                db.execute("BEGIN IMMEDIATE")
                if (
                    db.execute("SELECT count(*) FROM changed").fetchone()[0]
                    > 2 * self._repository.catalog.count() + _FEW
                ):
                    db.execute("DELETE FROM changed")  # most are of checkpoints that were deleted
                full = [(commit, text, _checksum(commit, text)) for commit, text in rows]
                db.executemany("INSERT OR REPLACE INTO changed VALUES (?, ?, ?)", full)
                db.execute("COMMIT")


def _checksum(commit: str, text: str) -> int:
    return crc32(f"{commit} {text}".encode("utf-8", "surrogatepass"))
