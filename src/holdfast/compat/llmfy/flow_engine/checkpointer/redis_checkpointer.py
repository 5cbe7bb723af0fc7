"""`llmfy.flow_engine.checkpointer.redis_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import RedisCheckpointer

__all__ = ["RedisCheckpointer"]

deprecate(
    __name__,
    {
        "RedisCheckpointer": "holdfast.flow.RedisCheckpointer",
    },
)
