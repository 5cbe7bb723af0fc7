"""`codeweaver.engine.managers`."""

from holdfast.compat.codeweaver.engine.managers import checkpoint_manager as _module
from holdfast.compat.deprecation import deprecate

# From `vars`, so that only the caller's own import warns
globals().update({name: vars(_module)[name] for name in _module.REPLACEMENTS})
deprecate(__name__, _module.REPLACEMENTS)
