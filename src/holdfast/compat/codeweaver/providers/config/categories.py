"""`codeweaver.providers.config.categories`: settings with one model for documents and another for queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.compat.deprecation import deprecate

__all__ = ["AsymmetricEmbeddingProviderSettings"]


@dataclass
class AsymmetricEmbeddingProviderSettings:
    """A provider that embeds documents and one that embeds queries."""

    embed_provider: Any
    query_provider: Any
    validate_family_compatibility: bool = True


deprecate(__name__, {"AsymmetricEmbeddingProviderSettings": "holdfast.indexing.Channel"})
