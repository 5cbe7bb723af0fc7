"""`holdfast.compat.llmfy`: llmfy's names, constructors and verbs, without its defects."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict, Damaged, HoldfastError, NotFound, Refused

from .names import names_of

llmfy = names_of("llmfy")
base = names_of("llmfy.flow_engine.checkpointer.base_checkpointer")


def checkpoint(number: int, state: Any = None, *, session: str = "s", at: datetime | None = None) -> Any:
    meta = base.CheckpointMetadata(
        checkpoint_id=f"c{number}",
        session_id=session,
        timestamp=at or datetime(2026, 1, 2, tzinfo=UTC),
        node_name="node",
        step=number,
    )
    return base.Checkpoint(metadata=meta, state={"step": number} if state is None else state)


def long_checkpoint(number: int, run_id: str = "r1") -> Any:
    meta = base.CheckpointMetadata(
        f"c{number}", "s", run_id, datetime(2026, 1, 2, tzinfo=UTC), "node", "__start__", number, ["step"], 1, None
    )
    return base.Checkpoint(meta, {"step": number})


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def cps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        made = llmfy.InMemoryCheckpointer()
    elif request.param == "sqlite":
        made = llmfy.SQLCheckpointer(f"sqlite:///{tmp_path / 'state.db'}")
    else:
        url = request.getfixturevalue("redis_url")
        made = llmfy.RedisCheckpointer(redis_url=url, prefix=f"llmfy_{tmp_path.name}:")
    yield made
    asyncio.run(made.close())


class TestNames:
    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("", "BaseCheckpointer"),
            ("", "InMemoryCheckpointer"),
            ("", "RedisCheckpointer"),
            ("", "SQLCheckpointer"),
            (".flow_engine", "SQLCheckpointer"),
            (".flow_engine.checkpointer", "InMemoryCheckpointer"),
            (".flow_engine.checkpointer.base_checkpointer", "BaseCheckpointer"),
            (".flow_engine.checkpointer.in_memory_checkpointer", "InMemoryCheckpointer"),
            (".flow_engine.checkpointer.redis_checkpointer", "RedisCheckpointer"),
            (".flow_engine.checkpointer.sql_checkpointer", "SQLCheckpointer"),
        ],
    )
    def test_import_paths(self, module: str, name: str) -> None:
        found = getattr(names_of(f"llmfy{module}"), name)
        assert issubclass(found, base.BaseCheckpointer)

    @pytest.mark.parametrize(
        ("name", "signature"),
        [
            ("InMemoryCheckpointer", {"max_checkpoints_per_session": None, "ttl_seconds": None}),
            (
                "SQLCheckpointer",
                {
                    "connection_string": inspect.Parameter.empty,
                    "echo": False,
                    "compress": False,
                    "encryption_key": None,
                    "max_state_bytes": 25 << 20,
                    "max_checkpoints_per_session": None,
                    "ttl_seconds": None,
                },
            ),
            (
                "RedisCheckpointer",
                {
                    "redis_url": "redis://localhost:6379/0",
                    "prefix": "llmfy_checkpoint:",
                    "ttl": None,
                    "compress": False,
                    "encryption_key": None,
                    "max_state_bytes": 25 << 20,
                    "max_checkpoints_per_session": None,
                },
            ),
        ],
    )
    def test_constructors(self, name: str, signature: dict[str, Any]) -> None:
        found = inspect.signature(getattr(llmfy, name)).parameters
        assert {each.name: each.default for each in found.values()} == signature

    def test_base_class_is_abstract_with_five_async_methods(self) -> None:
        assert base.BaseCheckpointer.__abstractmethods__ == {"save", "load", "list", "delete", "clear_all"}
        assert base.BaseCheckpointer.requires_serialization is True
        with pytest.raises(TypeError):
            base.BaseCheckpointer()

    def test_own_back_ends_can_inherit_the_base_class(self) -> None:
        class Own(base.BaseCheckpointer):  # type: ignore[misc, name-defined]
            async def save(self, checkpoint: Any) -> None: ...
            async def load(self, session_id: str, checkpoint_id: str | None = None) -> None: ...
            async def list(self, session_id: str, limit: int = 10) -> Any: ...
            async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None: ...
            async def clear_all(self) -> None: ...

        assert Own().requires_serialization


class TestMetadata:
    def test_five_fields_by_position_and_by_name(self) -> None:
        at = datetime(2026, 1, 2)
        meta = base.CheckpointMetadata("c", "s", at, "node", 3)
        assert meta == base.CheckpointMetadata(
            checkpoint_id="c", session_id="s", timestamp=at, node_name="node", step=3
        )
        assert (meta.timestamp, meta.node_name, meta.created_at, meta.node) == (at, "node", at, "node")

    def test_ten_fields_by_position_and_by_name(self) -> None:
        meta = long_checkpoint(4).metadata
        assert (meta.run_id, meta.node, meta.prev_node, meta.step) == ("r1", "node", "__start__", 4)
        assert (meta.updated_fields, meta.attempt, meta.dispatch_id) == (["step"], 1, None)
        assert dataclasses.replace(meta, step=5).step == 5

    @pytest.mark.parametrize("values", [{"checkpoint_id": "c"}, {"wrong": 1}])
    def test_missing_and_unknown_fields(self, values: dict[str, Any]) -> None:
        with pytest.raises(TypeError, match="CheckpointMetadata"):
            base.CheckpointMetadata(**values)

    def test_dict_of_five_fields_has_the_state_as_text(self) -> None:
        told = checkpoint(1).to_dict()
        assert json.loads(told["state"]) == {"step": 1}
        assert set(told) == {"checkpoint_id", "session_id", "timestamp", "node_name", "step", "state"}
        assert base.Checkpoint.from_dict(json.loads(json.dumps(told))) == checkpoint(1)

    def test_dict_of_ten_fields_has_the_state_itself(self) -> None:
        told = long_checkpoint(1).to_dict()
        assert told["state"] == {"step": 1} and told["created_at"] == "2026-01-02T00:00:00+00:00"
        assert base.Checkpoint.from_dict(json.loads(json.dumps(told))) == long_checkpoint(1)

    def test_stored_names_run_nothing(self, tmp_path: Path) -> None:
        """llmfy 0.9 imported the module that a stored state named, and called the name with the stored arguments."""
        victim = tmp_path / "ran"
        evil = {"x": {"__type__": "Popen", "__module__": "subprocess", "data": {"args": ["touch", str(victim)]}}}
        told = checkpoint(1).to_dict() | {"state": json.dumps(evil)}
        assert base.Checkpoint.from_dict(told).state == evil
        assert not victim.exists()


class TestVerbs:
    def test_save_load_list_delete(self, cps: Any) -> None:
        async def use() -> None:
            for number in range(12):
                assert await cps.save(checkpoint(number)) is None
            await cps.save(checkpoint(0, session="other"))
            assert (await cps.load("s")).state == {"step": 11}
            assert (await cps.load("s", "c3")).metadata.step == 3
            assert [each.metadata.step for each in await cps.list("s")] == list(range(11, 1, -1))
            assert [each.metadata.step for each in await cps.list("s", limit=2)] == [11, 10]
            assert await cps.load("nobody") is None and await cps.list("nobody") == []
            assert await cps.delete("s", "c11") is None
            assert (await cps.load("s")).metadata.checkpoint_id == "c10"
            await cps.delete("nobody")
            await cps.delete("s", "nothing")
            await cps.clear_all()
            assert await cps.load("s") is None and await cps.load("other") is None

        asyncio.run(use())

    def test_ten_fields_come_back_and_runs_are_listed(self, cps: Any) -> None:
        async def use() -> None:
            await cps.save(long_checkpoint(1, "r1"))
            await cps.save(long_checkpoint(2, "r2"))
            assert await cps.load("s") == long_checkpoint(2, "r2")
            assert [each.metadata.step for each in await cps.list_by_run("s", "r1")] == [1]

        asyncio.run(use())

    def test_a_session_can_be_reset_and_used_again(self, cps: Any) -> None:
        async def use() -> None:
            await cps.save(checkpoint(1))
            await cps.delete("s")
            await cps.save(checkpoint(1, {"again": True}))
            assert (await cps.load("s")).state == {"again": True}
            await cps.clear_all()
            await cps.save(checkpoint(1))
            assert (await cps.load("s")).state == {"step": 1}

        asyncio.run(use())

    def test_ids_belong_to_their_session(self, cps: Any) -> None:
        """llmfy's Redis back end reads and deletes checkpoints of other sessions by their ids."""

        async def use() -> None:
            await cps.save(checkpoint(1))
            assert await cps.load("other", "c1") is None
            await cps.delete("other", "c1")
            assert await cps.load("s", "c1") is not None

        asyncio.run(use())

    def test_latest_is_the_one_saved_last(self, cps: Any) -> None:
        """llmfy sorts by time: of equal times the oldest is the latest, and a mix with naive times raises."""

        async def use() -> None:
            for number, at in enumerate([datetime(2026, 1, 2, tzinfo=UTC)] * 3 + [datetime(2020, 1, 1)]):
                await cps.save(checkpoint(number, at=at))
            newest = await cps.load("s")
            assert newest.metadata.step == 3 and newest.metadata.timestamp == datetime(2020, 1, 1)
            assert [each.metadata.step for each in await cps.list("s")] == [3, 2, 1, 0]

        asyncio.run(use())

    def test_an_id_is_saved_once(self, cps: Any) -> None:
        """llmfy keeps both in memory, raises IntegrityError with SQL, and overwrites in Redis."""

        async def use() -> None:
            await cps.save(checkpoint(1))
            await cps.save(checkpoint(1))
            with pytest.raises(Conflict):
                await cps.save(checkpoint(1, {"other": True}))
            assert len(await cps.list("s")) == 1

        asyncio.run(use())

    def test_values_come_back_exactly(self, cps: Any) -> None:
        """llmfy raises TypeError for most of these, and turns tuples into lists and keys into text."""
        state = {
            "at": datetime(2026, 1, 2, tzinfo=UTC), "set": {1, 2}, "bytes": b"\0\xff", "path": Path("/a"),
            "tuple": (1, 2), "keys": {1: "one"}, "none": None,
        }  # fmt: skip

        async def use() -> None:
            await cps.save(checkpoint(1, state))
            loaded = (await cps.load("s")).state
            assert loaded == state and type(loaded["tuple"]) is tuple

        asyncio.run(use())

    @pytest.mark.parametrize("limit", [-1, 1.5, "3"])
    def test_limit_is_checked(self, cps: Any, limit: Any) -> None:
        with pytest.raises(Refused, match="limit"):
            asyncio.run(cps.list("s", limit=limit))

    def test_what_is_no_checkpoint_is_refused(self, cps: Any) -> None:
        with pytest.raises(Refused, match="not a checkpoint"):
            asyncio.run(cps.save({"state": {}}))

    def test_saved_states_are_isolated(self, cps: Any) -> None:
        async def use() -> None:
            state = {"items": [1]}
            await cps.save(checkpoint(1, state))
            state["items"].append(2)
            (await cps.load("s")).state["items"].append(3)
            assert (await cps.load("s")).state == {"items": [1]}

        asyncio.run(use())

    def test_a_state_is_saved_as_it_was_at_the_call(self) -> None:
        """Branches that run at once change it meanwhile; with a store on disk llmfy's engine hands over a copy."""
        cps = llmfy.InMemoryCheckpointer()

        async def use() -> None:
            state = {"items": list(range(1000))}
            saving = asyncio.ensure_future(cps.save(checkpoint(1, state)))
            await asyncio.sleep(0)
            state["items"].clear()
            await saving
            assert len((await cps.load("s")).state["items"]) == 1000

        asyncio.run(use())

    def test_works_in_several_event_loops_and_after_close(self, cps: Any) -> None:
        asyncio.run(cps.save(checkpoint(1)))
        asyncio.run(cps.close())
        assert asyncio.run(cps.load("s")).state == {"step": 1}

    def test_async_with(self, cps: Any) -> None:
        async def use() -> None:
            async with cps as entered:
                assert entered is cps
                await cps.save(checkpoint(1))

        asyncio.run(use())


class TestInMemory:
    def test_stats(self) -> None:
        cps = llmfy.InMemoryCheckpointer()
        for number, session in enumerate("aab"):
            asyncio.run(cps.save(checkpoint(number, session=session)))
        assert cps.get_stats() == {
            "total_sessions": 2,
            "total_checkpoints": 3,
            "checkpoints_per_session": {"a": 2, "b": 1},
        }

    def test_objects_of_any_class(self) -> None:
        class Plain:
            def __init__(self) -> None:
                self.items = [1]

        @dataclasses.dataclass
        class Data:
            plain: Plain

        class Colour(Enum):
            RED = 1

        class Slotted:
            __slots__ = ("x",)

        slotted = Slotted()
        slotted.x = 5

        async def use() -> None:
            cps = llmfy.InMemoryCheckpointer()
            await cps.save(checkpoint(1, {"data": Data(Plain()), "colour": Colour.RED, "slotted": slotted}))
            state = (await cps.load("s")).state
            assert type(state["data"]) is Data and state["data"].plain.items == [1]
            assert state["colour"] is Colour.RED and state["slotted"].x == 5
            assert state["data"].plain is not (await cps.load("s")).state["data"].plain

        asyncio.run(use())

    def test_an_object_that_cannot_be_copied_is_refused(self) -> None:
        cps = llmfy.InMemoryCheckpointer()
        with pytest.raises((Refused, TypeError)):
            asyncio.run(cps.save(checkpoint(1, {"file": (x for x in "ab")})))
        assert asyncio.run(cps.load("s")) is None

    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    def test_only_the_newest_stay(self, kind: str, tmp_path: Path) -> None:
        """llmfy's older versions keep everything for ever."""
        if kind == "memory":
            cps = llmfy.InMemoryCheckpointer(max_checkpoints_per_session=2)
        else:
            cps = llmfy.SQLCheckpointer(f"sqlite:///{tmp_path}/s.db", max_checkpoints_per_session=2, ttl_seconds=3600)

        async def use() -> None:
            for number in range(5):
                await cps.save(checkpoint(number))
                await cps.save(checkpoint(number, session="other"))
            assert [each.metadata.step for each in await cps.list("s")] == [4, 3]
            assert [each.metadata.step for each in await cps.list("other")] == [4, 3]
            await cps.close()

        asyncio.run(use())


class TestSQL:
    @pytest.mark.parametrize("driver", ["sqlite", "sqlite+aiosqlite", "sqlite+pysqlite"])
    def test_urls_of_sqlalchemy(self, driver: str, tmp_path: Path) -> None:
        cps = llmfy.SQLCheckpointer(f"{driver}:///{tmp_path / 'state.db'}")
        asyncio.run(cps.save(checkpoint(1)))
        asyncio.run(cps.close())
        assert (tmp_path / "state.db").exists() and asyncio.run(cps.load("s")) == checkpoint(1)
        asyncio.run(cps.close())

    @pytest.mark.server
    @pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg2"])
    def test_postgresql(self, driver: str, postgres_url: str) -> None:
        cps = llmfy.SQLCheckpointer(postgres_url.replace("postgresql", driver, 1))
        asyncio.run(cps.clear_all())
        asyncio.run(cps.save(checkpoint(1)))
        assert asyncio.run(cps.load("s")) == checkpoint(1)
        asyncio.run(cps.close())

    def test_another_process_reads_the_file(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'state.db'}"
        one, two = llmfy.SQLCheckpointer(url), llmfy.SQLCheckpointer(connection_string=url)
        asyncio.run(one.save(checkpoint(1)))
        assert asyncio.run(two.load("s")) == checkpoint(1)
        asyncio.run(one.close())
        asyncio.run(two.close())

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite:///:memory:"])
    def test_database_in_memory(self, url: str) -> None:
        cps = llmfy.SQLCheckpointer(url)
        asyncio.run(cps.save(checkpoint(1)))
        asyncio.run(cps.close())
        assert asyncio.run(cps.load("s")) == checkpoint(1)

    def test_unknown_databases_are_refused(self) -> None:
        with pytest.raises(Refused, match="mysql is not supported"):
            llmfy.SQLCheckpointer("mysql+aiomysql://user@localhost/db")

    def test_a_class_that_is_not_registered_is_refused(self, tmp_path: Path) -> None:
        class Mine:
            pass

        cps = llmfy.SQLCheckpointer(f"sqlite:///{tmp_path / 'state.db'}")
        with pytest.raises(Refused, match=r"state\['mine'\].*Mine"):
            asyncio.run(cps.save(checkpoint(1, {"mine": Mine()})))
        asyncio.run(cps.close())

    def test_states_are_limited(self, tmp_path: Path) -> None:
        cps = llmfy.SQLCheckpointer(f"sqlite:///{tmp_path / 'state.db'}", max_state_bytes=1000)
        with pytest.raises(Refused, match=r"more than max_state_bytes .1,000"):
            asyncio.run(cps.save(checkpoint(1, {"text": "x" * 2000})))
        asyncio.run(cps.close())

    def test_encrypted_with_a_fernet_key(self, tmp_path: Path) -> None:
        key = b"a2VscC1rZWxwLWtlbHAta2VscC1rZWxwLWtlbHAtISE="
        path = tmp_path / "state.db"
        cps = llmfy.SQLCheckpointer(f"sqlite:///{path}", encryption_key=key)
        asyncio.run(cps.save(checkpoint(1, {"secret": "mussels and barnacles"})))
        asyncio.run(cps.close())
        assert b"barnacles" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
        again = llmfy.SQLCheckpointer(f"sqlite:///{path}", encryption_key=key.decode())
        assert asyncio.run(again.load("s")).state == {"secret": "mussels and barnacles"}
        asyncio.run(again.close())
        without = llmfy.SQLCheckpointer(f"sqlite:///{path}")
        with pytest.raises(HoldfastError):
            asyncio.run(without.load("s"))
        asyncio.run(without.close())
        with pytest.raises(Refused, match="encryption_key"):
            llmfy.SQLCheckpointer(f"sqlite:///{path}", encryption_key="short")

    def test_echo_is_not_silently_ignored(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match="echo has no effect"):
            llmfy.SQLCheckpointer(f"sqlite:///{tmp_path / 'state.db'}", echo=True)

    def test_a_file_of_llmfy_is_not_touched(self, tmp_path: Path) -> None:
        import sqlite3

        path = tmp_path / "llmfy.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE llmfy_checkpoint (checkpoint_id TEXT PRIMARY KEY, state TEXT)")
        db.close()
        before = path.read_bytes()
        cps = llmfy.SQLCheckpointer(f"sqlite:///{path}")
        with pytest.raises((Refused, Damaged, NotFound)):
            asyncio.run(cps.save(checkpoint(1)))
        asyncio.run(cps.close())
        assert path.read_bytes() == before


@pytest.mark.server
def test_redis_ttl_is_seconds_of_the_session(redis_url: str, tmp_path: Path) -> None:
    cps = llmfy.RedisCheckpointer(redis_url, f"ttl_{tmp_path.name}:", 3600)
    asyncio.run(cps.save(checkpoint(1)))
    assert asyncio.run(cps.load("s")) is not None
    clock = cps.checkpointer.states
    clock.now = lambda: time.time() + 3601
    assert asyncio.run(cps.load("s")) is None
    asyncio.run(cps.close())
