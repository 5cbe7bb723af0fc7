"""`codeweaver.core.exceptions`: the errors of a configuration that does not fit an index."""

from holdfast.compat.codeweaver.errors import (
    CodeWeaverDeveloperError,
    ConfigurationError,
    ConfigurationLockError,
    DatatypeMismatchError,
    DimensionMismatchError,
)
from holdfast.compat.deprecation import deprecate

__all__ = [
    "CodeWeaverDeveloperError",
    "ConfigurationError",
    "ConfigurationLockError",
    "DatatypeMismatchError",
    "DimensionMismatchError",
]

deprecate(__name__, {"CodeWeaverDeveloperError": "holdfast.NotFound"} | dict.fromkeys(__all__[1:], "holdfast.Refused"))
