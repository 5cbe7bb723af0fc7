"""Helpers of the contract of a state store: checkpoints, conversations, and a consistency check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.flow import Checkpoint, CheckpointMetadata, States, StateStore
from holdfast.flow.store import names_in

OpenStore = Callable[..., StateStore]
FIVE: Any = 5
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ODD_NAMES = [
    "a", "ä", "☃", "\U0001f600", " ", "a b", "a/b", "a:b", "{x}", "a*b?[c]", "%", "%00", "'; DROP TABLE sessions; --",
    '"', "\\", "\n", "\0", "a\0b", "\ud800", "A", "null", "..", "x" * 500, "%u0041",
]  # fmt: skip


def told(checkpoint_id: str = "c1", session_id: str = "s", **more: Any) -> CheckpointMetadata:
    given: dict[str, Any] = {"timestamp": NOON, "node_name": "node", "step": 1}
    return CheckpointMetadata(checkpoint_id, session_id, **(given | more))


def point(checkpoint_id: str = "c1", state: Any = None, session_id: str = "s", **more: Any) -> Checkpoint:
    return Checkpoint(told(checkpoint_id, session_id, **more), {"n": checkpoint_id} if state is None else state)


def conversation(length: int, size: int = 1000) -> list[dict[str, Any]]:
    """Messages that do not repeat themselves."""
    return [{"id": at, "role": "user", "content": f"{at:06} " * (size // 7)} for at in range(length)]


class FlowContract:
    """Base of all parts of the contract. The test suite provides the fixture `open_store`."""

    @pytest.fixture
    def states(self, open_store: OpenStore) -> Iterator[States]:
        with States(open_store()) as states:
            yield states

    @staticmethod
    def assert_sound(states: States) -> None:
        """Everything can be read, and no part is left that nothing needs."""
        assert states.verify().ok
        rows = states.store.rows(None, None, whole=True)
        needed: set[tuple[int, bytes]] = set()
        for row in rows:
            level = names_in(row.refs)
            while level:
                needed |= {(row.family, name) for name in level}
                level = [name for refs in states.store.groups(row.family, level).values() for name in names_in(refs)]
        assert states.usage().parts == len(needed)
