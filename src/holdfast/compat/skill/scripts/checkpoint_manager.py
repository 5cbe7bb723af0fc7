"""`scripts.checkpoint_manager`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import Checkpoint, CheckpointManager, CheckpointType, FeatureState, GitState

__all__ = ["Checkpoint", "CheckpointManager", "CheckpointType", "FeatureState", "GitState"]

deprecate(
    __name__,
    {
        "Checkpoint": "holdfast.project.Checkpoint",
        "CheckpointManager": "holdfast.project.CheckpointManager",
        "CheckpointType": "holdfast.project.CheckpointType",
        "FeatureState": "holdfast.project.FeatureState",
        "GitState": "holdfast.project.GitState",
    },
)
