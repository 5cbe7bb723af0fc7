"""`scripts.state_snapshot`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import FeatureState
from holdfast.compat.skill.snapshots import StateSnapshot

__all__ = ["FeatureState", "StateSnapshot"]

deprecate(
    __name__,
    {
        "FeatureState": "holdfast.project.FeatureState",
        "StateSnapshot": "holdfast.project.CheckpointManager (`create_checkpoint` records `feature_state`)",
    },
)
