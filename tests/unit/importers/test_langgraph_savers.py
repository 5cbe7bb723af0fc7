"""The tables that LangGraph's real savers write."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from psycopg import connect

from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import NotFound, Unavailable
from unit.importers.graphs import VALUES, config, graph, run_graph
from unit.importers.scenes import bytes_and_times, plan, run

pytestmark = pytest.mark.extras


def check_same(saver: Any, target: str) -> None:
    """The saver and ours list the same, and ours continues."""
    with HoldfastSaver.from_url(target) as ours:
        for thread in ("t1", "t2"):
            for wanted, found in zip(saver.list(config(thread)), ours.list(config(thread)), strict=True):
                assert found.checkpoint == wanted.checkpoint
                assert found.metadata == wanted.metadata
                assert found.parent_config == wanted.parent_config
                assert sorted(map(repr, found.pending_writes)) == sorted(map(repr, wanted.pending_writes))
        assert graph(ours).get_state(config()).values["values"] == VALUES
        assert graph(ours).invoke(Command(resume="yes"), config())["log"] == ["first", "second yes"]


def test_sqlite_saver(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source, target = tmp_path / "in" / "lg.db", f"sqlite:///{tmp_path}/out.db"
    with SqliteSaver.from_conn_string(str(source)) as saver:
        run_graph(saver)
    before = bytes_and_times(source.parent)
    assert run(source, target).added == 6
    assert bytes_and_times(source.parent) == before
    with SqliteSaver.from_conn_string(str(source)) as saver:
        check_same(saver, target)


def test_async_sqlite_saver(tmp_path: Path) -> None:
    source, target = tmp_path / "lg.db", f"sqlite:///{tmp_path}/out.db"

    async def work() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(source)) as saver:
            await graph(saver).ainvoke({"messages": [], "log": []}, config())

    asyncio.run(work())
    assert run(f"sqlite+aiosqlite:///{source}", target).added == 3


def test_while_the_saver_is_open(tmp_path: Path) -> None:
    source, target = tmp_path / "lg.db", f"sqlite:///{tmp_path}/out.db"
    with SqliteSaver.from_conn_string(str(source)) as saver:
        run_graph(saver)
        assert run(source, target).added == 6
        check_same(saver, target)


class TestPostgres:
    @pytest.fixture
    def url(self, postgres_url: str, tmp_path: Path) -> str:
        name = f"lg_{abs(hash(str(tmp_path)))}"
        with connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        mark = "&" if "?" in postgres_url else "?"
        return f"{postgres_url}{mark}options=-csearch_path%3D{name}"

    def test_postgres_saver(self, url: str, tmp_path: Path) -> None:
        target = f"sqlite:///{tmp_path}/out.db"
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            run_graph(saver)
            planned = plan(url, target)
            assert (planned.new, planned.not_carried) == (6, ())
            assert run(url, target).added == 6
            check_same(saver, target)
        again = run(url.replace("postgresql://", "postgresql+asyncpg://"), target)
        assert (again.added, again.present) == (0, 6)

    def test_empty_tables(self, url: str, tmp_path: Path) -> None:
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
        with pytest.raises(NotFound, match="no states"):
            run(url, f"sqlite:///{tmp_path}/out.db")
        assert not (tmp_path / "out.db").exists()

    def test_no_server(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="not reachable"):
            run(f"postgresql:///x?host={tmp_path}", f"sqlite:///{tmp_path}/out.db")
