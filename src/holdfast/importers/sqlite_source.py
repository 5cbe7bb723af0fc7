"""Opening an SQLite file of another program without changing anything beside it.

A file in write-ahead mode is copied with its log and read there: a reader of the original would create files beside it.
Any other is opened read-only, which locks it against writers and writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote

from holdfast.errors import Damaged, NotFound, Refused, Unavailable

_MAGIC = b"SQLite format 3\0"
_SIDECARS = ("", "-wal", "-journal")
_TRIES = 5


def sqlite_path(source: str) -> Path | None:
    """The file that a path or an SQLAlchemy URL (`sqlite:///…`, `sqlite+aiosqlite:///…`) names; None for others."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return Path(source)
    return Path(rest.partition("?")[0].removeprefix("/")) if scheme.partition("+")[0] == "sqlite" else None


def is_sqlite(source: str) -> bool:
    """Whether there is an SQLite file. OSError if it cannot be read."""
    path = sqlite_path(source)
    return path is not None and path.is_file() and _begin(path).startswith(_MAGIC)


@contextlib.contextmanager
def reading(source: str) -> Iterator[sqlite3.Connection]:
    """Yield a connection in one read transaction. Damaged if it is no database, Unavailable if it is in use."""
    path = sqlite_path(source)
    if path is None or not path.is_file():
        raise NotFound(f"{source} does not exist", hint="Name an SQLite file.")
    if not _begin(path).startswith(_MAGIC):
        raise Refused(f"{source} is not an SQLite file", hint="Name an SQLite file.")
    with contextlib.ExitStack() as stack:
        if _needs_copy(path):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-import-"))
            path = _copied(path, Path(folder))
            options = ""
        else:
            options = "?mode=ro"
        with translated(source):
            connection = sqlite3.connect(f"file:{quote(os.fspath(path.absolute()))}{options}", uri=True)
            stack.enter_context(contextlib.closing(connection))
            connection.text_factory = partial(
                str, encoding="utf-8", errors="surrogateescape"
            )  # one bad row hides no other
            connection.execute("PRAGMA trusted_schema = OFF")  # P7: no function that the file's own schema names
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield connection


@contextlib.contextmanager
def translated(source: str) -> Iterator[None]:
    """Raise Damaged or Unavailable in place of SQLite's errors: a damaged page is found only when it is read."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "malformed" in str(error):
            raise _damaged(source, error) from None
        raise Unavailable(f"{source} cannot be read: {error}", hint="Close what uses it, and try again.") from None
    except sqlite3.DatabaseError as error:
        raise _damaged(source, error) from None


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The names of the columns of a table; none if there is no such table (a view is none)."""
    kind = connection.execute("SELECT type FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    if kind != ("table",):
        return set()
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(20)


def _needs_copy(path: Path) -> bool:
    is_wal = 2 in _begin(path)[18:20]
    journal = Path(f"{path}-journal")
    return is_wal or (journal.exists() and journal.stat().st_size > 0)


def _copied(path: Path, folder: Path) -> Path:
    """Copy a database and its log as they are at one moment."""
    for _ in range(_TRIES):
        before = _statuses(path)
        for sidecar in _SIDECARS:
            target = folder / f"copy{sidecar}"
            target.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{sidecar}", target)
        if _statuses(path) == before:
            return folder / "copy"
    raise Unavailable(f"{path} keeps changing", hint="Stop the program that writes into it, and try again.")


def _statuses(path: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for sidecar in _SIDECARS:
        try:
            status = os.stat(f"{path}{sidecar}")
            found.append((status.st_size, status.st_mtime_ns, status.st_ino))
        except FileNotFoundError:
            found.append(None)
    return found


def _damaged(source: str, error: sqlite3.Error) -> Damaged:
    return Damaged(f"{source} is damaged: {error}", hint="Try: sqlite3 FILE .recover")
