"""`llmfy.flow_engine.checkpointer.sql_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import REPLACEMENTS, SQLCheckpointer

__all__ = ["SQLCheckpointer"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
