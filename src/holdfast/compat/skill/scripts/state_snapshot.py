"""`scripts.state_snapshot`."""

from holdfast.compat.deprecation import deprecate
from holdfast.compat.skill.manager import REPLACEMENTS, FeatureState
from holdfast.compat.skill.snapshots import StateSnapshot

__all__ = ["FeatureState", "StateSnapshot"]

deprecate(__name__, {name: REPLACEMENTS[name] for name in __all__})
