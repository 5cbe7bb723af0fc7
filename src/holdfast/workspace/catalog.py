"""The catalog: an SQLite table of all checkpoints, so that finding one does not mean reading all.

Only a memory of what refs and commits say. `sync` makes it agree with them each time a store is opened; one that is
missing, damaged or cannot be written is made anew, in memory if need be. Readers never wait for writers (WAL). Ids
sort by sequence, so the one key serves all; each row carries a checksum, and there is no second index to disagree.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from holdfast.errors import Unavailable

_VERSION = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, name TEXT, session TEXT, message TEXT NOT NULL,
    timestamp TEXT NOT NULL, safety INTEGER NOT NULL, git_commit TEXT NOT NULL, content TEXT NOT NULL,
    state TEXT NOT NULL, record TEXT NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
"""
_COLUMNS = "id, sequence, name, session, message, timestamp, safety, git_commit, content, state, record, checksum"


class Row(NamedTuple):
    """What the catalog knows of a checkpoint."""

    id: str
    sequence: int
    name: str | None
    session: str | None
    message: str
    timestamp: str
    safety: bool
    commit: str
    content: str  # the names of its files, attributes and coverage: equal means equal
    state: str
    record: str  # checkpoint.json


class Catalog:
    """One file. Every call opens it anew, so that threads and forks share nothing."""

    def __init__(self, path: Path, list_ids: Callable[[], set[str]], load: Callable[[str], Row | None]) -> None:
        """`list_ids` tells which checkpoints there are; `load` reads one (None: it cannot be read)."""
        self._path = path
        self._list_ids = list_ids
        self._load = load
        self._memory: sqlite3.Connection | None = None

    def sync(self) -> None:
        """Make the catalog hold exactly the checkpoints that there are.

        The refs are listed after the catalog is read: a row is written after its ref, so one without a ref is gone.
        """
        rows = self._query(f"SELECT {_COLUMNS} FROM checkpoints")
        if any(_checksum(row[:-1]) != row[-1] for row in rows):
            self._rebuild()  # before anything is looked for by what the row says of itself
            rows = self._query(f"SELECT {_COLUMNS} FROM checkpoints")
        known = {str(row[0]) for row in rows}
        ids = self._list_ids()
        missing = [row for row in map(self._load, sorted(ids - known)) if row is not None]
        if missing or known - ids:
            with contextlib.suppress(sqlite3.OperationalError):  # locked for long: the next call does it
                self._change(missing, known - ids)

    def add(self, row: Row) -> None:
        """Add a checkpoint that has just been committed; failing to is no loss, `sync` makes up for it."""
        with contextlib.suppress(sqlite3.Error):
            self._change([row], ())

    def remove(self, checkpoint_id: str) -> None:
        """Forget a checkpoint that has just been deleted."""
        with contextlib.suppress(sqlite3.Error):
            self._change([], [checkpoint_id])

    def newest(self, *, limit: int | None, session: str | None, safety: bool) -> list[Row]:
        """Checkpoints, newest first."""
        where, values = ["1" if safety else "safety = 0"], []
        if session is not None:
            where.append("session = ?")
            values.append(session)
        return self._rows(f"{' AND '.join(where)} ORDER BY id DESC LIMIT ?", [*values, -1 if limit is None else limit])

    def nth(self, back: int) -> Row | None:
        """The newest save, or one so many before it."""
        return next(iter(self._rows("safety = 0 ORDER BY id DESC LIMIT 1 OFFSET ?", [back])), None)

    def by_id(self, checkpoint_id: str) -> Row | None:
        return next(iter(self._rows("id = ?", [checkpoint_id])), None)

    def by_name(self, name: str) -> Row | None:
        return next(iter(self._rows("name = ? ORDER BY id DESC LIMIT 1", [name])), None)

    def by_prefix(self, prefix: str) -> list[Row]:
        """Up to four checkpoints whose id begins so."""
        return self._rows("id >= ? AND id < ? ORDER BY id LIMIT 4", [prefix, prefix + "\U0010ffff"])

    def by_content(self, content: str, state: str | None) -> Row | None:
        """The newest save that holds this content (and this state, where one is asked for)."""
        text = "content = ? AND safety = 0"
        values = [content]
        if state is not None:
            text += " AND state = ?"
            values.append(state)
        return next(iter(self._rows(f"{text} ORDER BY id DESC LIMIT 1", values)), None)

    def operations(self) -> list[Row]:
        """The safety checkpoints, oldest first."""
        return self._rows("safety = 1 ORDER BY id", [])

    def greatest(self) -> Row | None:
        """The checkpoint with the greatest sequence number, of any kind."""
        return next(iter(self._rows("1 ORDER BY id DESC LIMIT 1", [])), None)

    def _rows(self, where: str, values: Iterable[object]) -> list[Row]:
        text = f"SELECT {_COLUMNS} FROM checkpoints WHERE {where}"
        rows = self._query(text, tuple(values))
        if any(_checksum(row[:-1]) != row[-1] for row in rows):
            self._rebuild()
            rows = self._query(text, tuple(values))
        return [Row(*row[:-1])._replace(safety=bool(row[6])) for row in rows]

    def _query(self, text: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._open() as connection:
                return connection.execute(text, values).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise Unavailable(f"the catalog cannot be read: {error}", hint="Try again.") from error
        self._rebuild()
        with self._open() as connection:
            return connection.execute(text, values).fetchall()

    def _rebuild(self) -> None:
        self._discard()
        self._write([row for row in map(self._load, sorted(self._list_ids())) if row is not None], ())

    def _change(self, rows: list[Row], gone: Iterable[str]) -> None:
        try:
            self._write(rows, gone)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                raise
            self._rebuild()

    def _write(self, rows: list[Row], gone: Iterable[str]) -> None:
        with self._open() as connection, connection:
            full = [(*row, _checksum(row)) for row in rows]
            connection.executemany(f"INSERT OR REPLACE INTO checkpoints VALUES ({','.join('?' * 12)})", full)
            connection.executemany("DELETE FROM checkpoints WHERE id = ?", [(one,) for one in gone])

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            yield self._memory
            return
        try:
            connection = self._connect()
        except OSError:  # its folder cannot be written
            yield self._in_memory()
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not _is_damage(error):
                yield self._in_memory()
                return
            self._discard()
            try:
                connection = self._connect()
            except sqlite3.DatabaseError:
                yield self._in_memory()
                return
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        if not self._path.exists() and self._path.parent.is_dir():
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(f"DROP TABLE IF EXISTS checkpoints;{_SCHEMA}PRAGMA user_version={_VERSION};")
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _in_memory(self) -> sqlite3.Connection:
        self._memory = sqlite3.connect(":memory:", check_same_thread=False)
        self._memory.executescript(_SCHEMA)
        return self._memory

    def _discard(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._path}{suffix}")


def _is_damage(error: Exception) -> bool:
    """Whether the file is at fault, rather than somebody who has it locked or a folder that cannot be written."""
    code = getattr(error, "sqlite_errorcode", None)
    in_the_way = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
    return code is None or (code & 0xFF) not in (*in_the_way, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _checksum(values: Iterable[object]) -> int:
    return crc32(
        repr([int(value) if isinstance(value, bool) else value for value in values]).encode("utf-8", "replace")
    )
