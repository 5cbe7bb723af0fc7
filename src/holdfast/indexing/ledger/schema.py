"""The tables of a ledger in SQLite, and the opening of one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from holdfast.errors import Damaged, Refused, Unavailable

VERSION = 1
_APPLICATION = 0x486F4C69  # "HoLi"
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE recipe (number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, settings TEXT NOT NULL);
CREATE TABLE label (
    label TEXT PRIMARY KEY, space TEXT NOT NULL, dimension INTEGER NOT NULL, canaries BLOB NOT NULL
);
CREATE TABLE vector (key TEXT PRIMARY KEY, space TEXT NOT NULL, data BLOB NOT NULL);
CREATE INDEX vector_spaces ON vector (space);
CREATE TABLE batch (
    number INTEGER PRIMARY KEY, space TEXT NOT NULL, texts INTEGER NOT NULL, tokens INTEGER NOT NULL,
    usd REAL NOT NULL, seconds REAL NOT NULL, at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ'))
);
CREATE INDEX batch_spaces ON batch (space);
CREATE TABLE cut (
    number INTEGER PRIMARY KEY, content TEXT NOT NULL, recipe INTEGER NOT NULL, pieces TEXT NOT NULL,
    UNIQUE (content, recipe)
);
CREATE TABLE generation (
    number INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, shape TEXT NOT NULL, channels TEXT NOT NULL,
    store TEXT NOT NULL, collection TEXT NOT NULL
);
CREATE TABLE doc (
    number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, name TEXT NOT NULL, stamp TEXT, content TEXT NOT NULL,
    recipe INTEGER NOT NULL, UNIQUE (generation, name)
);
CREATE TABLE point (
    doc INTEGER NOT NULL, ordinal INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (doc, ordinal)
) WITHOUT ROWID;
CREATE TABLE intent (
    generation INTEGER NOT NULL, name TEXT NOT NULL, adds TEXT NOT NULL, PRIMARY KEY (generation, name)
) WITHOUT ROWID;
CREATE TABLE failure (
    document TEXT NOT NULL, key TEXT NOT NULL, reason TEXT NOT NULL, hint TEXT NOT NULL, PRIMARY KEY (document, key)
) WITHOUT ROWID;
CREATE INDEX failure_keys ON failure (key);
"""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_HINT = "Restore it from a copy. Without one, put it away and apply a new plan: every vector is paid for again."


def connect(path: Path) -> sqlite3.Connection:
    """Open a ledger, made if there is none. Damaged or Refused if the file is no ledger of this version."""
    with translated(path):
        _check_length(path)
        db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
        try:
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA synchronous=FULL")  # paid work outlives a power loss, too
    if _version(db) != VERSION:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            _make(db, path)
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
    if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise Refused(f"{path} is a database of another program", hint="Name another file.")


def _make(db: sqlite3.Connection, path: Path) -> None:
    version = _version(db)
    if version == VERSION:
        return  # another process was quicker
    if version > VERSION:
        raise Refused(f"the ledger {path} is of version {version}", hint="Open it with a newer Holdfast.")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Refused(f"{path} is a database of another program", hint="Name another file.")
    for statement in filter(str.strip, _SCHEMA.split(";")):
        db.execute(statement)
    db.execute("INSERT INTO meta VALUES ('id', ?), ('revision', '0')", (uuid4().hex,))
    db.execute(f"PRAGMA application_id={_APPLICATION}")
    db.execute(f"PRAGMA user_version={VERSION}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _check_length(path: Path) -> None:
    """A file that says it is longer than it is was cut short; SQLite would notice only where it reads."""
    try:
        with path.open("rb") as file:
            head = file.read(32)
        size = path.stat().st_size
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror}", hint="See that it can be read.") from error
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    if size and (len(head) < 32 or int.from_bytes(head[28:32], "big") * page > size):
        raise Damaged(f"the ledger {path} was cut short", hint=_HINT)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Errors of SQLite become ours."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
            raise Damaged(f"the ledger {path} is damaged: {error}", hint=_HINT) from error
        raise Unavailable(
            f"the ledger {path} cannot be used: {error}", hint="See that it can be written to, and try again."
        ) from error
