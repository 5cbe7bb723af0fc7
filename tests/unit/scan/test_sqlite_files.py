"""A save from within a process that has a database open: the process keeps its locks, and the database all rows."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.scan import sqlite_files

FLAGS = os.O_RDONLY | os.O_CLOEXEC


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def ws(root: Path) -> Workspace:
    return Workspace(root, store=root.parent / "store", home=root.parent, environ={})


@pytest.fixture(params=["wal", "delete"])
def database(root: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(root / "app.db", isolation_level=None)) as connection:
        connection.execute(f"pragma journal_mode={request.param}")
        connection.execute("create table rows (n)")
        yield connection


def elsewhere(root: Path, code: str) -> str:
    """What another process prints that has the database open as `db`."""
    begin = f"import sqlite3; db = sqlite3.connect({str(root / 'app.db')!r}, timeout=0, isolation_level=None)"
    ran = subprocess.run(
        [sys.executable, "-c", f"{begin}\n{code}\ndb.close()"], capture_output=True, text=True, check=True
    )
    return ran.stdout.strip()


def count(root: Path) -> str:
    return elsewhere(root, "print(db.execute('select count(*) from rows').fetchone()[0])")


def descriptors(path: Path) -> int:
    status = path.stat()
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            seen = os.fstat(int(number))
        except OSError:
            continue
        found += (seen.st_dev, seen.st_ino) == (status.st_dev, status.st_ino)
    return found


def test_rows_written_after_a_save_are_kept(root: Path, ws: Workspace, database: sqlite3.Connection) -> None:
    for number in range(1, 4):
        database.execute("insert into rows values (?)", [number])
        ws.save(f"{number}")
        assert count(root) == str(number)  # who believes that nobody else has it open removes the log at the end
    database.execute("insert into rows values (4)")
    assert count(root) == "4"


@pytest.mark.parametrize("look", ["save", "blame", "preview"])
def test_lock_is_still_held_after_the_read(root: Path, ws: Workspace, database: sqlite3.Connection, look: str) -> None:
    ws.save("before")
    database.execute("insert into rows values (1)")
    database.execute("begin immediate")
    {"save": ws.save, "blame": lambda: ws.blame("app.db"), "preview": lambda: ws.preview("latest")}[look]()
    assert "locked" in elsewhere(
        root, "try: db.execute('begin immediate'); print('mine')\nexcept sqlite3.Error as error: print(error)"
    )
    database.execute("commit")


def test_descriptors_are_closed_with_the_database(root: Path, ws: Workspace, database: sqlite3.Connection) -> None:
    found = []
    for number in range(4):
        database.execute("insert into rows values (?)", [number])
        ws.save()
        found.append(descriptors(root / "app.db"))
    assert len(set(found)) == 1
    database.close()
    (root / "other").write_text("another file")
    ws.save()
    assert descriptors(root / "app.db") == 0


def test_restore_leaves_a_database_open_in_this_process(
    root: Path, ws: Workspace, database: sqlite3.Connection
) -> None:
    (root / "file").write_text("one")
    ws.save("before")
    database.execute("insert into rows values (1)")
    (root / "file").write_text("two")
    done = ws.restore("latest")
    assert (root / "file").read_text() == "one"
    assert set(done.failed.values()) == {"a database that a process has open"}
    assert set(done.failed) <= {"app.db", "app.db-wal", "app.db-shm"}
    assert count(root) == "1"
    database.execute("insert into rows values (2)")
    assert count(root) == "2"


def test_what_two_read_at_once_is_closed_by_the_last_of_them(root: Path, database: sqlite3.Connection) -> None:
    folder = os.open(root, os.O_RDONLY)
    try:
        sqlite_files.close_file(sqlite_files.open_file("app.db", FLAGS, folder))  # kept: the database is open
        first = sqlite_files.open_file("app.db", FLAGS, folder)
        second = sqlite_files.open_file("app.db", FLAGS, folder)
        database.close()
        sqlite_files.close_file(first)
        assert os.pread(second, 6, 0) == b"SQLite"
        sqlite_files.close_file(second)
        assert descriptors(root / "app.db") == 0
    finally:
        os.close(folder)


@pytest.mark.parametrize(
    ("name", "content", "is_looked_up"),
    [
        ("text", b"text", False),
        ("almost", sqlite_files.MAGIC[:-1], False),
        ("app.db", sqlite_files.MAGIC + b"more", True),
        ("new.db", b"", True),  # SQLite locks a database before it writes to it
        ("app.db-wal", b"text", True),
    ],
)
def test_descriptors_are_looked_up_for_databases_alone(
    name: str, content: bytes, is_looked_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore asks this of every file that it removes."""
    (tmp_path / name).write_bytes(content)
    looked_up: list[object] = []
    monkeypatch.setattr(sqlite_files, "_is_open_elsewhere", lambda identity: bool(looked_up.append(identity)))
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with sqlite_files.reading(name, FLAGS, folder):
            pass
    finally:
        os.close(folder)
    assert bool(looked_up) == is_looked_up
    assert descriptors(tmp_path / name) == 0
