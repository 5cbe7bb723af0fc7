"""`praisonaiagents.checkpoints.service`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.praisonai.checkpoint_service import PROTECTED_PATHS, CheckpointService

__all__ = ["PROTECTED_PATHS", "CheckpointService"]

deprecate(__name__, {"CheckpointService": "holdfast.workspace.CheckpointService"})
