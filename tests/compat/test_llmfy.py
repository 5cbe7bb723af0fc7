"""`llmfy.flow_engine.checkpointer.base_checkpointer`: the state of a session, step by step."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.flow import (
    BaseCheckpointer,
    Checkpoint,
    CheckpointMetadata,
    InMemoryCheckpointer,
    SQLiteCheckpointer,
)

pytestmark = pytest.mark.usefixtures("own_stores")


def checkpoint(step: int, session: str = "s") -> Checkpoint:
    meta = CheckpointMetadata(
        checkpoint_id=f"{session}{step}",
        session_id=session,
        timestamp=datetime(2026, 1, 2, tzinfo=UTC),
        node_name="node",
        step=step,
    )
    return Checkpoint(metadata=meta, state={"step": step})


def test_both_dataclasses_round_trip_through_dicts() -> None:
    assert dataclasses.is_dataclass(Checkpoint) and dataclasses.is_dataclass(CheckpointMetadata)
    one = checkpoint(1)
    assert Checkpoint.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_base_class_is_abstract_and_async() -> None:
    with pytest.raises(TypeError):
        BaseCheckpointer()  # type: ignore[abstract]
    for name in ("save", "load", "list", "delete"):
        assert name in BaseCheckpointer.__abstractmethods__
        assert inspect.iscoroutinefunction(getattr(BaseCheckpointer, name))


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_methods(where: str, tmp_path: Path) -> None:
    async def use() -> None:
        store = InMemoryCheckpointer() if where == "memory" else SQLiteCheckpointer(tmp_path / "state.db")
        async with store as checkpointer:
            assert isinstance(checkpointer, BaseCheckpointer)
            for step in range(12):
                await checkpointer.save(checkpoint(step))
            await checkpointer.save(checkpoint(0, "other"))
            newest, third = await checkpointer.load("s"), await checkpointer.load("s", checkpoint_id="s3")
            assert newest is not None and newest.state == {"step": 11}
            assert third is not None and third.state == {"step": 3}
            assert await checkpointer.load("s", "other0") is None  # of another session
            listed = [each.metadata.step for each in await checkpointer.list("s")]
            assert listed == list(range(11, 1, -1))
            assert len(await checkpointer.list("s", limit=3)) == 3
            await checkpointer.delete("s", "s11")
            assert await checkpointer.load("s", "s11") is None
            await checkpointer.delete("s")
            assert await checkpointer.load("s") is None
            assert await checkpointer.load("other") is not None

    asyncio.run(use())
