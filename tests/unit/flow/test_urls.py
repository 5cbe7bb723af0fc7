"""Opening stores by URL: which back end, which options, which file."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Refused
from holdfast.flow import (
    InMemoryCheckpointer,
    RedisCheckpointer,
    SQLiteCheckpointer,
    open_checkpointer,
    open_states,
    open_store,
)
from holdfast.flow.memory import MemoryStore
from holdfast.flow.sqlite import SQLiteStore
from holdfast.flow.urls import _OPTIONS
from holdfast.location import kind_of
from holdfast.testing.flow_contract import point


class TestUnknownOptions:
    @pytest.mark.parametrize("url", ["memory://", "sqlite:///a.db", "postgresql://nowhere/x", "redis://nowhere"])
    def test_are_refused_when_the_store_is_made(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for make in (open_store, open_states, open_checkpointer):
            with pytest.raises(Refused, match="no option 'shema'"):
                make(url, shema="x")
        assert list(tmp_path.iterdir()) == []

    def test_are_refused_by_every_class(self) -> None:
        for make in (InMemoryCheckpointer, lambda **more: SQLiteCheckpointer("a.db", **more), RedisCheckpointer):
            with pytest.raises(Refused, match="no option 'tt1'") as refused:
                make(tt1=5)
            assert "Did you mean ttl?" in str(refused.value)

    def test_the_options_of_each_back_end_are_known(self) -> None:
        from holdfast.flow.postgres import PostgresStore
        from holdfast.flow.redis import RedisStore

        for name, cls in {"sqlite": SQLiteStore, "postgres": PostgresStore, "redis": RedisStore}.items():
            found = list(inspect.signature(cls).parameters)[1:]
            assert sorted(found) == sorted([*_OPTIONS[name], "tenant"])

    def test_of_a_copy_are_refused(self) -> None:
        async def use() -> None:
            async with InMemoryCheckpointer() as one, InMemoryCheckpointer() as two:
                with pytest.raises(Refused, match="no option 'goon'"):
                    await one.copy_to(two, goon=True)

        asyncio.run(use())


class TestSQLAlchemyUrls:
    @pytest.mark.parametrize("driver", ["aiosqlite", "pysqlite"])
    def test_of_sqlite(self, driver: str, tmp_path: Path) -> None:
        with open_states(f"sqlite+{driver}:///{tmp_path}/a.db") as states:
            states.save(point("a"))
        with open_states(f"sqlite:///{tmp_path}/a.db") as states:
            assert states.load("s") == point("a")

    @pytest.mark.parametrize("url", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
    def test_of_a_database_in_memory(self, url: str) -> None:
        assert isinstance(open_store(url), MemoryStore)

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2"])
    def test_of_postgresql(self, driver: str, postgres_url: str) -> None:
        schemed = postgres_url.replace("postgresql://", f"postgresql+{driver}://", 1)
        assert schemed != postgres_url
        with open_states(schemed, schema="sqlalchemy") as states:
            states.save(point(driver, session_id=driver))
            assert states.load(driver) is not None

    def test_of_another_database_are_refused(self) -> None:
        with pytest.raises(Refused, match="unknown kind of store: 'mysql"):
            open_store("mysql+aiomysql://root@localhost/x")

    def test_are_locations(self) -> None:
        assert kind_of("postgresql+asyncpg://h/d").name == kind_of("sqlite+aiosqlite:///a.db").name == "flow"


class TestTimeToLive:
    @pytest.mark.parametrize("ttl", [60, 60.0, timedelta(seconds=60)])
    def test_is_seconds_or_a_timedelta(self, ttl: Any) -> None:
        now = [0.0]
        with open_states("memory://", ttl=ttl, clock=lambda: now[0]) as states:
            states.save(point("a"))
            now[0] = 59.0
            assert states.load("s") is not None
            now[0] = 60.0
            assert states.load("s") is None

    @pytest.mark.parametrize("ttl", [0, -1, True, float("nan"), float("inf"), 10**40, "60", timedelta(0)])
    def test_of_no_time_is_refused(self, ttl: Any, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="ttl"):
            open_states(f"sqlite:///{tmp_path}/a.db", ttl=ttl)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [lambda: open_store("sqlite:///~/a.db"), lambda: SQLiteStore("~/a.db")])
def test_a_file_in_the_home_folder(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    with make():
        assert (tmp_path / "home" / "a.db").is_file()
    assert list((tmp_path / "work").iterdir()) == []


class TestReferences:
    def test_a_checkpoint_or_its_metadata_stands_for_its_id(self) -> None:
        with open_states("memory://") as states:
            first = states.save(point("a", {"n": 1}))
            states.save(point("b", {"n": 2}, namespace="inner"))
            states.save(point("c", {"n": 3}))
            inner = states.load("s", namespace="inner")
            last = states.load("s", first)
            assert last == point("a", {"n": 1}) and inner is not None
            assert states.load("s", inner) == inner and states.load("s", inner.metadata) == inner
            assert states.load_encoded("s", last) is not None
            assert [each.path for each in states.diff("s", last, states.load("s")).changes] == ["['n']"]
            assert states.fork("s", last, into="t").checkpoint_id == "a"
            assert states.delete("s", last) == 1 and states.delete("s", inner) == 1

    def test_one_of_another_session_is_refused(self) -> None:
        with open_states("memory://") as states:
            other = states.save(point("a", session_id="t"))
            states.save(point("a"))
            for call in (states.load, states.delete, states.diff):
                with pytest.raises(Refused, match="belongs to session 't', not 's'"):
                    call("s", other)
            assert states.load("s") is not None
