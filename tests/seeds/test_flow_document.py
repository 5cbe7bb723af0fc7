"""llmfy's reference of `BaseCheckpointer`: every class, attribute, method, parameter and default of it."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC
from collections.abc import Callable, Coroutine
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict
from holdfast.flow import (
    BaseCheckpointer,
    Checkpoint,
    CheckpointMetadata,
    InMemoryCheckpointer,
    RedisCheckpointer,
    SQLiteCheckpointer,
    open_checkpointer,
)

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
Scene = Callable[[BaseCheckpointer], Coroutine[Any, Any, Any]]


def point(number: int = 1, session: str = "s", **state: Any) -> Checkpoint:
    metadata = CheckpointMetadata(
        checkpoint_id=f"c{number}",
        session_id=session,
        timestamp=NOW + timedelta(seconds=number),
        node_name="node",
        step=number,
    )
    return Checkpoint(metadata=metadata, state=state or {"n": number})


@pytest.fixture(params=["memory", "sqlite", "sqlalchemy", "postgres", "redis"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scene], Any]:
    """Run a scene on a back end."""

    def opened() -> Any:
        if request.param == "memory":
            return InMemoryCheckpointer()
        if request.param == "sqlite":
            return SQLiteCheckpointer(tmp_path / "f.db")
        if request.param == "sqlalchemy":
            return open_checkpointer(f"sqlite+aiosqlite:///{tmp_path}/f.db")
        if request.param == "redis":
            return RedisCheckpointer(request.getfixturevalue("redis_url"), prefix=f"seeds-{tmp_path.name}", ttl=3600)
        url = request.getfixturevalue("postgres_url").replace("postgresql://", "postgresql+asyncpg://", 1)
        return open_checkpointer(url, schema="seeds")

    def run(scene: Scene) -> Any:
        async def whole() -> Any:
            async with opened() as checkpointer:
                await checkpointer.clear_all()
                return await scene(checkpointer)

        return asyncio.run(whole())

    return run


def test_module(old: Callable[[str], Any]) -> None:
    module = old("llmfy.flow_engine.checkpointer.base_checkpointer")
    assert {"BaseCheckpointer", "Checkpoint", "CheckpointMetadata"} <= set(module.__all__)


class TestCheckpointMetadata:
    """Metadata for a checkpoint."""

    def test_is_a_dataclass(self) -> None:
        assert is_dataclass(CheckpointMetadata)

    @pytest.mark.parametrize(
        ("attribute", "value"),
        [
            ("checkpoint_id", "c1"),
            ("session_id", "s"),
            ("timestamp", NOW + timedelta(seconds=1)),
            ("node_name", "node"),
            ("step", 1),
        ],
    )
    def test_attributes(self, attribute: str, value: object) -> None:
        assert getattr(point().metadata, attribute) == value

    def test_constructor(self) -> None:
        assert [each.name for each in fields(CheckpointMetadata)][:5] == [
            "checkpoint_id",
            "session_id",
            "timestamp",
            "node_name",
            "step",
        ]
        assert CheckpointMetadata("c1", "s", NOW, "node", 1).node_name == "node"


class TestCheckpoint:
    """Represents a saved state checkpoint."""

    def test_is_a_dataclass(self) -> None:
        assert is_dataclass(Checkpoint)

    def test_attributes(self) -> None:
        made = point(1, messages=["hello"])
        assert (made.metadata.checkpoint_id, made.state) == ("c1", {"messages": ["hello"]})

    def test_constructor(self) -> None:
        assert [each.name for each in fields(Checkpoint)] == ["metadata", "state"]
        assert Checkpoint(point().metadata, {"n": 1}) == point()

    def test_to_dict(self) -> None:
        """Convert checkpoint to dictionary for storage."""
        made = point().to_dict()
        assert {"checkpoint_id", "session_id", "timestamp", "node_name", "step", "state"} <= made.keys()
        assert (made["checkpoint_id"], made["timestamp"]) == ("c1", (NOW + timedelta(seconds=1)).isoformat())

    def test_from_dict(self) -> None:
        """Create checkpoint from dictionary."""
        made = point(1, messages=[("a", 1)], when=NOW)
        assert Checkpoint.from_dict(made.to_dict()) == made
        assert inspect.ismethod(Checkpoint.from_dict)


class TestBaseCheckpointer:
    """Base class for checkpoint storage backends."""

    def test_bases(self) -> None:
        assert issubclass(BaseCheckpointer, ABC)
        for back_end in (InMemoryCheckpointer, SQLiteCheckpointer, RedisCheckpointer):
            assert issubclass(back_end, BaseCheckpointer)

    @pytest.mark.parametrize("method", ["save", "load", "list", "delete"])
    def test_methods_are_abstract_and_async(self, method: str) -> None:
        assert method in BaseCheckpointer.__abstractmethods__
        assert inspect.iscoroutinefunction(getattr(BaseCheckpointer, method))

    @pytest.mark.parametrize(
        ("method", "parameters"),
        [
            ("save", {"checkpoint": inspect.Parameter.empty}),
            ("load", {"session_id": inspect.Parameter.empty, "checkpoint_id": None}),
            ("list", {"session_id": inspect.Parameter.empty, "limit": 10}),
            ("delete", {"session_id": inspect.Parameter.empty, "checkpoint_id": None}),
        ],
    )
    @pytest.mark.parametrize("cls", [BaseCheckpointer, InMemoryCheckpointer])
    def test_parameters_and_defaults(self, cls: type, method: str, parameters: dict[str, object]) -> None:
        found = list(inspect.signature(getattr(cls, method)).parameters.values())[1:]
        taken = {each.name: each.default for each in found if each.kind is each.POSITIONAL_OR_KEYWORD}
        assert taken == parameters

    def test_a_back_end_of_ones_own(self) -> None:
        class Own(BaseCheckpointer):
            def __init__(self) -> None:
                self.saved: list[Checkpoint] = []

            async def save(self, checkpoint: Checkpoint) -> None:
                self.saved.append(checkpoint)

            async def load(self, session_id: str, checkpoint_id: str | None = None) -> Checkpoint | None:
                return self.saved[-1] if self.saved else None

            async def list(self, session_id: str, limit: int = 10) -> list[Checkpoint]:
                return self.saved[::-1][:limit]

            async def delete(self, session_id: str, checkpoint_id: str | None = None) -> None:
                self.saved.clear()

            async def clear_all(self) -> None:
                self.saved.clear()

        own = Own()
        asyncio.run(own.save(point()))
        assert asyncio.run(own.load("s")) == point()

    def test_it_cannot_be_made_itself(self) -> None:
        with pytest.raises(TypeError, match="abstract"):
            BaseCheckpointer()  # type: ignore[abstract]


class TestBackEnds:
    def test_save_and_load(self, play: Callable[[Scene], Any]) -> None:
        """Save a checkpoint. Load a checkpoint: the checkpoint if found."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            await checkpointer.save(point(1))
            await checkpointer.save(point(2))
            assert await checkpointer.load("s", "c1") == point(1)
            assert await checkpointer.load("s", checkpoint_id="c2") == point(2)

        play(scene)

    def test_none_for_latest(self, play: Callable[[Scene], Any]) -> None:
        """Specific checkpoint ID, or None for latest."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            for number in (1, 2, 3):
                await checkpointer.save(point(number))
            assert await checkpointer.load("s") == point(3)
            assert await checkpointer.load(session_id="s", checkpoint_id=None) == point(3)

        play(scene)

    def test_none_otherwise(self, play: Callable[[Scene], Any]) -> None:
        async def scene(checkpointer: BaseCheckpointer) -> None:
            assert await checkpointer.load("nobody") is None
            await checkpointer.save(point(1))
            assert await checkpointer.load("s", "nothing") is None
            assert await checkpointer.load("t", "c1") is None

        play(scene)

    def test_list_newest_first(self, play: Callable[[Scene], Any]) -> None:
        """List of checkpoints, newest first."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            for number in (1, 2, 3):
                await checkpointer.save(point(number))
            assert await checkpointer.list("s") == [point(3), point(2), point(1)]
            assert await checkpointer.list("nobody") == []

        play(scene)

    def test_limit(self, play: Callable[[Scene], Any]) -> None:
        """Maximum number of checkpoints to return; 10."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            for number in range(1, 13):
                await checkpointer.save(point(number))
            assert len(await checkpointer.list("s")) == 10
            assert await checkpointer.list("s", limit=2) == [point(12), point(11)]

        play(scene)

    def test_delete_one(self, play: Callable[[Scene], Any]) -> None:
        """Delete checkpoint(s): specific checkpoint ID …"""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            for number in (1, 2):
                await checkpointer.save(point(number))
            await checkpointer.delete("s", "c2")
            await checkpointer.delete("s", "c2")
            assert await checkpointer.list("s") == [point(1)]

        play(scene)

    def test_delete_all_of_a_session(self, play: Callable[[Scene], Any]) -> None:
        """… or None to delete all for thread."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            for number in (1, 2):
                await checkpointer.save(point(number))
                await checkpointer.save(point(number, "t"))
            await checkpointer.delete("s")
            assert await checkpointer.list("s") == [] and len(await checkpointer.list("t")) == 2

        play(scene)

    def test_a_session_is_reset(self, play: Callable[[Scene], Any]) -> None:
        """`delete(session_id)`, then the same session id again."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            await checkpointer.save(point(1, text="old"))
            await checkpointer.save(point(2, text="old"))
            await checkpointer.delete("s")
            assert await checkpointer.load("s") is None
            await checkpointer.save(point(1, text="new"))
            assert await checkpointer.list("s") == [point(1, text="new")]

        play(scene)

    def test_one_id_is_one_checkpoint(self, play: Callable[[Scene], Any]) -> None:
        """On every back end, unlike llmfy's: see docs/migrating.md."""

        async def scene(checkpointer: BaseCheckpointer) -> None:
            await checkpointer.save(point(1))
            await checkpointer.save(point(1))
            with pytest.raises(Conflict):
                await checkpointer.save(point(1, text="other"))
            assert await checkpointer.list("s") == [point(1)]

        play(scene)


def test_ttl_is_seconds() -> None:
    assert InMemoryCheckpointer(ttl=60).states.ttl == timedelta(seconds=60)
