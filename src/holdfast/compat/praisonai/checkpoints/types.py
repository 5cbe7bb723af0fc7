"""`praisonaiagents.checkpoints.types`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.checkpoint_types import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)

__all__ = ["Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointResult", "FileDiff"]

deprecate(
    __name__,
    {
        "Checkpoint": "holdfast.Checkpoint",
        "CheckpointConfig": "holdfast.workspace.CheckpointConfig",
        "CheckpointDiff": "holdfast.CheckpointDiff",
        "CheckpointEvent": "holdfast.workspace.CheckpointEvent",
        "CheckpointResult": "holdfast.Checkpoint (`save` returns it, and raises its errors)",
        "FileDiff": "holdfast.CheckpointDiff (its added_files, modified_files and deleted_files)",
    },
)
