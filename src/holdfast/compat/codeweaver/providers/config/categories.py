"""`codeweaver.providers.config.categories`: settings with one model for documents and another for queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.compat.codeweaver.errors import ConfigurationError, DatatypeMismatchError, DimensionMismatchError
from holdfast.compat.codeweaver.settings import embedding_values
from holdfast.compat.deprecation import deprecate

__all__ = ["AsymmetricEmbeddingProviderSettings"]


@dataclass
class AsymmetricEmbeddingProviderSettings:
    """A provider that embeds documents and one that embeds queries."""

    embed_provider: Any
    query_provider: Any
    validate_family_compatibility: bool = True

    def __post_init__(self) -> None:
        """Raise if vectors of the two cannot be compared, as far as their settings say."""
        if not self.validate_family_compatibility:
            return
        documents, queries = (embedding_values(each) for each in (self.embed_provider, self.query_provider))
        for name, error in _ERRORS.items():
            pair = (documents[name], queries[name])
            is_any_type = name == "datatype" and documents["embed_model_family"] == "voyage-4"  # as CodeWeaver has it
            if None not in pair and pair[0] != pair[1] and not is_any_type:
                raise error(f"documents have {name} {pair[0]}, queries {pair[1]}", suggestions=["Give both the same."])


_ERRORS = {
    "dimension": DimensionMismatchError,
    "datatype": DatatypeMismatchError,
    "embed_model_family": ConfigurationError,
}

deprecate(__name__, {"AsymmetricEmbeddingProviderSettings": "holdfast.indexing.Channel"})
