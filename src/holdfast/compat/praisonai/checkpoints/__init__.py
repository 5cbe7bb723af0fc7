"""`praisonaiagents.checkpoints`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.checkpoint_service import CheckpointService
from holdfast.compat.praisonai.checkpoint_types import Checkpoint, CheckpointConfig, CheckpointDiff, CheckpointEvent

__all__ = ["Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointService"]

deprecate(
    __name__,
    {
        "Checkpoint": "holdfast.Checkpoint",
        "CheckpointConfig": "holdfast.workspace.CheckpointConfig",
        "CheckpointDiff": "holdfast.CheckpointDiff",
        "CheckpointEvent": "holdfast.workspace.CheckpointEvent",
        "CheckpointService": "holdfast.workspace.CheckpointService",
    },
)
