"""`praisonaiagents.checkpoints`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.checkpoint_service import CheckpointService
from holdfast.compat.praisonai.checkpoint_types import (
    REPLACEMENTS,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
)

__all__ = ["Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointService"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
