"""The async facade, the interface of the seed, and opening by URL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import psycopg
import pytest

from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.flow import (
    BaseCheckpointer,
    Checkpoint,
    Checkpointer,
    CheckpointMetadata,
    InMemoryCheckpointer,
    Place,
    SQLiteCheckpointer,
    Write,
    open_checkpointer,
    open_states,
)
from holdfast.retention import Policy
from holdfast.testing.flow_contract import NOON, conversation, point


def urls(tmp_path: Path) -> list[str]:
    return ["memory://", f"sqlite:///{tmp_path}/state.db", f"sqlite:///{tmp_path}/other.db?synchronous=normal"]


@pytest.mark.parametrize("number", range(3))
def test_the_interface_of_the_seed(number: int, tmp_path: Path) -> None:
    async def use() -> None:
        async with open_checkpointer(urls(tmp_path)[number]) as cps:
            assert isinstance(cps, BaseCheckpointer)
            for step in range(12):
                meta = CheckpointMetadata(f"c{step}", "s", datetime.now(UTC), "node", step)
                await cps.save(Checkpoint(metadata=meta, state={"step": step}))
            newest = await cps.load("s")
            assert newest is not None
            assert newest.state == {"step": 11}
            third = await cps.load("s", checkpoint_id="c3")
            assert third is not None
            assert (third.metadata.step, third.metadata.node_name) == (3, "node")
            assert [each.metadata.step for each in await cps.list("s", limit=10)] == list(range(11, 1, -1))
            await cps.delete("s", "c11")
            assert await cps.load("s", "c11") is None
            assert await cps.load("t") is None
            await cps.delete("s")
            assert await cps.list("s") == []
            await cps.save(point(session_id="t"))
            await cps.clear_all()
            assert await cps.load("t") is None

    asyncio.run(use())


def test_all_verbs_are_awaited(tmp_path: Path) -> None:
    async def use() -> None:
        async with InMemoryCheckpointer() as one, SQLiteCheckpointer(tmp_path / "a.db") as two:
            await asyncio.gather(*(one.save(point(f"c{n}", {"n": n}, f"s{n % 4}")) for n in range(40)))
            assert len(await one.sessions()) == 4
            assert len(await one.metadata("s1", None)) == 10
            await one.fork("s1", into="f")
            assert await one.load("f") is not None
            ids = [each.checkpoint_id for each in await one.metadata("s0", None)]
            assert await one.diff("s0", ids[1], ids[0])
            assert (await one.copy_to(two)).checkpoints == 41
            assert (await two.prune(Policy(keep_last=0))).removed
            assert (await two.usage()).checkpoints == 5
            assert (await two.verify()).ok
            with pytest.raises(Conflict):
                await two.save(point("c0", {"n": 1}, "s0"), expected_parent="nothing")
            assert await two.delete_runs(["r"]) == 0
            assert await two.expire() == []
            assert not await two.reopen("s0")

    asyncio.run(use())


def test_a_checkpoint_becomes_a_flat_dict_and_comes_back() -> None:
    for one in [
        point(state={"a": (1, {2}), "t": NOON}),
        point(parent_id="p", namespace="n", tags=("t",), run_id="r", extra={"k": (1,)}),
    ]:
        data = one.to_dict()
        assert Checkpoint.from_dict(data) == one
        assert all(isinstance(value, str | int | list) for value in data.values())
    for zone in (ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=1), "CET"), UTC, None):
        told = replace(point().metadata, timestamp=datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=1))
        data = Checkpoint(told, {}).to_dict()
        assert repr(Checkpoint.from_dict(data).metadata) == repr(told)
        moved = Checkpoint.from_dict(data | {"timestamp": "2026-10-25T04:00:00+00:00"})
        assert moved.metadata.timestamp == datetime(2026, 10, 25, 4, tzinfo=UTC), "a changed text is meant"
    assert point(state={"a": 1}).to_dict() == {
        "checkpoint_id": "c1", "session_id": "s", "timestamp": "2026-01-02T12:00:00+00:00", "node_name": "node",
        "step": 1, "state": '{"a": 1}',
    }  # fmt: skip
    assert Checkpoint.from_dict(point().to_dict() | {"state": {"x": 1}}) == point(state={"x": 1})


@pytest.mark.parametrize("change", [{"timestamp": "never"}, {"tags": 5}, {"step": None, "checkpoint_id": None}])
def test_a_dict_that_is_no_checkpoint_is_refused(change: dict[str, Any]) -> None:
    data = point().to_dict()
    for key in change:
        if change[key] is None:
            del data[key]
        else:
            data[key] = change[key]
    with pytest.raises(Refused):
        Checkpoint.from_dict(data)


@pytest.mark.parametrize("url", ["", "nothing", "ftp://x", "sqlite://", "sqlite://host/a.db", "sqlite:///a.db?x=1", 5])
def test_a_url_that_names_no_store_is_refused(url: Any) -> None:
    with pytest.raises(Refused) as refused:
        open_states(url)
    assert refused.value.hint


def test_a_file_that_cannot_be_opened_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        open_states(f"sqlite:///{tmp_path}/nowhere/state.db")


def test_options_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        open_states(f"sqlite:///{tmp_path}/a.db", synchronous="OFF")
    with pytest.raises(Refused):
        open_states("memory://", tenant=5)  # type: ignore[arg-type]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    states = open_states(f"sqlite:///{tmp_path}/a.db")
    states.close()
    with pytest.raises(Refused, match="closed"):
        states.load("s")


def test_a_closed_checkpointer_says_so(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteCheckpointer(tmp_path / "a.db") as cps:
            await cps.save(point())
        with pytest.raises(Refused, match="closed"):
            await cps.load("s")
        await cps.close()

    asyncio.run(use())


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_unawaited_save_is_whole(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """While it waits for a lock of somebody else the event loop goes on, and gives it up."""
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            url, options = f"sqlite:///{tmp_path}/a.db", {}
            open_states(url).close()
            other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
            stack.callback(other.close)
            hold, release = "BEGIN IMMEDIATE", "ROLLBACK"
        else:
            url = request.getfixturevalue("postgres_url")
            options = {"schema": "cancelled", "pool_size": 1}
            other = stack.enter_context(psycopg.connect(url))
            hold, release = "SELECT pg_advisory_xact_lock(hashtextextended('', 0))", "ROLLBACK"

        async def use() -> None:
            async with open_checkpointer(url, **options) as cps:
                await cps.save(point("a"))
                other.execute(hold)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(cps.save(point("b", {"messages": conversation(10)})), 0.05)
                other.execute(release)
                await cps.save(point("c"))
                assert [each.metadata.checkpoint_id for each in await cps.list("s")] in (
                    ["c", "a"], ["c", "b", "a"], ["b", "c", "a"],
                )  # fmt: skip
                assert (await cps.verify()).ok
                await cps.clear_all()

        asyncio.run(use())


def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    cps = Checkpointer(lambda: open_states(f"sqlite:///{tmp_path}/a.db"), threads=1)
    asyncio.run(cps.save(point("parent")))
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)  # rather than wait for ever for a thread that is not there
            asyncio.run(cps.save(point("child")))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [each.metadata.checkpoint_id for each in asyncio.run(cps.list("s"))] == ["child", "parent"]
    asyncio.run(cps.close())


def test_no_driver_is_loaded_before_it_is_needed() -> None:
    code = "import holdfast.flow, sys; print([m for m in ('psycopg', 'redis', 'numpy', 'pydantic', 'cryptography',"
    code += " 'zstandard', 'sqlite3') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


ODD_PATHS = ["a?b.db", "a#b.db", "100%25.db", "a b.db", "ä.db", "a%20b.db", "a&synchronous=off.db", "tab\t.db"]


def test_a_file_of_any_name_is_that_file(tmp_path: Path) -> None:
    async def use(name: str) -> None:
        async with SQLiteCheckpointer(tmp_path / name) as cps:
            await cps.save(point("c", {"name": name}))

    for name in [*ODD_PATHS, os.fsdecode(b"\xff.db")]:
        asyncio.run(use(name))
        assert (tmp_path / name).is_file()
    made = {each.name for each in tmp_path.iterdir() if not each.name.endswith(("-wal", "-shm"))}
    assert made == {*ODD_PATHS, os.fsdecode(b"\xff.db")}


@pytest.mark.parametrize("name", ["a#b.db", "a\tb.db", "a\nb.db", "a.db#", "a?b.db", "a.db?", "a?synchronous="])
def test_a_url_of_which_a_part_would_be_left_out_is_refused(name: str, tmp_path: Path) -> None:
    """Another file would be used, and perhaps one that is somebody else's."""
    with pytest.raises(Refused) as refused:
        open_states(f"sqlite:///{tmp_path}/{name}")
    assert refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": timedelta(0)},
        {"ttl": timedelta(days=-1)},
        {"max_state_bytes": -1},
        {"max_state_bytes": 1.5},
        {"memory_bytes": -1},
        {"memory_bytes": None},
    ],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    """States that live for no time would be lost as they are saved."""
    with pytest.raises(Refused, match=next(iter(options))) as refused:
        open_states(f"sqlite:///{tmp_path}/a.db", **options)
    assert refused.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["100%", "%s", "%%", 'we"ird', "it's", "a b;", "{schema}", "$1", "a\\b"])
def test_a_schema_of_any_name_is_that_schema(postgres_url: str, name: str) -> None:
    schema = f"any{uuid4().hex[:8]}{name}"
    with open_states(postgres_url, schema=schema) as states:
        states.save(point("c", {"messages": conversation(40)}))
        states.fork("s", into="fork")
        states.put_writes(Place("s", "", "c"), [Write("task", 0, "to", 1)])
        states.delete("s")
        states.forget_parts()
        assert states.verify().ok and states.usage().checkpoints == 1
    with psycopg.connect(postgres_url) as db:
        assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
