"""The catalog: an SQLite table of all checkpoints, so that finding one does not mean reading all.

It is only a cache of refs and commits. Every call runs `sync`, which makes it agree with them, and costs almost nothing
if nothing changed. A catalog that is missing, damaged or not writable is rebuilt, in memory if necessary. Ids sort by
sequence, so the primary key serves every query but names; each row has a checksum.

It has no write-ahead log: SQLite maps the `-shm` file into memory, and on a full disk the kernel may kill a process
that writes to such a mapping. Without a log a reader can meet a writer in its commit; if that takes long, it reads the
refs instead, since readers never wait (P9).
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from holdfast import durable
from holdfast.durable.platform import boot_id
from holdfast.durable.sqlite import MEMORY, connect, is_busy, is_damage
from holdfast.errors import Unavailable

_VERSION = 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id TEXT PRIMARY KEY, sequence INTEGER NOT NULL, name TEXT, session TEXT, message TEXT NOT NULL,
    timestamp TEXT NOT NULL, safety INTEGER NOT NULL, git_commit TEXT NOT NULL, content TEXT NOT NULL,
    state TEXT NOT NULL, record TEXT NOT NULL, checksum INTEGER NOT NULL, mark TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS names ON checkpoints (name) WHERE name IS NOT NULL;
"""
_COLUMNS = "id, sequence, name, session, message, timestamp, safety, git_commit, content, state, record, checksum"
_NULLABLE = ("name", "session")
_TEXT = " || char(31) || ".join(
    f"ifnull('=' || {column}, '')" if column in _NULLABLE else column for column in _COLUMNS.split(", ")[:-1]
)
_NAMED = "SELECT id FROM checkpoints INDEXED BY names WHERE name IS NOT NULL ORDER BY id"
_ACTOR = "ifnull(nullif(json_extract(record, '$.actor'), ''), 'user')"
_OF_THIS_PROCESS = os.urandom(8).hex()
_READ_WAIT_S = 0.1  # a commit takes less than a millisecond, unless the process or its disk is stopped
_WRITE_WAIT_S = 2.0  # the next `sync` adds what is not written
_SLACK_NS = 50_000_000  # two changes within the resolution of file times look like one
_COARSE_SLACK_NS = 3_000_000_000  # file systems with a resolution of seconds


class Row(NamedTuple):
    """A checkpoint in the catalog."""

    id: str
    sequence: int
    name: str | None
    session: str | None
    message: str
    timestamp: str
    safety: bool
    commit: str
    content: str  # ids of files, attributes and coverage: equal if the content is equal
    state: str
    record: str  # checkpoint.json


class Catalog:
    """The catalog file. Each call opens it, unless its thread keeps it open: threads and forks share no connection."""

    def __init__(
        self,
        path: Path,
        list_refs: Callable[[], Mapping[str, str]],
        load: Callable[[str], Row | None],
        status: Callable[[], list[os.stat_result] | None] = lambda: None,
    ) -> None:
        """`list_refs` returns all checkpoints, each with a mark that changes when its ref is replaced.

        `load` reads one (None: unreadable). `status` describes the files that change when a ref does (None: unknown).
        """
        self._path = path
        self._list_refs = list_refs
        self._load = load
        self._status = status
        self._memory: sqlite3.Connection | None = None
        self._kept: tuple[int, int, sqlite3.Connection] | None = None
        self._agreed = ""
        self._whole: tuple[int, int] | None = (
            None  # the file whose rows were all checked; each row is checked again when it is read
        )

    def sync(self) -> None:
        """Make the catalog contain exactly the checkpoints that the refs name now.

        Reads nothing if the status of refs and catalog is the same as when they last agreed. The status is taken before
        anything is read, so that a change meanwhile is seen the next time.
        """
        look = self._look()
        if look and look in (self._agreed, self._note()):
            return
        if not self._agree() and look:
            self._agreed = look
            self._write_note(look)

    def add(self, row: Row, mark: str = "") -> None:
        """Add a checkpoint that was just committed; if that fails, `sync` adds it later."""
        with contextlib.suppress(sqlite3.Error):
            self._change([(row, mark)], ())

    def remove(self, *checkpoint_ids: str) -> None:
        """Remove checkpoints that were just deleted."""
        with contextlib.suppress(sqlite3.Error):
            self._change([], checkpoint_ids)

    @contextlib.contextmanager
    def kept_open(self) -> Iterator[None]:
        """Use one connection for all calls of this thread: opening costs more than a query."""
        with self._open() as connection:
            self._kept = (os.getpid(), threading.get_ident(), connection)
            try:
                yield
            finally:
                self._kept = None

    def newest(self, *, limit: int | None, **filters: Any) -> list[Row]:
        """Return checkpoints, newest first, as far as `_conditions` of the filters lets them through."""
        where, values = _conditions(**filters)
        return self._rows(f"{where} ORDER BY id DESC LIMIT ?", [*values, -1 if limit is None else limit])

    def commits(self, *, limit: int, **filters: Any) -> list[tuple[str, str]]:
        """Return ids and commits of `newest`, unchecked: much faster than rows."""
        where, values = _conditions(**filters)
        text = f"SELECT id, git_commit FROM checkpoints WHERE {where} ORDER BY id DESC LIMIT ?"
        return [(str(row[0]), str(row[1])) for row in self._query(text, (*values, limit))]

    def count(self) -> int:
        """Return the number of all checkpoints."""
        return int(self._query("SELECT count(*) FROM checkpoints")[0][0])

    def nth(self, back: int) -> Row | None:
        """Return the save `back` before the newest."""
        return next(iter(self._rows("safety = 0 ORDER BY id DESC LIMIT 1 OFFSET ?", [back])), None)

    def last_green(self) -> Row | None:
        """Return the newest save that passed its check."""
        passed = "instr(record, '\"check\"') AND json_extract(record, '$.metadata.check.passed') = 1"
        return next(iter(self._rows(f"safety = 0 AND {passed} ORDER BY id DESC LIMIT 1", [])), None)

    def at(self, timestamp: str) -> Row | None:
        """Return the newest save that is not later than a time, in UTC and ISO 8601."""
        return next(iter(self._rows("safety = 0 AND timestamp <= ? ORDER BY id DESC LIMIT 1", [timestamp])), None)

    def oldest(self) -> Row | None:
        """Return the oldest save."""
        return next(iter(self._rows("safety = 0 ORDER BY id LIMIT 1", [])), None)

    def saves(self, *, after: str = "") -> int:
        """Return the number of checkpoints, or of those after an id, without safety checkpoints."""
        return int(self._query("SELECT count(*) FROM checkpoints WHERE safety = 0 AND id > ?", (after,))[0][0])

    def overview(self) -> list[tuple[str, str, str]]:
        """Return the id, the time and the actor of every save, oldest first. For a picture: rows are not checked."""
        actor = f"CAST({_ACTOR} AS BLOB)"  # as text, one with a lone surrogate could not be read
        rows = self._query(f"SELECT id, timestamp, {actor} FROM checkpoints WHERE safety = 0 ORDER BY id")
        return [(key, when, who.decode("utf-8", "replace")) for key, when, who in rows]

    def names(self) -> list[str]:
        """Return all checkpoint names."""
        return [str(row[0]) for row in self._query("SELECT name FROM checkpoints WHERE name IS NOT NULL")]

    def by_id(self, checkpoint_id: str) -> Row | None:
        return next(iter(self._rows("id = ?", [checkpoint_id])), None)

    def by_ids(self, checkpoint_ids: Sequence[str]) -> list[Row]:
        """Return those of some checkpoints that are there, newest first. As many as SQLite allows variables."""
        return self._rows(f"id IN ({','.join('?' * len(checkpoint_ids))}) ORDER BY id DESC", checkpoint_ids)

    def by_name(self, name: str) -> Row | None:
        return next(iter(self._rows("name = ? ORDER BY id DESC LIMIT 1", [name])), None)

    def by_prefix(self, prefix: str) -> list[Row]:
        """Return up to four checkpoints whose id has a prefix."""
        return self._rows("id >= ? AND id < ? ORDER BY id LIMIT 4", [prefix, prefix + "\U0010ffff"])

    def operations(self) -> list[Row]:
        """Return the safety checkpoints, oldest first."""
        return self._rows("safety = 1 ORDER BY id", [])

    def greatest(self) -> Row | None:
        """Return the checkpoint with the greatest sequence number, safety checkpoints included (P10)."""
        return next(iter(self._rows("1 ORDER BY id DESC LIMIT 1", [])), None)

    # agreeing with the refs

    def _agree(self) -> bool:
        """Check every row and compare it with its ref; return whether something had to be changed.

        The refs are listed after the catalog is read: a row is written after its ref, so one without is deleted.
        """
        known = self._marks() if self._whole and self._whole == self._file() else self._checked()
        is_changed = known is None
        if known is None:
            self._rebuild()  # before any query uses the damaged rows
            known = self._checked() or {}
        self._whole = self._file()
        refs = self._list_refs()
        unlike = sorted((key, mark) for key, mark in refs.items() if known.get(key) != mark)
        missing = [(row, mark) for key, mark in unlike if (row := self._load(key))]
        gone = known.keys() - refs.keys()
        if missing or gone:
            try:
                self._change(missing, gone)
            except sqlite3.OperationalError as error:  # locked for too long: the next call does it
                if not is_busy(error):
                    self._in_memory()  # full disk; P4: deleted checkpoints must not be listed
        return is_changed or bool(missing or gone)

    def _checked(self) -> dict[str, str] | None:
        """Return ids and ref marks in the catalog; None if a row or the index is damaged."""
        rows = self._query(f"SELECT id, mark, name IS NULL, checksum, CAST({_TEXT} AS BLOB) FROM checkpoints")
        named = [str(row[0]) for row in self._query(_NAMED)]
        if any(crc32(text or b"") != checksum for _, _, _, checksum, text in rows):
            return None
        if sorted(str(row[0]) for row in rows if not row[2]) != named:
            return None
        return {str(row[0]): str(row[1]) for row in rows}

    def _marks(self) -> dict[str, str]:
        """Return ids and ref marks in the catalog, unchecked."""
        return {str(row[0]): str(row[1]) for row in self._query("SELECT id, mark FROM checkpoints")}

    def _file(self) -> tuple[int, int] | None:
        """Return the identity of the file; None if the catalog is in memory."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return None if self._memory else (status.st_dev, status.st_ino)

    def _look(self) -> str:
        """Return the status of refs and catalog (sizes and times); empty if that does not show every change."""
        if self._memory is not None:
            own: list[os.stat_result] = []
        else:
            with contextlib.suppress(FileNotFoundError):
                if os.stat(f"{self._path}-journal").st_size:
                    return ""  # a process is writing, or died while it wrote
            try:
                own = [os.stat(self._path)]
            except OSError:
                return ""
        refs = self._status()
        if refs is None or not all(map(_is_settled, refs + own)):
            return ""
        parts = [f"{one.st_ino} {one.st_size} {one.st_mtime_ns} {one.st_ctime_ns}" for one in refs + own]
        return f"{', '.join(parts)}, {_boot()}, version {_VERSION}\n"  # opening another version empties it

    def _note(self) -> str:
        try:
            return Path(f"{self._path}-agreed").read_bytes().decode("ascii", "replace")
        except OSError:
            return ""

    def _write_note(self, look: str) -> None:
        """Write down the status at which refs and catalog agreed. A torn or lost note just does not match."""
        if self._memory is None:
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(f"{self._path}-agreed", flags, 0o600)
                try:
                    durable.open_to_owner(fd, 0o600)
                    os.write(fd, look.encode())
                finally:
                    os.close(fd)

    # the file

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
            if is_busy(error):
                with contextlib.closing(self._filled()) as connection:
                    return connection.execute(text, values).fetchall()
            if not is_damage(error):
                raise Unavailable(f"the catalog cannot be read: {error}", hint="Try again.") from error
        self._rebuild()
        with self._open() as connection:
            return connection.execute(text, values).fetchall()

    def _rebuild(self) -> None:
        self._discard()
        self._write(self._all(), ())

    def _all(self) -> list[tuple[Row, str]]:
        """Read every readable checkpoint from its commit."""
        return [(row, mark) for key, mark in sorted(self._list_refs().items()) if (row := self._load(key))]

    def _change(self, rows: list[tuple[Row, str]], gone: Iterable[str]) -> None:
        try:
            self._write(rows, gone)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if not is_damage(error):
                raise
            self._rebuild()

    def _write(self, rows: list[tuple[Row, str]], gone: Iterable[str]) -> None:
        with self._open() as connection:
            connection.execute(f"PRAGMA busy_timeout={int(_WRITE_WAIT_S * 1000)}")
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    _put(connection, rows)
                    connection.executemany("DELETE FROM checkpoints WHERE id = ?", [(one,) for one in gone])
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(_READ_WAIT_S * 1000)}")

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            yield self._memory
            return
        kept = self._kept
        if kept is not None and kept[:2] == (os.getpid(), threading.get_ident()):
            yield kept[2]
            return
        try:
            connection = self._connect()
        except OSError:  # the folder is not writable
            yield self._in_memory()
            return
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if is_busy(error):  # P9: read the refs this time; `sync` adds what is not written
                with contextlib.closing(self._filled()) as filled:
                    yield filled
                return
            if not is_damage(error):
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
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            durable.open_to_owner(fd, 0o600)
            os.close(fd)
        connection = connect(os.path.abspath(self._path), timeout_s=_READ_WAIT_S)
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                connection.execute("PRAGMA journal_mode=DELETE")  # earlier versions had a write-ahead log
                connection.executescript(f"DROP TABLE IF EXISTS checkpoints;{_SCHEMA}PRAGMA user_version={_VERSION};")
            connection.execute("PRAGMA synchronous=OFF")  # `_look` detects a power loss, and the catalog is rebuilt
        except BaseException:
            connection.close()
            raise
        return connection

    def __del__(self) -> None:
        if (connection := getattr(self, "_memory", None)) is not None:
            connection.close()  # as `durable.sqlite.Database` does

    def _in_memory(self) -> sqlite3.Connection:
        """Create a catalog in memory and fill it: the caller may rely on an earlier `sync`."""
        self._memory = self._filled()
        return self._memory

    def _filled(self) -> sqlite3.Connection:
        """Return a table in memory, filled from refs and commits."""
        connection = connect(MEMORY)
        connection.executescript(_SCHEMA)
        _put(connection, self._all())
        return connection

    def discard(self) -> None:
        """Remove the catalog with all files of SQLite; it is rebuilt. Needs the store's lock."""
        self._agreed = ""
        self._discard()

    def _discard(self) -> None:
        self._kept = None  # the open connection is no longer the catalog
        for suffix in ("", "-journal", "-wal", "-shm", "-agreed"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self._path}{suffix}")


def _conditions(
    *,
    session: str | None = None,
    actor: str | None = None,
    safety: bool = False,
    before: str | None = None,
    type: str | None = None,  # noqa: A002  the key in the metadata
    after: str | None = None,
    up_to: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> tuple[str, list[object]]:
    """Return the condition, with its values, for checkpoints older than an id, newer than one, up to one; of a session,
    a type, or an actor and its sub-agents; not before or not after a time (in UTC and ISO 8601)."""
    where: list[str] = ["1" if safety else "safety = 0"]
    values: list[object] = []
    if actor is not None:
        where.append(f"({_ACTOR} = ? OR substr({_ACTOR}, 1, ?) = ?)")
        values += [actor, len(actor) + 1, f"{actor}/"]
    if session is not None:
        where.append("session = ?")
        values.append(session)
    if type is not None:
        where.append("json_extract(record, '$.metadata.type') = ?")
        values.append(type)
    bounds = {"id < ?": before, "id > ?": after, "id <= ?": up_to, "timestamp >= ?": since, "timestamp <= ?": until}
    for condition, bound in bounds.items():
        if bound is not None:
            where.append(condition)
            values.append(bound)
    return " AND ".join(where), values


def _put(connection: sqlite3.Connection, rows: Iterable[tuple[Row, str]]) -> None:
    full = [(*row, _checksum(row), mark) for row, mark in rows]
    connection.executemany(f"INSERT OR REPLACE INTO checkpoints VALUES ({','.join('?' * 13)})", full)


def _boot() -> str:
    """Return the boot id: a power loss may keep the times of a file and lose its content."""
    return boot_id() or _OF_THIS_PROCESS  # cannot be told: only its own notes are relied on


def _is_settled(status: os.stat_result) -> bool:
    """Whether a change from now on would show in the times."""
    newest = max(status.st_mtime_ns, status.st_ctime_ns)
    return newest < time.time_ns() - (_SLACK_NS if newest % 1_000_000_000 else _COARSE_SLACK_NS)


def _checksum(values: Iterable[object]) -> int:
    """Of a row, as `_TEXT` spells it."""
    columns = zip(_COLUMNS.split(", "), values, strict=False)
    texts = [("" if value is None else f"={value}") if name in _NULLABLE else _plain(value) for name, value in columns]
    return crc32("\x1f".join(texts).encode("utf-8", "replace"))


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
