"""`llmfy.flow_engine.checkpointer.base_checkpointer`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.llmfy.checkpointers import REPLACEMENTS, BaseCheckpointer
from holdfast.compat.llmfy.checkpoints import Checkpoint, CheckpointMetadata

__all__ = ["BaseCheckpointer", "Checkpoint", "CheckpointMetadata"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
