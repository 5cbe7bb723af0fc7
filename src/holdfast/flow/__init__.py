"""The state of agent graphs and workflows, step by step: saved safely, loaded exactly, growing with what changed.

    with open_states("sqlite:///state.db") as states:
        metadata = CheckpointMetadata("c1", "session-1", datetime.now(UTC), node_name="plan", step=1)
        states.save(Checkpoint(metadata, {"messages": ["hello"]}))
        states.load("session-1").state

`open_checkpointer` opens the same for an event loop.

    states, checkpointer     the verbs; the same for an event loop, in `threads`
    core        saving and loading, over any store
    model       the nouns: `Checkpoint`, `CheckpointMetadata`, `Session`
    asked, names             what callers give, checked; names as every back end can hold them
    weaving, rope            where a state is cut into parts; its bytes as a sequence of them
    sealing     values to rows and parts, and back
    remembering  what a process keeps between calls, so that they cost what is new
    store       what a back end promises
    conflicts   what every back end refuses, in the same words
    opening     back ends by their URLs
    memory      states in memory
    sqlite, sqlite_reading, sqlite_schema    states in one file
    sqlite_pool, sqlite_sharing              its connections; writes that go along with a commit
    postgres, postgres_reading, postgres_schema    states in PostgreSQL
    redis, redis_reading, redis_scripts      states in Redis
    copying, parents         forks and copies; checkpoints that are made of earlier ones
    differ, upkeep, weighing  what differs; what is pruned, expired, damaged; what each session takes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.flow.model import (
    Change,
    Checkpoint,
    CheckpointMetadata,
    Copied,
    Encoded,
    Pruned,
    Session,
    StateDiff,
    Usage,
    Weight,
    Write,
)
from holdfast.flow.opening import open_states, open_store
from holdfast.flow.parents import MADE_OF_PARENTS
from holdfast.flow.states import States
from holdfast.flow.store import ANYTHING, Place, StateStore

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
    "Change",
    "Checkpoint",
    "CheckpointMetadata",
    "Checkpointer",
    "Copied",
    "Encoded",
    "InMemoryCheckpointer",
    "Place",
    "PostgresCheckpointer",
    "Pruned",
    "RedisCheckpointer",
    "SQLiteCheckpointer",
    "Session",
    "StateDiff",
    "StateStore",
    "States",
    "Usage",
    "Weight",
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

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load the async facade when it is first asked for: who has no event loop does not pay for one."""
        if name not in _AWAITED:
            raise AttributeError(f"module 'holdfast.flow' has no attribute {name!r}")
        from holdfast.flow import checkpointer

        return getattr(checkpointer, name)
