"""`codeweaver.providers.config.providers`: which providers are configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from holdfast.compat.deprecation import deprecate

__all__ = ["ProviderSettings"]


@dataclass
class ProviderSettings:
    """The providers of embeddings, of sparse embeddings and the vector stores, the first of each in use."""

    embedding: tuple[Any, ...] | None = None
    sparse_embedding: tuple[Any, ...] | None = None
    vector_store: tuple[Any, ...] | None = None

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """Return settings of these values, as the constructor does."""
        return cls(**values)


deprecate(__name__, {"ProviderSettings": "holdfast.indexing.Pipeline"})
