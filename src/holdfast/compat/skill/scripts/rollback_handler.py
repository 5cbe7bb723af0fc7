"""`scripts.rollback_handler`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.snapshots import RollbackHandler

__all__ = ["RollbackHandler"]

deprecate(__name__, {"RollbackHandler": "holdfast.project.CheckpointManager (`rollback` and `undo`)"})
