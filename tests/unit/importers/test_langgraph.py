"""The tables of LangGraph's savers."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import Damaged, NotFound, Refused
from holdfast.flow import open_states
from unit.importers.graphs import SCHEMA, VALUES, Cart, config, database, graph, run_graph, tables_of
from unit.importers.scenes import bytes_and_times, plan, run


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/out/states.db"


@pytest.fixture(autouse=True)
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    return tmp_path / "out"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return database(tmp_path / "in" / "lg.db")


class TestThreads:
    def test_saver_continues(self, source: Path, target: str) -> None:
        done = run(source, target)
        assert done.not_carried == ()
        assert done.added == 6
        with HoldfastSaver.from_url(target) as saver:
            found = graph(saver).get_state(config())
            assert [type(each) for each in found.values["messages"]] == [HumanMessage, AIMessage]
            assert found.values["values"] == VALUES
            assert found.next == ("second",)
            assert [each.value for each in found.interrupts] == ["go on?"]
            ended = graph(saver).invoke(Command(resume="yes"), config())
            assert ended["log"] == ["first", "second yes"]

    def test_same_as_the_source(self, tmp_path: Path, target: str) -> None:
        origin = InMemorySaver()
        run_graph(origin)
        run(tables_of(origin, tmp_path / "in" / "lg.db"), target)
        with HoldfastSaver.from_url(target) as saver:
            for thread in ("t1", "t2"):
                wanted, found = list(origin.list(config(thread))), list(saver.list(config(thread)))
                assert [each.config for each in found] == [each.config for each in wanted]
                assert [each.checkpoint for each in found] == [each.checkpoint for each in wanted]
                assert [each.metadata for each in found] == [each.metadata for each in wanted]
                assert [each.parent_config for each in found] == [each.parent_config for each in wanted]
                assert [each.pending_writes for each in found] == [each.pending_writes for each in wanted]

    def test_second_run_adds_nothing(self, source: Path, target: str) -> None:
        run(source, target)
        again = plan(source, target)
        assert (again.new, again.present) == (0, 6)
        done = run(source, target)
        assert (done.added, done.present) == (0, 6)

    def test_later_checkpoints_and_writes_are_added(self, tmp_path: Path, target: str) -> None:
        origin = InMemorySaver()
        run_graph(origin)
        run(tables_of(origin, tmp_path / "in" / "1.db"), target)
        graph(origin).invoke(Command(resume="yes"), config("t2"))
        run(tables_of(origin, tmp_path / "in" / "2.db"), target)
        with HoldfastSaver.from_url(target) as saver:
            assert graph(saver).get_state(config("t2")).values["log"] == ["first", "second yes"]
            wanted = [each.pending_writes for each in origin.list(config("t2"))]
            assert [each.pending_writes for each in saver.list(config("t2"))] == wanted

    def test_time_and_source_are_kept(self, source: Path, target: str) -> None:
        run(source, target)
        with open_states(target, on_unknown="keep") as states:
            found = states.metadata("t1")[0]
        assert found.timestamp.tzinfo is not None
        assert found.extra["imported"] == {"source": str(source)}

    def test_continues_after_kill(self, source: Path, target: str) -> None:
        script = """
import os, signal, sys
from holdfast.importers import ImportRequest, open_import
opened = open_import(ImportRequest(sys.argv[1], sys.argv[2]))
opened.run(lambda stage, done, total: done == 3 and os.kill(os.getpid(), signal.SIGKILL))
"""
        killed = subprocess.run([sys.executable, "-c", script, str(source), target], check=False)
        assert killed.returncode == -signal.SIGKILL
        done = run(source, target)
        assert (done.added, done.present) == (4, 2)


class TestClasses:
    def test_unknown_class_stays_plain_and_is_reported(self, tmp_path: Path, target: str) -> None:
        source = database(tmp_path / "in" / "lg.db", extra={"cart": Cart(["book"])})
        done = run(source, target)
        assert [each.what for each in done.not_carried] == ["class unit.importers.graphs.Cart"]
        with HoldfastSaver.from_url(target) as saver:
            assert graph(saver).get_state(config()).values["values"] == {"cart": {"items": ["book"]}}

    def test_class_of_the_caller(self, tmp_path: Path, target: str) -> None:
        source = database(tmp_path / "in" / "lg.db", extra={"cart": Cart(["book"])})
        done = run(source, target, schemas=[Cart])
        assert done.not_carried == ()
        with HoldfastSaver.from_url(target, schemas=[Cart]) as saver:
            assert graph(saver).get_state(config()).values["values"] == {"cart": Cart(["book"])}

    def test_named_function_is_never_called(self, tmp_path: Path, target: str) -> None:
        marker = tmp_path / "made"
        source = database(tmp_path / "in" / "lg.db", threads=("t1",))
        for code, argument in ((0, str(marker)), (1, [str(marker)]), (2, {"name": str(marker)})):
            evil = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(["os", "mkdir", argument])))
            _change(source, "UPDATE writes SET type = 'msgpack', value = ?", evil)
            done = run(source, target)
            assert "class os.mkdir" in [each.what for each in done.not_carried]
            assert not marker.exists()


def _change(path: Path, query: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(query, values)
    connection.close()


class TestSourceIsOnlyRead:
    @pytest.mark.parametrize("mode", ["DELETE", "WAL"])
    def test_no_byte_changes_and_no_file_appears(self, source: Path, target: str, mode: str) -> None:
        connection = sqlite3.connect(source)
        connection.execute(f"PRAGMA journal_mode={mode}")
        if mode == "WAL":
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute("UPDATE checkpoints SET parent_checkpoint_id = parent_checkpoint_id")
            connection.commit()
        before = bytes_and_times(source.parent)
        assert len(before) == (3 if mode == "WAL" else 1)
        assert run(source, target).added == 6
        assert bytes_and_times(source.parent) == before
        connection.close()

    def test_closed_file_in_wal_mode(self, source: Path, target: str) -> None:
        _change(source, "PRAGMA journal_mode=WAL")
        before = bytes_and_times(source.parent)
        run(source, target)
        assert bytes_and_times(source.parent) == before

    def test_plan_creates_nothing(self, source: Path, target: str, out: Path) -> None:
        plan(source, target)
        assert list(out.iterdir()) == []


class TestBadInput:
    """One clear error; nothing is written."""

    def check(self, kind: type[Exception], source: Path, target: str, out: Path, match: str) -> None:
        with pytest.raises(kind, match=match):
            run(source, target)
        assert list(out.iterdir()) == []

    def test_truncated_file(self, source: Path, target: str, out: Path) -> None:
        source.write_bytes(source.read_bytes()[:6000])
        self.check(Damaged, source, target, out, "damaged")

    def test_no_rows(self, tmp_path: Path, target: str, out: Path) -> None:
        path = tmp_path / "in" / "empty.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(SCHEMA)
        connection.close()
        self.check(NotFound, path, target, out, "no states")

    def test_other_columns(self, tmp_path: Path, target: str, out: Path) -> None:
        path = tmp_path / "in" / "other.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript("CREATE TABLE checkpoints (a); CREATE TABLE writes (b);")
        connection.close()
        self.check(Refused, path, target, out, "no column")

    def test_view_in_place_of_a_table(self, tmp_path: Path, target: str, out: Path) -> None:
        path = tmp_path / "in" / "view.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript("CREATE VIEW checkpoints AS SELECT 1; CREATE TABLE writes (b);")
        connection.close()
        self.check(Refused, path, target, out, "unknown format")

    @pytest.mark.parametrize(
        "kind, data",
        [
            ("msgpack", b"\xc1"),
            ("msgpack", b"\xdd\xff\xff\xff\xff"),
            ("msgpack", b"\x91" * 100_000 + b"\xc0"),
            ("msgpack", b"\xc7"),
            ("json", b"[" * 100_000),
            ("json", b'{"id"'),
            ("json", b"null"),
            ("pickle", pickle.dumps(print)),
            ("pickle", b"cos\nsystem\n(S'true'\ntR."),
            ("msgpack+aes", b"x"),
            ("new", b"x"),
        ],
    )
    def test_unreadable_values(self, source: Path, target: str, out: Path, kind: str, data: bytes) -> None:
        _change(source, "UPDATE checkpoints SET type = ?, checkpoint = ?", kind, data)
        self.check(Damaged, source, target, out, "no state of")

    def test_nested_extensions(self, source: Path, target: str, out: Path) -> None:
        data = b"\xc0"
        for _ in range(3000):
            data = ormsgpack.packb(ormsgpack.Ext(7, data))
        _change(source, "UPDATE checkpoints SET checkpoint = ?", data)
        self.check(Damaged, source, target, out, "no state of")

    def test_one_bad_row_does_not_hide_the_others(self, source: Path, target: str) -> None:
        _change(source, "UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 't1'")
        done = run(source, target)
        assert done.added == 3
        assert all(each.what.startswith("session t1 checkpoint ") for each in done.not_carried)

    def test_name_that_is_no_text(self, source: Path, target: str) -> None:
        _change(source, "UPDATE checkpoints SET thread_id = CAST(x'ff' AS TEXT) WHERE thread_id = 't1'")
        done = run(source, target)
        assert (done.added, len(done.not_carried)) == (3, 3)

    def test_one_bad_write_does_not_hide_its_checkpoint(self, source: Path, target: str) -> None:
        _change(source, "UPDATE writes SET value = x'c1' WHERE thread_id = 't1' AND channel = 'log'")
        assert [each.what for each in plan(source, target).not_carried] == ["session t1 write to log"]
        done = run(source, target)
        assert done.added == 6
        assert [each.what for each in done.not_carried] == ["session t1 write to log"]

    @pytest.mark.parametrize("index", ["first", 1.5, None])
    def test_write_whose_index_is_no_number(self, source: Path, target: str, index: object) -> None:
        with closing(sqlite3.connect(source)) as connection, connection:
            connection.execute("PRAGMA writable_schema = ON")  # SQLite checks NOT NULL, not the type
            connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'idx INTEGER NOT NULL', 'idx INTEGER')")
        connection.close()
        _change(source, "UPDATE writes SET idx = ? WHERE thread_id = 't1' AND channel = 'log'", index)
        done = run(source, target)
        assert done.added == 6
        assert [each[:2] for each in done.not_carried] == [
            ("session t1 write to log", "its index is not a whole number")
        ]

    def test_names_that_are_no_text_are_not_mixed_up(self, source: Path, target: str) -> None:
        _change(source, "UPDATE checkpoints SET thread_id = x'ff' WHERE thread_id = 't1'")
        _change(source, "UPDATE checkpoints SET thread_id = x'fe' WHERE thread_id = 't2'")
        with pytest.raises(Damaged, match="its name is not text"):
            run(source, target)

    def test_versions_seen_that_are_no_mapping(self, source: Path, target: str, out: Path) -> None:
        body = {"v": 4, "id": "c", "ts": "2026-01-02T03:04:05+00:00", "versions_seen": 5}
        _change(source, "DELETE FROM checkpoints WHERE rowid > 1")
        _change(source, "UPDATE checkpoints SET checkpoint_id = 'c', type = 'json', checkpoint = ?", json.dumps(body))
        self.check(Damaged, source, target, out, "not a checkpoint of LangGraph")

    def test_target_is_needed(self, source: Path) -> None:
        with pytest.raises(Refused, match="no target for"):
            run(source)
        with pytest.raises(Refused, match="is not a flow store"):
            run(source, source.parent)

    def test_deleted_session_is_reported(self, source: Path, target: str) -> None:
        with open_states(target) as states:
            states.store.add_tombstone("t1")
        done = run(source, target)
        assert done.added == 3
        assert all("was deleted" in each.why for each in done.not_carried)


def test_pickled_plain_values(source: Path, target: str) -> None:
    value = {"a": [1, 2.5, None, True], "b": (b"x", {"s"}), "big": 1 << 70}
    _change(source, "UPDATE writes SET type = 'pickle', value = ? WHERE channel = 'log'", pickle.dumps(value))
    run(source, target)
    with HoldfastSaver.from_url(target) as saver:
        writes = [write for each in saver.list(None) for write in each.pending_writes or ()]
    assert value in [each[2] for each in writes if each[1] == "log"]


def test_source_is_closed(source: Path, target: str) -> None:
    run(source, target)
    open_files = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)}
    assert str(source) not in open_files


def _is_link(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}") and os.path.lexists(f"/proc/self/fd/{fd}")
