"""Our SQLite files: created once, changed completely or not at all, with readable errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable.sqlite import Database, Layout, split_statements
from holdfast.errors import Damaged, Refused, Unavailable

_LAYOUT = Layout("it", 3, split_statements("CREATE TABLE thing (name TEXT);\n"), 77)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "things.db"


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Database]:
    with closing(Database(path, _LAYOUT, **options)) as database:
        yield database


def _names(path: Path) -> list[str]:
    with opened(path) as database:
        return [row[0] for row in database.execute("SELECT name FROM thing").fetchall()]


def test_what_is_broken_off_is_not_there_and_the_next_is(path: Path) -> None:
    with opened(path) as database:
        with pytest.raises(ZeroDivisionError), database.writing() as db:
            db.execute("INSERT INTO thing VALUES ('half')")
            _ = 1 / 0
        with database.writing() as db:
            db.execute("INSERT INTO thing VALUES ('whole')")
        assert _names(path) == ["whole"]
    assert _names(path) == ["whole"]


def test_chdir_does_not_change_the_database_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with opened(Path(path.name)) as database:
        for name in ("first", "second"):
            monkeypatch.chdir(tmp_path / "elsewhere")
            with database.writing() as db:
                db.execute("INSERT INTO thing VALUES (?)", (name,))
    assert _names(path) == ["first", "second"]


def test_what_is_only_in_memory_can_be_written_to() -> None:
    with opened(Path(":memory:")) as database:
        for name in ("first", "second"):
            with database.writing() as db:
                db.execute("INSERT INTO thing VALUES (?)", (name,))
        assert database.one("SELECT count(*) FROM thing") == (2,)


def test_concurrent_creation_makes_one_database(path: Path) -> None:
    class Late(sqlite3.Connection):
        def execute(self, query: str, *values: Any) -> sqlite3.Cursor:
            if query == "BEGIN IMMEDIATE" and not others:
                others.append(Database(path, _LAYOUT))
                with others[0].writing() as db:
                    db.execute("INSERT INTO thing VALUES ('first')")
            return super().execute(query, *values)

    others: list[Database] = []
    with opened(path, connect=lambda where: sqlite3.connect(where, isolation_level=None, factory=Late)) as database:
        with database.writing() as db:
            db.execute("INSERT INTO thing VALUES ('second')")
        others[0].close()
    assert _names(path) == ["first", "second"]


def test_a_file_of_others_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(Refused, match="another program"), opened(path):
        pass
    assert path.read_bytes() == before


@pytest.mark.parametrize(("version", "said"), [(2, "version 2, older than 3"), (4, "version 4, newer than 3")])
def test_a_file_of_another_version_is_called_what_it_is(path: Path, version: int, said: str) -> None:
    with opened(path) as database, database.writing():
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={version}")
    with pytest.raises(Refused, match=said) as refused, opened(path):
        pass
    assert refused.value.hint


def test_what_cannot_be_opened_says_why(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(Damaged, match="it is damaged"), opened(path):
        pass
    with pytest.raises(Unavailable, match="it cannot be used: it is a folder"), opened(tmp_path):
        pass
    with pytest.raises(Unavailable, match="Not a directory"), opened(path / "below"):
        pass
    with (
        opened(tmp_path / "away" / "things.db") as database,
        pytest.raises(Unavailable, match="the folder of it does not exist"),
        database.writing(),
    ):
        pass
