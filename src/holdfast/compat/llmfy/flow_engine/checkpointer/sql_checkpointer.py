"""`llmfy.flow_engine.checkpointer.sql_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import SQLCheckpointer

__all__ = ["SQLCheckpointer"]

deprecate(
    __name__,
    {
        "SQLCheckpointer": "holdfast.flow.open_checkpointer",
    },
)
