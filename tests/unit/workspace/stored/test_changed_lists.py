"""Which checkpoints changed a path: the same with the cache of lists, without it, and with a damaged one."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.workspace import Workspace
from holdfast.workspace.stored.repository import Repository

if TYPE_CHECKING:
    from unit.workspace.conftest import Project


@pytest.fixture
def saved(ws: Workspace, project: Project) -> Workspace:
    for number in range(1, 5):
        project.write("a" if number % 2 else "sub/b", b"%d\n" % number)
        ws.save(f"{number}")
    return ws


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of checkpoints whose lists were read from the store."""
    found: list[str] = []
    read = Repository.files_changed_in
    monkeypatch.setattr(Repository, "files_changed_in", lambda self, row: found.append(row.id) or read(self, row))
    return found


def messages(ws: Workspace, *paths: str, limit: int | None = None) -> list[str]:
    return [each.message for each in ws.list(limit, paths=paths)]


def cache(ws: Workspace) -> Path:
    return ws.store / "holdfast" / "changes.db"


def test_lists_are_read_once(saved: Workspace, reads: list[str]) -> None:
    assert messages(saved, "a") == ["3", "1"] and len(reads) == 4
    reads.clear()
    assert messages(saved, "a") == ["3", "1"]
    assert messages(saved, "sub") == messages(saved, "*b") == ["4", "2"] and reads == []
    assert cache(saved).stat().st_mode & 0o777 == 0o600


def test_only_what_is_new_is_read(saved: Workspace, project: Project, reads: list[str]) -> None:
    messages(saved, "a")
    project.write("a", b"new\n")
    saved.save("5")
    reads.clear()
    assert messages(saved, "a") == ["5", "3", "1"] and len(reads) == 1


def test_one_who_stops_early_keeps_what_was_read(saved: Workspace, reads: list[str]) -> None:
    assert messages(saved, "sub", limit=1) == ["4"] and len(reads) == 1
    assert messages(saved, "sub", limit=1) == ["4"] and len(reads) == 1


@pytest.mark.parametrize("data", [b"", b"nonsense" * 100])
def test_damaged_file_is_made_again(saved: Workspace, reads: list[str], data: bytes) -> None:
    for _ in range(2):
        cache(saved).write_bytes(data)
        assert messages(saved, "a") == ["3", "1"]
    reads.clear()
    assert messages(saved, "a") == ["3", "1"] and reads == []


def test_row_with_another_content_is_read_again(saved: Workspace, reads: list[str]) -> None:
    messages(saved, "a")
    with contextlib.closing(sqlite3.connect(cache(saved))) as db, db:
        db.execute("UPDATE changed SET paths = '[\"elsewhere\"]'")
    reads.clear()
    assert messages(saved, "a") == ["3", "1"] and len(reads) == 4


def test_file_that_cannot_be_written_is_no_error(saved: Workspace) -> None:
    cache(saved).mkdir()
    assert messages(saved, "a") == ["3", "1"]


def test_deleted_and_rewritten_checkpoints(saved: Workspace, project: Project) -> None:
    messages(saved, "a")
    saved.delete(saved.list(None)[1].id)
    assert messages(saved, "a") == ["1"]
    project.write("a", b"Secret\n")
    saved.save("5")
    messages(saved, "a")
    saved.purge("sub/b")
    assert messages(saved, "a") == ["5", "1"]


def test_rows_of_deleted_checkpoints_do_not_pile_up(
    saved: Workspace, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.workspace.stored.changed_lists._FEW", 0)
    messages(saved, "a")
    with contextlib.closing(sqlite3.connect(cache(saved))) as db, db:
        db.executemany("INSERT INTO changed VALUES (?, '[]', 0)", [(f"{n:040}",) for n in range(20)])
    project.write("a", b"new\n")
    saved.save("5")
    assert messages(saved, "a") == ["5", "3", "1"]
    with contextlib.closing(sqlite3.connect(cache(saved))) as db:
        assert db.execute("SELECT count(*) FROM changed").fetchone()[0] == 1
