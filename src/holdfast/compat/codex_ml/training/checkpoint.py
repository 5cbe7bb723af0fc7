"""`training.checkpoint`: the earlier name of `training.checkpoint_manager`."""

from holdfast.compat.codex_ml.step_manager import CheckpointManager
from holdfast.compat.deprecation import deprecate

__all__ = ["CheckpointManager"]

deprecate(__name__, {"CheckpointManager": "holdfast.training.CheckpointManager"})
