"""The errors of CodeWeaver that callers of these modules catch. Not a module of CodeWeaver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import NotFound, Refused


class CodeWeaverDeveloperError(NotFound):
    """The settings of CodeWeaver are needed, and there are none."""


class ConfigurationError(Refused):
    """The configuration cannot be used."""

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, suggestions: Sequence[str] | None = None
    ) -> None:
        super().__init__(message, hint=" ".join(suggestions or ()))
        self.details = dict(details or {})
        self.suggestions = list(suggestions or ())


class ConfigurationLockError(ConfigurationError):
    """The policy of a collection forbids this change."""


class DimensionMismatchError(ConfigurationError):
    """Documents and queries have vectors of different dimensions."""


class DatatypeMismatchError(ConfigurationError):
    """Documents and queries have vectors of different datatypes."""
