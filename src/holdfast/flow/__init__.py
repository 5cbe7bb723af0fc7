"""The state of agent graphs and workflows, step by step: saved safely, loaded exactly, growing with what changed.

    with open_states("sqlite:///state.db") as states:
        metadata = CheckpointMetadata("c1", "session-1", datetime.now(UTC), node_name="plan", step=1)
        states.save(Checkpoint(metadata, {"messages": ["hello"]}))
        states.load("session-1").state

`open_checkpointer` opens the same for an event loop.

    states, checkpointer    the verbs; the same for asyncio, in `aio`
    model                   the nouns: `Checkpoint`, `CheckpointMetadata`, `SessionInfo`
    validation              checks of arguments; names escaped so that every back end can store them
    chunking, segments      where a state is cut into parts; its bytes as a sequence of them
    codec                   values to rows and parts, and back
    cache                   what a process remembers between calls, so that a save costs what is new
    store, packs            the interface of a back end, and what it guarantees; small parts in one row
    urls                    back ends by their URLs
    location                a store as a `Location`, for commands and pages
    memory, sqlite, postgres, redis    the back ends
    forks, parents          forks and copies; checkpoints that need earlier ones
    diff, upkeep            differences; pruning, expiry, verification, sizes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.flow.model import (
    Checkpoint,
    CheckpointMetadata,
    Copied,
    Encoded,
    PrunedStates,
    SessionInfo,
    SessionSize,
    StateChange,
    StateDiff,
    StoreUsage,
    Write,
)
from holdfast.flow.parents import MADE_OF_PARENTS
from holdfast.flow.states import States
from holdfast.flow.store import ANYTHING, Place, StateStore
from holdfast.flow.urls import open_states, open_store

if TYPE_CHECKING:
    from holdfast.flow.checkpointer import (
        BaseCheckpointer,
        Checkpointer,
        InMemoryCheckpointer,
        PostgresCheckpointer,
        RedisCheckpointer,
        SQLiteCheckpointer,
        open_checkpointer,
    )

__all__ = [
    "ANYTHING",
    "MADE_OF_PARENTS",
    "BaseCheckpointer",
    "Checkpoint",
    "CheckpointMetadata",
    "Checkpointer",
    "Copied",
    "Encoded",
    "InMemoryCheckpointer",
    "Place",
    "PostgresCheckpointer",
    "PrunedStates",
    "RedisCheckpointer",
    "SQLiteCheckpointer",
    "SessionInfo",
    "SessionSize",
    "StateChange",
    "StateDiff",
    "StateStore",
    "States",
    "StoreUsage",
    "Write",
    "open_checkpointer",
    "open_states",
    "open_store",
]

_AWAITED = {
    "BaseCheckpointer",
    "Checkpointer",
    "InMemoryCheckpointer",
    "PostgresCheckpointer",
    "RedisCheckpointer",
    "SQLiteCheckpointer",
    "open_checkpointer",
}

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load the async facade when it is first asked for: who has no event loop does not pay for one."""
        if name not in _AWAITED:
            raise AttributeError(f"module 'holdfast.flow' has no attribute {name!r}")
        from holdfast.flow import checkpointer

        return getattr(checkpointer, name)
