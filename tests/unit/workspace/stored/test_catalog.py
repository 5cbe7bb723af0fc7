"""The catalog: only a memory of what refs and commits say, so that anything may happen to it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Workspace
from holdfast.workspace.stored import catalog
from holdfast.workspace.stored.catalog import Catalog, Row


def row(number: int, **changes: Any) -> Row:
    plain = Row(
        id=f"a{number}-00000000",
        sequence=number,
        name=None,
        session=None,
        message="",
        timestamp="2024-01-01T00:00:00+00:00",
        safety=False,
        commit="c" * 40,
        content=f"content {number}",
        state="state",
        record="{}",
    )
    return plain._replace(**changes)


class Shelf:
    """What refs and commits say, and a catalog of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row | None] = {}
        self.loaded: list[str] = []

    def refs(self) -> dict[str, str]:
        return dict.fromkeys(self.rows, "mark")

    def load(self, checkpoint_id: str) -> Row | None:
        self.loaded.append(checkpoint_id)
        return self.rows[checkpoint_id]

    def put(self, *rows: Row) -> None:
        self.rows |= {each.id: each for each in rows}

    def open(self) -> Catalog:
        """The catalog, as a new process opens it."""
        return Catalog(self.path, self.refs, self.load)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "catalog.db")


@pytest.fixture
def full(shelf: Shelf) -> Catalog:
    """Three saves and a safety checkpoint."""
    shelf.put(
        row(1, name="first", session="s"),
        row(2, content="content 1", state="other"),
        row(3, safety=True, content="content 1"),
        row(4, session="s"),
    )
    catalog = shelf.open()
    catalog.sync()
    return catalog


def numbers(rows: list[Row]) -> list[int]:
    return [each.sequence for each in rows]


class TestAsking:
    def test_list_is_newest_first_without_safety_checkpoints(self, full: Catalog) -> None:
        assert numbers(full.newest(limit=None, session=None, safety=False)) == [4, 2, 1]
        assert numbers(full.newest(limit=None, session=None, safety=True)) == [4, 3, 2, 1]
        assert numbers(full.newest(limit=2, session=None, safety=False)) == [4, 2]
        assert numbers(full.newest(limit=0, session=None, safety=False)) == []
        assert numbers(full.newest(limit=None, session="s", safety=False)) == [4, 1]

    def test_the_newest_save_is_counted_back_from(self, full: Catalog) -> None:
        assert [each and each.sequence for each in map(full.nth, range(4))] == [4, 2, 1, None]

    def test_one_is_found_by_id_name_and_prefix(self, full: Catalog) -> None:
        assert full.by_id("a2-00000000") == row(2, content="content 1", state="other")
        assert full.by_id("a9-00000000") is None
        assert full.by_name("first") == row(1, name="first", session="s")
        assert full.by_name("nobody") is None
        assert numbers(full.by_prefix("a1")) == [1]
        assert numbers(full.by_prefix("a")) == [1, 2, 3, 4]
        assert numbers(full.by_prefix("%")) == []

    def test_safety_checkpoints_are_told_oldest_first(self, full: Catalog) -> None:
        full.add(row(5, safety=True))
        assert numbers(full.operations()) == [3, 5]
        greatest = full.greatest()
        assert greatest is not None
        assert greatest.sequence == 5

    def test_one_that_was_deleted_is_not_found(self, full: Catalog) -> None:
        full.remove("a4-00000000")
        assert full.by_id("a4-00000000") is None
        assert numbers(full.newest(limit=None, session=None, safety=False)) == [2, 1]


class TestBesideAWriter:
    """A writer that was stopped in the middle of its commit."""

    def test_readers_do_not_wait_for_it(self, shelf: Shelf, full: Catalog) -> None:
        with closing(sqlite3.connect(shelf.path, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            assert numbers(full.newest(limit=None)) == [4, 2, 1]
            with full.kept_open():
                assert full.by_name("first") == row(1, name="first", session="s")
            assert numbers(shelf.open().newest(limit=None)) == [4, 2, 1]
        assert numbers(full.newest(limit=None)) == [4, 2, 1]

    def test_what_was_not_written_is_made_up_for(self, shelf: Shelf, full: Catalog) -> None:
        shelf.put(row(5))
        with closing(sqlite3.connect(shelf.path, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            full.add(row(5))
        full.sync()
        assert numbers(full.newest(limit=1)) == [5]


class TestSync:
    def test_what_is_missing_is_loaded_and_what_is_stale_goes(self, shelf: Shelf, full: Catalog) -> None:
        shelf.loaded.clear()
        shelf.rows = {"a1-00000000": row(1), "a7-00000000": row(7), "a8-unreadable": None}
        full.sync()
        assert shelf.loaded == ["a7-00000000", "a8-unreadable"]
        assert numbers(full.newest(limit=None, session=None, safety=True)) == [7, 1]

    def test_nothing_is_written_when_it_agrees(self, shelf: Shelf, full: Catalog) -> None:
        before = shelf.path.stat().st_mtime_ns
        full.sync()
        assert shelf.path.stat().st_mtime_ns == before

    def test_checkpoint_made_during_sync_is_not_stale(self, shelf: Shelf, full: Catalog) -> None:
        def list_while_somebody_saves() -> dict[str, str]:
            shelf.put(row(5))  # the ref comes first, then the row
            full.add(row(5))
            return shelf.refs()

        Catalog(shelf.path, list_while_somebody_saves, shelf.load).sync()
        assert full.by_id("a5-00000000") is not None


class TestLooking:
    """Where refs and catalog look as they did when they agreed, nothing is read; any doubt means reading."""

    @pytest.fixture
    def looks(self, shelf: Shelf, tmp_path: Path) -> Path:
        """A folder that stands for the refs, changed long ago, and a catalog that agreed with it."""
        refs = tmp_path / "refs"
        refs.mkdir()
        shelf.put(row(1, name="first"))
        self.sync(shelf, refs)
        for path in (refs, shelf.path):
            os.utime(path, ns=(1_700_000_000_000_000_001,) * 2)
        self.sync(shelf, refs, settled=True)
        return refs

    def sync(self, shelf: Shelf, refs: Path, *, settled: bool = False) -> int:
        """Sync as a new process does, and tell how often the refs were listed."""
        listed = []

        def list_refs() -> dict[str, str]:
            listed.append(1)
            return shelf.refs()

        with pytest.MonkeyPatch.context() as patch:
            later = time.time_ns() + 60_000_000_000
            if settled:  # as if all this had happened a minute later
                patch.setattr("holdfast.workspace.stored.catalog.time.time_ns", lambda: later)
            Catalog(shelf.path, list_refs, shelf.load, lambda: [refs.stat()]).sync()
        return len(listed)

    def test_nothing_is_listed_while_nothing_changes(self, shelf: Shelf, looks: Path) -> None:
        assert self.sync(shelf, looks, settled=True) == 0

    def test_a_change_of_the_refs_or_of_the_catalog_is_looked_into(self, shelf: Shelf, looks: Path) -> None:
        os.utime(looks)
        assert self.sync(shelf, looks, settled=True) == 1
        assert self.sync(shelf, looks, settled=True) == 0
        shelf.open().add(row(2))
        assert self.sync(shelf, looks, settled=True) == 1
        assert shelf.open().by_id("a2-00000000") is None, "there is no such ref"

    def test_what_changed_a_moment_ago_is_not_trusted(self, shelf: Shelf, looks: Path) -> None:
        os.utime(looks)
        assert self.sync(shelf, looks) == 1
        assert self.sync(shelf, looks) == 1

    def test_a_note_that_is_torn_lost_or_another_is_not_trusted(self, shelf: Shelf, looks: Path) -> None:
        note = Path(f"{shelf.path}-agreed")
        true = note.read_bytes()
        for other in (true[:-1], b"", true + b"x", b"garbage"):
            note.write_bytes(other)
            assert self.sync(shelf, looks, settled=True) == 1
            assert note.read_bytes() == true
        note.unlink()
        assert self.sync(shelf, looks, settled=True) == 1

    def test_a_note_from_before_the_machine_went_down_is_not_trusted(
        self, shelf: Shelf, looks: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("holdfast.workspace.stored.catalog._boot", lambda: "another")
        assert self.sync(shelf, looks, settled=True) == 1
        assert self.sync(shelf, looks, settled=True) == 0

    @pytest.mark.parametrize("by", [-1, 1])
    def test_a_note_of_another_version_is_not_trusted(self, shelf: Shelf, looks: Path, by: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("holdfast.workspace.stored.catalog._VERSION", catalog._VERSION + by)
            self.sync(shelf, looks)
            os.utime(shelf.path, ns=(1_700_000_000_000_000_001,) * 2)
            self.sync(shelf, looks, settled=True)
        assert self.sync(shelf, looks, settled=True) == 1
        assert shelf.open().nth(0) == row(1, name="first")

    def test_a_log_that_somebody_left_is_looked_into(self, shelf: Shelf, looks: Path) -> None:
        with closing(sqlite3.connect(shelf.path)) as connection:
            connection.execute("UPDATE checkpoints SET safety = 1")
            connection.commit()
            assert self.sync(shelf, looks, settled=True) == 1 + 1, "once to make it anew, once to compare"
        assert shelf.open().nth(0) == row(1, name="first")

    def test_a_ref_that_was_replaced_is_read_anew(self, shelf: Shelf, full: Catalog) -> None:
        changed = row(2, message="another", commit="d" * 40)
        shelf.put(changed)
        full.sync()
        assert full.by_id("a2-00000000") != changed, "nothing tells"
        Catalog(shelf.path, lambda: shelf.refs() | {"a2-00000000": "other"}, shelf.load).sync()
        assert full.by_id("a2-00000000") == changed

    def test_an_index_of_names_that_lost_one_is_made_anew(self, shelf: Shelf, full: Catalog) -> None:
        with closing(sqlite3.connect(shelf.path)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'IS NOT NULL', '= 1') WHERE name = 'names'")
        with closing(sqlite3.connect(shelf.path)) as connection, connection:
            connection.execute("REINDEX names")
        again = shelf.open()
        again.sync()
        assert again.by_name("first") == shelf.rows["a1-00000000"]


class TestDamage:
    """Whatever becomes of the file, the answers are those that refs and commits give."""

    def check(self, shelf: Shelf) -> None:
        catalog = shelf.open()
        catalog.sync()
        assert numbers(catalog.newest(limit=None, session=None, safety=True)) == [4, 3, 2, 1]
        assert catalog.by_name("first") == shelf.rows["a1-00000000"]
        shelf.put(row(5))
        catalog.add(row(5))
        assert catalog.greatest() == row(5)
        assert catalog.by_name("nobody") is None
        again = shelf.open()
        assert numbers(again.newest(limit=None, session=None, safety=True)) == [5, 4, 3, 2, 1], "it is on disk"

    @pytest.mark.parametrize("garbage", [b"", b"garbage", b"\0" * 4096, b"SQLite format 3\0" + b"\xff" * 5000])
    def test_a_catalog_of_garbage_is_made_anew(self, shelf: Shelf, full: Catalog, garbage: bytes) -> None:
        shelf.path.write_bytes(garbage)
        self.check(shelf)

    @pytest.mark.parametrize("kept", ["one page", "two pages", "half", "all but a byte"])
    def test_a_catalog_cut_short_is_made_anew(self, shelf: Shelf, full: Catalog, kept: str) -> None:
        size = shelf.path.stat().st_size
        cuts = {"one page": 4096, "two pages": 8192, "half": size // 2, "all but a byte": size - 1}
        os.truncate(shelf.path, cuts[kept])
        self.check(shelf)

    def test_a_catalog_with_a_flipped_byte_anywhere_is_no_obstacle(self, shelf: Shelf, full: Catalog) -> None:
        sound = shelf.path.read_bytes()
        obstacles = {}
        pages = range(0, len(sound), 4096)  # what is in a page stands at its two ends
        for place in (page + at for page in pages for at in (*range(0, 112, 9), *range(3200, 4096, 13))):
            for leftover in shelf.path.parent.glob("catalog.db*"):
                leftover.unlink()
            flipped = bytearray(sound)
            flipped[place] ^= 0xFF
            shelf.path.write_bytes(flipped)
            try:
                catalog = shelf.open()
                catalog.sync()
                catalog.add(row(4, session="s"))
                catalog.newest(limit=None, session=None, safety=True)
                catalog.by_name("nobody")
                catalog.greatest()
            except (sqlite3.Error, ValueError, HoldfastError) as error:
                obstacles[place] = repr(error)
        assert not obstacles

    def test_flipped_bit_in_the_catalog_is_found_and_harmless(self, project: Any, ws: Workspace) -> None:
        for number in range(4):
            ws.save(f"message {number}", name=f"name {number}", allow_empty=True)
        true = ws.list()
        path = project.store / "holdfast" / "catalog.db"
        sound = path.read_bytes()
        obstacles, unnoticed = {}, []
        for place in range(4096 + 1100, len(sound), 41):
            flipped = bytearray(sound)
            flipped[place] ^= 1
            path.write_bytes(flipped)
            try:
                again = project.open()
                if again.list() != true and again.verify().ok:
                    unnoticed.append(place)
            except (sqlite3.Error, ValueError, HoldfastError) as error:
                obstacles[place] = repr(error)[:80]
        assert not obstacles
        assert not unnoticed

    @pytest.mark.parametrize(
        "change", ["safety = 1", "name = 'mane 1'", "session = 't'", "sequence = 9", "content = ''"]
    )
    def test_a_row_that_is_not_what_was_written_hides_no_checkpoint(
        self, project: Any, ws: Workspace, change: str
    ) -> None:
        saved = [ws.save(f"{number}", name=f"name {number}", session="s", allow_empty=True) for number in range(3)]
        for ask in (
            lambda again: again.get("name 1") == saved[1],
            lambda again: again.list(session="s") == saved[::-1],
            lambda again: again.get("latest~1") == saved[1],
        ):
            with closing(sqlite3.connect(project.store / "holdfast" / "catalog.db")) as connection, connection:
                connection.execute(f"UPDATE checkpoints SET {change} WHERE id = ?", [saved[1].id])
            assert ask(project.open())

    @pytest.mark.parametrize("schema", ["CREATE TABLE other (x)", "CREATE TABLE checkpoints (x)"])
    @pytest.mark.parametrize("is_newer", [True, False], ids=["by another version", "by this one"])
    def test_a_catalog_of_another_layout_is_made_anew(
        self, shelf: Shelf, full: Catalog, is_newer: bool, schema: str
    ) -> None:
        with closing(sqlite3.connect(shelf.path)) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        shelf.path.unlink()
        with closing(sqlite3.connect(shelf.path)) as connection:
            connection.execute(schema)
            connection.execute(f"PRAGMA user_version={version + is_newer}")
        self.check(shelf)

    def test_one_that_vanishes_between_calls_is_made_anew(self, shelf: Shelf, full: Catalog) -> None:
        for leftover in shelf.path.parent.glob("catalog.db*"):
            leftover.unlink()
        full.sync()
        assert numbers(full.newest(limit=None, session=None, safety=True)) == [4, 3, 2, 1]

    def test_a_folder_that_cannot_be_written_to_is_no_obstacle(
        self, shelf: Shelf, full: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                raise OSError(30, "Read-only file system", path)
            return real_open(path, flags, *rest, **options)

        for leftover in shelf.path.parent.glob("catalog.db*"):
            leftover.unlink()
        real_open = os.open
        monkeypatch.setattr(os, "open", refuse)
        catalog = shelf.open()
        catalog.sync()
        assert numbers(catalog.newest(limit=None, session=None, safety=True)) == [4, 3, 2, 1]
        assert os.listdir(shelf.path.parent) == []

    def test_a_catalog_whose_folder_is_gone_is_kept_in_memory(self, shelf: Shelf, full: Catalog) -> None:
        shelf.path = shelf.path.parent / "nowhere" / "catalog.db"
        catalog = shelf.open()
        catalog.sync()
        assert numbers(catalog.newest(limit=None, session=None, safety=True)) == [4, 3, 2, 1]

    def test_a_stale_row_of_a_real_store_is_not_believed(self, project: Any, ws: Workspace) -> None:
        kept, gone = ws.save("kept", allow_empty=True), ws.save("gone", allow_empty=True)
        (project.store / "refs" / "tags" / gone.id).unlink()
        assert [each.id for each in project.open().list()] == [kept.id]
        assert ws.get("latest").id == kept.id

    def test_the_catalog_of_a_real_store_is_rebuilt_as_it_was(self, project: Any, ws: Workspace) -> None:
        project.write("file")
        first = ws.save("one", name="named", session="s", metadata={"a": 1}, state={"x": 1})
        ws.restore(first.id)
        ws.save("two", allow_empty=True)
        before = ws.list(safety=True)
        for leftover in (project.store / "holdfast").glob("catalog.db*"):
            leftover.unlink()
        assert project.open().list(safety=True) == before
        assert project.open().verify().ok


def test_the_file_is_closed_to_others(full: Catalog, tmp_path: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("catalog.db*")} == {0o600}


def test_threads_share_one_catalog(full: Catalog) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(10):
                full.add(row(100 + 10 * number + step))
                full.newest(limit=5, session=None, safety=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(full.newest(limit=None, session=None, safety=True)) == 44


class TestKeptOpen:
    def test_the_calls_of_one_thread_share_a_connection(
        self, shelf: Shelf, full: Catalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with full.kept_open():
            monkeypatch.setattr(Catalog, "_connect", lambda self: pytest.fail("opened anew"))
            full.add(row(7))
            assert full.by_id(row(7).id) == row(7)
        monkeypatch.undo()
        assert shelf.open().by_id(row(7).id) == row(7)

    def test_another_thread_has_its_own(self, full: Catalog) -> None:
        found: list[object] = []
        with full.kept_open():
            thread = threading.Thread(target=lambda: found.append(full.by_id(row(1).id)))
            thread.start()
            thread.join()
        assert found[0] is not None

    def test_a_catalog_that_is_found_damaged_meanwhile_is_made_anew(self, shelf: Shelf, full: Catalog) -> None:
        with full.kept_open():
            full._discard()
            full.add(shelf.rows[row(1).id] or row(1))
            assert shelf.path.exists()
        shelf.open().sync()
        assert shelf.open().by_id(row(1).id) is not None


def test_overview_has_an_actor_that_is_no_text(tmp_path: Path) -> None:
    """SQLite takes a lone surrogate out of a record, and Python does not take it from SQLite."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a").write_text("a")
    workspace = Workspace(tmp_path / "project", store=tmp_path / "store", home=tmp_path, environ={})
    saved = workspace.save("one", actor="a\ud800")
    [(key, _, actor)] = workspace.overview()
    assert key == saved.id
    assert actor.startswith("a") and actor.isprintable()
