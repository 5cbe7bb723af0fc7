"""The state of agent graphs and workflows, step by step: saved safely, loaded exactly, growing with what changed."""

from holdfast.flow.checkpointer import (
    BaseCheckpointer,
    Checkpointer,
    InMemoryCheckpointer,
    PostgresCheckpointer,
    RedisCheckpointer,
    SQLiteCheckpointer,
    open_checkpointer,
)
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
