"""`codeweaver.providers.embedding.capabilities.base`: models and their families."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.compat.deprecation import deprecate

__all__ = ["EmbeddingModelCapabilities", "ModelFamily"]


@dataclass(frozen=True)
class ModelFamily:
    """Models that share one space of vectors."""

    family_id: str
    default_dimension: int
    member_models: frozenset[str]
    asymmetric_query_models: frozenset[str] = frozenset()
    output_dimensions: tuple[int, ...] = ()
    cross_provider_compatible: bool = False
    default_dtype: str = "float16"
    output_dtypes: tuple[str, ...] = ()
    is_normalized: bool = False
    preferred_metrics: tuple[str, ...] = ("cosine", "dot", "euclidean")

    def is_compatible(self, embed_model: str, query_model: str) -> bool:
        """Whether both models are of this family."""
        return {embed_model, query_model} <= self.member_models

    def validate_dimensions(self, embed_dim: int, query_dim: int) -> tuple[bool, str | None]:
        """Return whether vectors of these dimensions can be compared, and if not, why."""
        if embed_dim != query_dim:
            return False, f"documents have {embed_dim} dimensions and queries have {query_dim}"
        if self.output_dimensions and embed_dim not in self.output_dimensions:
            known = ", ".join(map(str, self.output_dimensions))
            return False, f"{self.family_id} has no vectors of {embed_dim} dimensions, only of {known}"
        return True, None


@dataclass(frozen=True)
class EmbeddingModelCapabilities:
    """A model, its family and its dimension."""

    model_name: str = ""
    model_family: ModelFamily | None = None
    default_dimension: int = 0


deprecate(
    __name__,
    {
        "EmbeddingModelCapabilities": "holdfast.indexing.model_families.FamilyMember",
        "ModelFamily": "holdfast.indexing.model_families.Space",
    },
)
