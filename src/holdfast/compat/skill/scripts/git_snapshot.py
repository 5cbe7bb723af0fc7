"""`scripts.git_snapshot`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import GitState
from holdfast.compat.skill.snapshots import GitSnapshot

__all__ = ["GitSnapshot", "GitState"]

deprecate(
    __name__,
    {
        "GitSnapshot": "holdfast.project.CheckpointManager (`create_checkpoint` records `git_state`)",
        "GitState": "holdfast.project.GitState",
    },
)
