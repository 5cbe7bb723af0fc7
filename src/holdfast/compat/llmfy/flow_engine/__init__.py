"""`llmfy.flow_engine`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import (
    REPLACEMENTS,
    BaseCheckpointer,
    InMemoryCheckpointer,
    RedisCheckpointer,
    SQLCheckpointer,
)

__all__ = ["BaseCheckpointer", "InMemoryCheckpointer", "RedisCheckpointer", "SQLCheckpointer"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
