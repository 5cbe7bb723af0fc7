"""`llmfy.flow_engine.checkpointer.in_memory_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import REPLACEMENTS, InMemoryCheckpointer

__all__ = ["InMemoryCheckpointer"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
