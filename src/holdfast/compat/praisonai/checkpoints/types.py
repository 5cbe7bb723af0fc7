"""`praisonaiagents.checkpoints.types`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.checkpoint_types import (
    REPLACEMENTS,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)

__all__ = ["Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointResult", "FileDiff"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
