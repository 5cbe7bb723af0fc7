"""`llmfy.flow_engine.checkpointer.redis_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import REPLACEMENTS, RedisCheckpointer

__all__ = ["RedisCheckpointer"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
