"""`llmfy.flow_engine`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import (
    BaseCheckpointer,
    InMemoryCheckpointer,
    RedisCheckpointer,
    SQLCheckpointer,
)

__all__ = ["BaseCheckpointer", "InMemoryCheckpointer", "RedisCheckpointer", "SQLCheckpointer"]

deprecate(
    __name__,
    {
        "BaseCheckpointer": "holdfast.flow.BaseCheckpointer",
        "InMemoryCheckpointer": "holdfast.flow.InMemoryCheckpointer",
        "RedisCheckpointer": "holdfast.flow.RedisCheckpointer",
        "SQLCheckpointer": "holdfast.flow.open_checkpointer",
    },
)
