"""`codeweaver.engine.services.config_analyzer`: what a change of the configuration means for an index."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from holdfast.compat.codeweaver.errors import ConfigurationLockError
from holdfast.compat.codeweaver.settings import embedding_values, is_asymmetric
from holdfast.compat.deprecation import deprecate
from holdfast.indexing import ChangeImpact
from holdfast.indexing.model_families import load_families

__all__ = ["ConfigChangeAnalysis", "ConfigChangeAnalyzer", "TransformationDetails"]

_PRECISIONS = ("float32", "float16", "uint8", "int8")
_MEASURED = {(2048, 1024): 0.04, (2048, 512): 0.47, (2048, 256): 2.43, (1024, 512): 0.51}
"""Percent of accuracy that voyage-code-3 loses with fewer dimensions, as CodeWeaver measured it."""
_REINDEX = ["Revert config: restore the old settings", "Reindex: embed every document again", "Or use a new collection"]


@dataclass
class TransformationDetails:
    """A transformation of stored vectors that a change needs."""

    type: Literal["quantization", "dimension_reduction"]
    old_value: str | int
    new_value: str | int
    complexity: Literal["low", "medium", "high"]
    time_estimate: timedelta
    requires_vector_update: bool
    accuracy_impact: str


@dataclass
class ConfigChangeAnalysis:
    """What a change means, what it costs, and what to do."""

    impact: ChangeImpact
    old_config_summary: dict[str, Any]
    new_config_summary: dict[str, Any]
    transformation_type: Literal["quantization", "dimension_reduction", "mixed"] | None = None
    transformations: list[TransformationDetails] = field(default_factory=list)
    estimated_time: timedelta = timedelta(0)
    estimated_cost: float = 0.0
    accuracy_impact: str = "No change"
    recommendations: list[str] = field(default_factory=list)
    migration_strategy: Literal["full_reindex", "quantize_only", "dimension_reduction", "no_action"] | None = (
        "no_action"
    )


class ConfigChangeAnalyzer:
    """Compares a configuration with what an index was made with, after the policy of its collection."""

    def __init__(self, settings: Any, checkpoint_manager: Any, manifest_manager: Any, vector_store: Any) -> None:
        self.settings = settings
        self.checkpoint_manager = checkpoint_manager
        self.manifest_manager = manifest_manager
        self.vector_store = vector_store

    async def analyze_current_config(self) -> ConfigChangeAnalysis | None:
        """Return what the current settings mean for the index; None if there is no index yet."""
        return await self._analyze(self.settings)

    async def validate_config_change(self, key: str, value: Any) -> ConfigChangeAnalysis | None:
        """Return what setting one key would mean; None if it does not concern embeddings, or there is no index."""
        if not key.startswith("provider.embedding"):
            return None
        return await self._analyze(self._simulate_config_change(key, value))

    async def _analyze(self, settings: Any) -> ConfigChangeAnalysis | None:
        checkpoint = await self.checkpoint_manager.load()
        if not checkpoint or not settings.provider.embedding:
            return None
        manifest = await self.manifest_manager.load()
        return await self.analyze_config_change(
            old_fingerprint=self.checkpoint_manager._extract_fingerprint(checkpoint),
            new_config=settings.provider.embedding[0],
            vector_count=manifest.total_chunks if manifest else checkpoint.chunks_indexed,
        )

    async def analyze_config_change(
        self, old_fingerprint: Any, new_config: Any, vector_count: int
    ) -> ConfigChangeAnalysis:
        """Return what another configuration of embeddings means for an index of this many vectors.

        The policy is checked first. Fewer dimensions and a coarser datatype are transformations; more of either needs
        every document embedded again.
        """
        new_fingerprint = self.checkpoint_manager._create_fingerprint(new_config)
        old, new = self._create_config_summary(old_fingerprint), self._create_config_summary_from_settings(new_config)
        blocked = await self._check_policy(old, new, vector_count)
        if blocked is not None:
            return blocked
        usable, impact = new_fingerprint.is_compatible_with(old_fingerprint)
        increase = self._increase(old_fingerprint, new_config)
        if increase or (not usable and impact is ChangeImpact.BREAKING):
            return self._build_breaking_analysis(old, new, vector_count, increase or "Requires full reindex")
        changes = self._transformations(old_fingerprint, new_config, vector_count)
        if changes:
            return self._build_transformed_analysis(old, new, changes, vector_count)
        if impact is ChangeImpact.NONE:
            return ConfigChangeAnalysis(impact, old, new)
        said = "No impact: the new model shares the family of the indexed one"
        return ConfigChangeAnalysis(
            ChangeImpact.COMPATIBLE, old, new, accuracy_impact=said, recommendations=["No action required"]
        )

    # the policy

    async def _check_policy(
        self, old: dict[str, Any], new: dict[str, Any], vector_count: int
    ) -> ConfigChangeAnalysis | None:
        """Return the analysis of a change that the policy of the collection forbids; else None."""
        collection = await self.vector_store.collection_info()
        if not collection:
            return None
        stores = self.settings.provider.vector_store
        sparse = getattr(self.settings.provider, "sparse_embedding", None)
        provider = stores[0].provider if isinstance(stores, tuple | list) and stores else None
        try:
            collection.validate_config_change(
                new_dense_model=new["embed_model"],
                new_query_model=new["query_model"],
                new_sparse_model=str(sparse[0].model_name) if isinstance(sparse, tuple | list) and sparse else None,
                new_provider=None if provider is None else str(getattr(provider, "value", provider)),
            )
        except ConfigurationLockError as error:
            policy = str(error.details.get("policy") or getattr(collection.policy, "value", "unknown"))
            analysis = self._build_breaking_analysis(
                old, new, vector_count, f"Collection policy ({policy}) blocks this change"
            )
            analysis.recommendations = self._build_policy_recommendations(policy, error)
            return analysis
        return None

    def _build_policy_recommendations(self, policy: str, error: Any) -> list[str]:
        """Return what to do about a change that a policy forbids."""
        suggestions = getattr(error, "suggestions", None) or _REINDEX
        return [f"Collection policy is '{policy}' - change blocked", *suggestions]

    def _models_compatible(self, old_meta: Any, new_config: Any) -> bool:
        """Whether the models of a collection and of a configuration share one space of vectors."""
        values = embedding_values(new_config)
        same_model = bool(values["embed_model"] == old_meta.dense_model)
        same_family = bool(values["embed_model_family"] == old_meta.dense_model_family)
        if is_asymmetric(new_config):
            return bool(old_meta.dense_model_family) and same_model and same_family
        return same_family if old_meta.dense_model_family else same_model

    # what changes

    def _increase(self, old_fingerprint: Any, new_config: Any) -> str | None:
        """Return which increase of dimension or precision is asked for: stored vectors do not have it."""
        old_type, new_type = self._datatypes(old_fingerprint, new_config)
        if old_type and new_type and old_type != new_type and not self._is_valid_quantization(old_type, new_type):
            return f"Cannot increase precision from {old_type} to {new_type}"
        old, new = self._dimensions(old_fingerprint, new_config)
        return f"Cannot increase dimensions from {old} to {new}" if old and new and new > old else None

    def _transformations(self, old_fingerprint: Any, config: Any, vector_count: int) -> list[TransformationDetails]:
        found = []
        old_type, new_type = self._datatypes(old_fingerprint, config)
        if old_type and new_type and old_type != new_type:
            loss = "~2% (estimated)"
            took = timedelta(seconds=30)
            found.append(TransformationDetails("quantization", old_type, new_type, "low", took, False, loss))
        old, new = self._dimensions(old_fingerprint, config)
        if old and new and new < old:
            loss = self._estimate_matryoshka_impact(str(embedding_values(config)["embed_model"]), old, new)
            took = self._estimate_migration_time(vector_count)
            found.append(TransformationDetails("dimension_reduction", old, new, "medium", took, True, loss))
        return found

    def _datatypes(self, old_fingerprint: Any, config: Any) -> tuple[str | None, str | None]:
        return self._get_datatype_from_fingerprint(old_fingerprint), self._get_datatype_from_config(config)

    def _dimensions(self, old_fingerprint: Any, config: Any) -> tuple[int | None, int | None]:
        return self._get_dimension_from_fingerprint(old_fingerprint), self._get_dimension_from_config(config)

    def _get_datatype_from_fingerprint(self, fingerprint: Any) -> str | None:
        found = getattr(fingerprint, "datatype", None)
        return found if isinstance(found, str) else None

    def _get_datatype_from_config(self, config: Any) -> str | None:
        found = embedding_values(config)["datatype"]
        return found if isinstance(found, str) else None

    def _get_dimension_from_fingerprint(self, fingerprint: Any) -> int | None:
        found = getattr(fingerprint, "dimension", None)
        return found if isinstance(found, int) else None

    def _get_dimension_from_config(self, config: Any) -> int | None:
        found = embedding_values(config)["dimension"]
        return found if isinstance(found, int) else None

    def _is_valid_quantization(self, old_dtype: str, new_dtype: str) -> bool:
        """Whether a datatype is coarser than another; False for an unknown one."""
        if not {old_dtype, new_dtype} <= set(_PRECISIONS):
            return False
        return _PRECISIONS.index(new_dtype) >= _PRECISIONS.index(old_dtype)

    def _simulate_config_change(self, key: str, value: Any) -> Any:
        """Return a copy of the settings with another value; a number in a key is an index."""
        settings = copy.deepcopy(self.settings)
        *path, last = key.split(".")
        target = settings
        for part in path:
            target = _step(target, part)
        if isinstance(target, dict):
            target[last] = value
        elif isinstance(target, list | tuple) and not last.isdigit():
            setattr(target[0], last, value)  # "provider.embedding.dimension" means that of the first provider
        elif isinstance(target, list):
            target[int(last)] = value
        else:
            setattr(target, last, value)
        return settings

    # estimates and results

    def _estimate_matryoshka_impact(self, model_name: str, old_dim: int, new_dim: int) -> str:
        """Return how much accuracy fewer dimensions cost: measured for voyage-code-3, else a guess."""
        if model_name.startswith("voyage-code-3") and (old_dim, new_dim) in _MEASURED:
            return f"~{_MEASURED[old_dim, new_dim]:.2f}% (empirical)"
        share = (old_dim - new_dim) / old_dim * 100
        found = load_families().find(model_name)
        if found is not None and found[0].matryoshka:
            return f"~{share * 0.05:.1f}% (Matryoshka-optimized, estimated)"
        return f"~{share * 0.15:.1f}% (generic truncation, estimated)"

    def _estimate_reindex_time(self, vector_count: int) -> timedelta:
        return timedelta(seconds=max(30, vector_count / 1000))

    def _estimate_reindex_cost(self, vector_count: int) -> float:
        return vector_count * 0.0001

    def _estimate_migration_time(self, vector_count: int) -> timedelta:
        return timedelta(seconds=max(10, vector_count / 5000))

    def _estimate_migration_cost(self, vector_count: int) -> float:
        return vector_count * 0.00001

    def _create_config_summary(self, fingerprint: Any) -> dict[str, Any]:
        names = ("embed_model", "embed_model_family", "query_model", "sparse_model", "vector_store")
        summary = {name: getattr(fingerprint, name, None) for name in names}
        return {"config_type": getattr(fingerprint, "embedding_config_type", None), **summary}

    def _create_config_summary_from_settings(self, config: Any) -> dict[str, Any]:
        values = embedding_values(config)
        names = ("embed_model", "embed_model_family", "query_model")
        summary = {"config_type": values["embedding_config_type"], **{name: values[name] for name in names}}
        return {**summary, "sparse_model": None, "vector_store": "default"}

    def _build_breaking_analysis(
        self, old_summary: dict[str, Any], new_summary: dict[str, Any], vector_count: int, reason: str
    ) -> ConfigChangeAnalysis:
        return ConfigChangeAnalysis(
            ChangeImpact.BREAKING,
            old_summary,
            new_summary,
            estimated_time=self._estimate_reindex_time(vector_count),
            estimated_cost=self._estimate_reindex_cost(vector_count),
            accuracy_impact=reason,
            recommendations=list(_REINDEX),
            migration_strategy="full_reindex",
        )

    def _build_transformed_analysis(
        self,
        old_summary: dict[str, Any],
        new_summary: dict[str, Any],
        changes: list[TransformationDetails],
        vector_count: int,
    ) -> ConfigChangeAnalysis:
        kinds = {each.type for each in changes}
        reduces = "dimension_reduction" in kinds
        return ConfigChangeAnalysis(
            ChangeImpact.TRANSFORMABLE if reduces else ChangeImpact.QUANTIZABLE,
            old_summary,
            new_summary,
            "mixed" if len(kinds) > 1 else changes[0].type,
            changes,
            sum((each.time_estimate for each in changes), timedelta()),
            self._estimate_migration_cost(vector_count) if reduces else 0.0,
            "; ".join(each.accuracy_impact for each in changes),
            ["Transform the stored vectors; no document is embedded again", "Check the accuracy afterwards"],
            "dimension_reduction" if reduces else "quantize_only",
        )


def _step(target: Any, part: str) -> Any:
    if isinstance(target, list | tuple):
        return target[int(part)] if part.isdigit() else getattr(target[0], part)
    return target[part] if isinstance(target, Mapping) else getattr(target, part)


deprecate(__name__, dict.fromkeys(__all__, "holdfast.indexing.IndexRun and its plan()"))
