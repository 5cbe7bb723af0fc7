"""`praisonai.cli.features.session_checkpoints`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.session_manager import SessionCheckpointManager

__all__ = ["SessionCheckpointManager"]

deprecate(
    __name__,
    {"SessionCheckpointManager": "holdfast.workspace.CheckpointService (`save(turn=…, state=…)`, `restore(turn=…)`)"},
)
