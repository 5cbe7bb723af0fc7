"""`scripts.checkpoint_manager`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import (
    REPLACEMENTS,
    Checkpoint,
    CheckpointManager,
    CheckpointType,
    FeatureState,
    GitState,
)

__all__ = ["Checkpoint", "CheckpointManager", "CheckpointType", "FeatureState", "GitState"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
