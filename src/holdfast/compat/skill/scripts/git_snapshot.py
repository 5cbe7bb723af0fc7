"""`scripts.git_snapshot`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import REPLACEMENTS, GitState
from holdfast.compat.skill.snapshots import GitSnapshot

__all__ = ["GitSnapshot", "GitState"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
