"""llmfy's checkpoints, in tables and keys as each of its versions writes them."""

from __future__ import annotations

import base64
import json
import pickle
import signal
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.flow import open_states
from holdfast.importers import ImportRequest, open_import
from unit.importers.scenes import bytes_and_times, plan, run

LONG = """CREATE TABLE llmfy_checkpoint (checkpoint_id VARCHAR(255) PRIMARY KEY, session_id VARCHAR(255) NOT NULL,
 run_id VARCHAR(255) NOT NULL, created_at DATETIME NOT NULL, node VARCHAR(255) NOT NULL, prev_node VARCHAR(255),
 step INTEGER NOT NULL, updated_fields JSON NOT NULL, attempt INTEGER, dispatch_id VARCHAR(255), state BLOB NOT NULL)"""
SHORT = """CREATE TABLE llmfy_checkpoint (checkpoint_id VARCHAR(255) PRIMARY KEY, session_id VARCHAR(255) NOT NULL,
 timestamp DATETIME NOT NULL, node_name VARCHAR(255) NOT NULL, step INTEGER NOT NULL, state TEXT NOT NULL)"""
STATE = {"log": ["a"], "user": {"__type__": "os.Popen", "data": {"args": "true"}}}


def insert(path: Path, *states: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for number, state in enumerate(states):
            when = f"2026-01-02 03:04:0{number}.000000"
            row = (f"c{number}", "s1", "r1", when, "node", "__start__", number, '["log"]', 1, None, state)
            connection.execute(f"INSERT INTO llmfy_checkpoint VALUES ({', '.join('?' * 11)})", row)
    connection.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "llmfy.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(LONG)
    connection.close()
    return path


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "out").mkdir()
    return f"sqlite:///{tmp_path}/out/states.db"


def states_of(target: str, session: str = "s1") -> list[Any]:
    with open_states(target) as states:
        return list(reversed(states.list(session, None)))


class TestTable:
    def test_checkpoints_come_over(self, source: Path, target: str) -> None:
        insert(source, json.dumps(STATE).encode(), zlib.compress(json.dumps({"log": ["a", "b"]}).encode()))
        before = bytes_and_times(source.parent)
        done = run(source, target)
        assert (done.added, done.not_carried) == (2, ())
        assert bytes_and_times(source.parent) == before
        first, second = states_of(target)
        assert (first.state, second.state) == (STATE, {"log": ["a", "b"]})
        meta = second.metadata
        assert (meta.checkpoint_id, meta.node_name, meta.step, meta.run_id) == ("c1", "node", 1, "r1")
        assert meta.timestamp == datetime(2026, 1, 2, 3, 4, 1, tzinfo=UTC)
        assert meta.extra["prev_node"] == "__start__" and meta.extra["updated_fields"] == ["log"]

    def test_first_version_of_the_table(self, tmp_path: Path, target: str) -> None:
        path = tmp_path / "old.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(SHORT)
            row = ("c1", "s1", "2026-01-02 03:04:05", "node", 3, json.dumps(STATE))
            connection.execute("INSERT INTO llmfy_checkpoint VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.close()
        assert run(path, target).added == 1
        assert [(each.state, each.metadata.step) for each in states_of(target)] == [(STATE, 3)]

    def test_second_run_adds_nothing(self, source: Path, target: str) -> None:
        insert(source, b"{}")
        run(source, target)
        assert plan(source, target).new == 0
        assert run(source, target).added == 0

    def test_pickled_state(self, source: Path, target: str) -> None:
        insert(source, pickle.dumps({"n": (1, {2})}), pickle.dumps({"f": print}))
        done = run(source, target)
        assert [each.state for each in states_of(target)] == [{"n": (1, {2})}]
        assert [each.what for each in done.not_carried] == ["session s1 checkpoint c1"]

    def test_continues_after_kill(self, source: Path, target: str) -> None:
        insert(source, *[json.dumps({"n": number}).encode() for number in range(5)])
        script = """
import os, signal, sys
from holdfast.importers import ImportRequest, open_import
opened = open_import(ImportRequest(sys.argv[1], sys.argv[2]))
opened.run(lambda stage, done, total: done == 3 and os.kill(os.getpid(), signal.SIGKILL))
"""
        killed = subprocess.run([sys.executable, "-c", script, str(source), target], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert run(source, target).added == 3
        assert [each.state["n"] for each in states_of(target)] == list(range(5))


class TestBadInput:
    @pytest.mark.parametrize(
        "state",
        [
            b"",
            b"{",
            b"[1]",
            b"[" * 100_000,
            b"x\x9cgarbage",
            zlib.compress(b"{}")[:-1],
            b"gAAAAABtoken",
            b"\x80\x04" + b"cos\nsystem\n(S'true'\ntR.",
            "text that is no base64!",
        ],
    )
    def test_unreadable_state(self, source: Path, target: str, tmp_path: Path, state: Any) -> None:
        insert(source, state)
        with pytest.raises(Damaged, match="no state of"):
            run(source, target)
        assert list((tmp_path / "out").iterdir()) == []

    def test_zip_bomb(self, source: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from holdfast.importers import llmfy

        monkeypatch.setattr(llmfy, "STATE_MAX_BYTES", 1 << 20)
        insert(source, zlib.compress(b"[" + b"0," * (1 << 20) + b"0]"), b"{}")
        done = run(source, target)
        assert "larger than" in done.not_carried[0].why
        assert done.added == 1

    def test_wrong_time(self, source: Path, target: str) -> None:
        insert(source, b"{}", b"{}")
        with closing(sqlite3.connect(source)) as connection, connection:
            connection.execute("UPDATE llmfy_checkpoint SET created_at = 'soon' WHERE checkpoint_id = 'c0'")
        connection.close()
        assert [each.why for each in run(source, target).not_carried] == ["it has no valid time"]

    def test_no_rows(self, source: Path, target: str) -> None:
        with pytest.raises(NotFound, match="no states"):
            run(source, target)

    def test_other_columns(self, tmp_path: Path, target: str) -> None:
        with closing(sqlite3.connect(tmp_path / "new.db")) as connection, connection:
            connection.execute("CREATE TABLE llmfy_checkpoint (id, state)")
        connection.close()
        with pytest.raises(Refused, match="other columns"):
            run(tmp_path / "new.db", target)

    def test_no_server(self, tmp_path: Path, target: str) -> None:
        with pytest.raises(Unavailable, match="Redis cannot be read"):
            run(f"unix://{tmp_path}/none.sock", target)


def test_row_without_an_id(source: Path, target: str) -> None:
    insert(source, b'{"n": 0}', b'{"n": 1}')
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE llmfy_checkpoint SET checkpoint_id = NULL WHERE step = 0")  # SQLite allows it
    connection.close()
    done = run(source, target)
    assert (done.added, [each.why for each in done.not_carried]) == (1, ["checkpoint_id is a NoneType, not text"])


class TestRedis:
    @pytest.fixture
    def url(self, redis_url: str, tmp_path: Path) -> str:
        import redis

        prefix = f"llmfy*{tmp_path.name}:"
        self.client = redis.from_url(redis_url)
        self.prefix = prefix
        return f"{redis_url}?prefix={prefix}"

    def put(self, number: int, state: Any, **more: Any) -> None:
        values = {"checkpoint_id": f"c{number}", "session_id": "s1", "run_id": "r", "node": "n", "prev_node": "p",
                  "created_at": f"2026-01-02T03:04:0{9 - number}+00:00", "step": number, "updated_fields": [],
                  "attempt": 1, "dispatch_id": None, "state": state} | more  # fmt: skip
        self.client.set(f"{self.prefix}checkpoint:c{number}", json.dumps(values))

    def test_checkpoints_come_over_in_order(self, url: str, target: str) -> None:
        self.put(1, {"n": 1})
        self.put(2, base64.b64encode(zlib.compress(b'{"n": 2}')).decode())
        self.put(3, json.dumps({"n": 3}))
        self.put(4, base64.b64encode(b"gAAAAAB").decode())
        self.client.set(f"{self.prefix}checkpoint:c5", "garbage")
        done = run(url, target)
        assert [each.state["n"] for each in states_of(target)] == [3, 2, 1]
        assert done.added == 3
        assert len(done.not_carried) == 2
        assert run(url, target).added == 0

    def test_key_of_another_type(self, url: str, target: str) -> None:
        self.put(1, {"n": 1})
        self.client.lpush(f"{self.prefix}checkpoint:c2", "x")
        self.client.set(f"{self.prefix}checkpoint:c3", "[]")
        done = run(url, target)
        assert done.added == 1
        assert {each[:2] for each in done.not_carried} == {
            ("checkpoint c2", "its key has a list, not text"),
            ("checkpoint c3", "it is not a JSON object"),
        }

    def test_server_that_fails_in_between(self, url: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
        import redis

        self.put(1, {"n": 1})
        opened = open_import(ImportRequest(url, target))
        monkeypatch.setattr(redis.Redis, "get", redis.Redis.incr)  # which the server refuses
        with pytest.raises(Unavailable, match="Redis cannot be read"):
            opened.plan()
        opened.close()

    def test_nothing_there(self, url: str, target: str) -> None:
        with pytest.raises(Refused, match="unknown format"):
            run(url, target)


class TestPostgres:
    def test_checkpoints_come_over(self, postgres_url: str, target: str) -> None:
        from psycopg import connect

        mark = "&" if "?" in postgres_url else "?"
        url = f"{postgres_url}{mark}options=-csearch_path%3Dllmfy_import"
        with connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS llmfy_import CASCADE")
            connection.execute("CREATE SCHEMA llmfy_import")
        with connect(url, autocommit=True) as connection:
            connection.execute(LONG.replace("DATETIME", "TIMESTAMP(3)").replace("BLOB", "BYTEA"))  # type: ignore[arg-type]
            for number in (2, 1):
                row = (
                    f"c{number}",
                    "s1",
                    "r",
                    datetime(2026, 1, 2, 3, 4, number),
                    "n",
                    "p",
                    number,
                    '["log"]',
                    1,
                    None,
                )
                marks = ", ".join(["%s"] * 11)
                state = json.dumps({"n": number}).encode()
                connection.execute(f"INSERT INTO llmfy_checkpoint VALUES ({marks})", (*row, state))  # type: ignore[arg-type]
        done = run(url.replace("postgresql://", "postgresql+asyncpg://"), target)
        assert (done.added, done.not_carried) == (2, ())
        assert [each.state["n"] for each in states_of(target)] == [1, 2]
        assert states_of(target)[0].metadata.extra["updated_fields"] == ["log"]
