"""`holdfast.compat.codeweaver`: what a change of the configuration means, and policies of collections."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from holdfast.errors import Refused

from .names import names_of

old = names_of("codeweaver.engine.managers.checkpoint_manager")
analyzer = names_of("codeweaver.engine.services.config_analyzer")
stores = names_of("codeweaver.providers.types.vector_store")
errors = names_of("codeweaver.core.exceptions")
Asymmetric = names_of("codeweaver.providers.config.categories").AsymmetricEmbeddingProviderSettings
Impact, Policy, Metadata = old.ChangeImpact, stores.CollectionPolicy, stores.CollectionMetadata

FINGERPRINT = old.CheckpointSettingsFingerprint(
    embedding_config_type="symmetric", embed_model="voyage-4-large", embed_model_family="voyage-4", query_model=None,
    sparse_model=None, vector_store="qdrant", config_hash="", dimension=2048, datatype="float32",
)  # fmt: skip


def provider(model: str = "voyage-4-large", dimension: int = 2048, datatype: str = "float32") -> SimpleNamespace:
    family = SimpleNamespace(family_id="voyage-4" if model.startswith("voyage-4") else "other")
    config = SimpleNamespace(dimension=dimension, datatype=datatype, capabilities=SimpleNamespace(model_family=family))
    return SimpleNamespace(model_name=model, embedding_config=config)


class Index:
    """An analyzer, and what it asks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = SimpleNamespace(
            indexer=None,
            provider=SimpleNamespace(
                embedding=[provider()],
                sparse_embedding=None,
                vector_store=(SimpleNamespace(provider="qdrant"),),
            ),
        )
        core = SimpleNamespace(get_settings=lambda: self.settings)
        monkeypatch.setitem(__import__("sys").modules, "codeweaver.core", core)
        self.manager = old.CheckpointManager(folder / "project", "shop", folder / "checkpoints")
        self.manifest = Mock(load=AsyncMock(return_value=None))
        self.store = Mock(collection_info=AsyncMock(return_value=None))
        self.made = analyzer.ConfigChangeAnalyzer(
            settings=self.settings,
            checkpoint_manager=self.manager,
            manifest_manager=self.manifest,
            vector_store=self.store,
        )

    def save(self, chunks: int = 1000) -> None:
        saved = old.IndexingCheckpoint(chunks_indexed=chunks, fingerprint=asdict(FINGERPRINT))
        asyncio.run(self.manager.save(saved))

    def change(self, config: Any, vectors: int = 1000) -> Any:
        return asyncio.run(
            self.made.analyze_config_change(old_fingerprint=FINGERPRINT, new_config=config, vector_count=vectors)
        )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    return Index(tmp_path, monkeypatch)


class TestAnalyze:
    def test_no_index_yet(self, index: Index) -> None:
        assert asyncio.run(index.made.analyze_current_config()) is None
        assert asyncio.run(index.made.validate_config_change("provider.embedding.0.model_name", "x")) is None

    def test_nothing_changed(self, index: Index) -> None:
        index.save()
        found = asyncio.run(index.made.analyze_current_config())
        assert (found.impact, found.migration_strategy, found.transformations) == (Impact.NONE, "no_action", [])
        assert (found.estimated_time, found.estimated_cost) == (timedelta(0), 0.0)

    def test_the_checkpoint_says_how_many_vectors_there_are(self, index: Index) -> None:
        index.save(chunks=5_000_000)
        index.settings.provider.embedding = [provider("other-model")]
        found = asyncio.run(index.made.analyze_current_config())
        assert (found.estimated_time, found.estimated_cost) == (timedelta(seconds=5000), pytest.approx(500.0))
        index.manifest.load.return_value = SimpleNamespace(total_chunks=1000)
        found = asyncio.run(index.made.analyze_current_config())
        assert (found.estimated_time, found.estimated_cost) == (timedelta(seconds=30), pytest.approx(0.1))

    def test_another_model_is_breaking(self, index: Index) -> None:
        found = index.change(provider("other-model"))
        assert (found.impact, found.migration_strategy) == (Impact.BREAKING, "full_reindex")
        assert any("Revert config" in each for each in found.recommendations)
        assert found.old_config_summary["embed_model"] == "voyage-4-large"
        assert found.new_config_summary["embed_model"] == "other-model"

    @pytest.mark.parametrize(
        ("dimension", "datatype", "impact", "kind", "strategy"),
        [
            (1024, "float32", "TRANSFORMABLE", "dimension_reduction", "dimension_reduction"),
            (2048, "int8", "QUANTIZABLE", "quantization", "quantize_only"),
            (1024, "float16", "TRANSFORMABLE", "mixed", "dimension_reduction"),
            (4096, "float32", "BREAKING", None, "full_reindex"),
            (1024, "float64", "BREAKING", None, "full_reindex"),
        ],
    )
    def test_dimension_and_datatype(
        self, index: Index, dimension: int, datatype: str, impact: str, kind: str | None, strategy: str
    ) -> None:
        found = index.change(provider(dimension=dimension, datatype=datatype))
        assert (found.impact, found.transformation_type, found.migration_strategy) == (Impact[impact], kind, strategy)
        assert (impact == "BREAKING") == ("Cannot increase" in found.accuracy_impact)

    def test_details_of_a_reduction(self, index: Index) -> None:
        (change,) = index.change(provider(dimension=1024), vectors=1_000_000).transformations
        assert (change.old_value, change.new_value, change.complexity) == (2048, 1024, "medium")
        assert change.requires_vector_update and change.time_estimate == timedelta(seconds=200)
        found = index.made._estimate_matryoshka_impact("voyage-code-3", 2048, 1024)
        assert "0.04" in found and "empirical" in found
        assert "estimated" in index.made._estimate_matryoshka_impact("unknown", 2048, 1024)

    def test_another_model_for_queries_is_compatible(self, index: Index) -> None:
        config = Asymmetric(provider(), provider("voyage-4-nano"))
        found = index.change(config)
        assert (found.impact, found.migration_strategy) == (Impact.COMPATIBLE, "no_action")

    def test_precision_only_falls(self, index: Index) -> None:
        order = ["float32", "float16", "uint8", "int8"]
        for at, one in enumerate(order):
            assert [index.made._is_valid_quantization(one, each) for each in order] == [n >= at for n in range(4)]
        assert not index.made._is_valid_quantization("float32", "complex")

    def test_validate_config_change(self, index: Index) -> None:
        index.save()
        before = copy.deepcopy(index.settings)
        found = asyncio.run(index.made.validate_config_change("provider.embedding.0.model_name", "other-model"))
        assert found.impact == Impact.BREAKING
        found = asyncio.run(index.made.validate_config_change("provider.embedding.embedding_config.dimension", 512))
        assert found.impact == Impact.TRANSFORMABLE
        assert asyncio.run(index.made.validate_config_change("indexer.batch_size", 3)) is None
        assert index.settings == before, "a simulation changed the settings"

    def test_models_of_a_collection(self, index: Index) -> None:
        def said(config: Any, **values: Any) -> bool:
            return bool(index.made._models_compatible(SimpleNamespace(**values), config))

        assert said(provider(), dense_model="voyage-4-large", dense_model_family="voyage-4")
        assert not said(provider("other-model"), dense_model="voyage-4-large", dense_model_family="voyage-4")
        assert said(provider("m"), dense_model="m", dense_model_family=None)
        both = Asymmetric(provider(), provider("voyage-4-nano"))
        assert said(both, dense_model="voyage-4-large", dense_model_family="voyage-4")
        assert not said(both, dense_model="voyage-4", dense_model_family="voyage-4")
        assert not said(both, dense_model="voyage-4-large", dense_model_family=None)


def collection(**values: Any) -> Any:
    made = {"provider": "qdrant", "project_name": "shop", "dense_model": "voyage-4-large"}
    return Metadata(**{**made, "dense_model_family": "voyage-4", **values})


class TestPolicies:
    def test_names_and_defaults(self) -> None:
        assert [each.value for each in Policy] == ["strict", "family_aware", "flexible", "unlocked"]
        made = collection()
        assert (made.policy, made.version, made.transformations) == (Policy.FAMILY_AWARE, "1.5.0", [])
        again = Metadata.from_collection({"metadata": made.to_collection()})
        assert again == made

    def test_strict(self) -> None:
        made = collection(policy=Policy.STRICT, collection_name="c")
        made.validate_config_change()
        made.validate_config_change(new_dense_model="voyage-4-large", new_provider="qdrant")
        for name in ("dense_model", "query_model", "sparse_model", "provider"):
            with pytest.raises(errors.ConfigurationLockError, match="STRICT") as caught:
                made.validate_config_change(**{f"new_{name}": "voyage-4-nano"})
            assert caught.value.details["policy"] == "strict" and caught.value.suggestions
            assert caught.value.details[f"proposed_{name}"] == "voyage-4-nano"
        assert isinstance(caught.value, errors.ConfigurationError | Refused)

    def test_family_aware(self) -> None:
        made = collection()
        made.validate_config_change(new_query_model="voyage-4-nano")
        for change in (
            {"new_query_model": "voyage-3"},
            {"new_query_model": "text-embedding-3-small"},
            {"new_dense_model": "voyage-4"},
            {"new_sparse_model": "bm25"},
            {"new_provider": "chroma"},
        ):
            with pytest.raises(errors.ConfigurationLockError, match="family"):
                made.validate_config_change(**change)
        teacher, student = "Snowflake/snowflake-arctic-embed-m-v1.5", "MongoDB/mdbr-leaf-ir"  # one direction only
        collection(dense_model=teacher, dense_model_family="leaf-ir").validate_config_change(new_query_model=student)
        with pytest.raises(errors.ConfigurationLockError):
            collection(dense_model=student, dense_model_family="leaf-ir").validate_config_change(
                new_query_model=teacher
            )
        without = collection(dense_model_family=None)
        without.validate_config_change(new_query_model="voyage-4-large", new_provider="chroma")
        with pytest.raises(errors.ConfigurationLockError):
            without.validate_config_change(new_query_model="voyage-4-nano")

    def test_flexible_warns_and_unlocked_does_not(self, recwarn: pytest.WarningsRecorder) -> None:
        collection(policy=Policy.UNLOCKED).validate_config_change(new_dense_model="voyage-3")
        collection(policy="flexible").validate_config_change(new_query_model="voyage-4-nano")
        assert not recwarn.list
        with pytest.warns(UserWarning, match="cannot be compared"):
            collection(policy=Policy.FLEXIBLE).validate_config_change(new_dense_model="voyage-3")

    @pytest.mark.parametrize("policy", ["strict", "family_aware"])
    def test_policy_comes_before_the_comparison(self, index: Index, policy: str) -> None:
        index.store.collection_info.return_value = collection(policy=policy, dense_model="voyage-4")
        found = index.change(provider())  # equal to the fingerprint
        assert (found.impact, found.migration_strategy) == (Impact.BREAKING, "full_reindex")
        assert policy in found.accuracy_impact and policy in found.recommendations[0]
        index.store.collection_info.return_value = collection(policy=policy)
        assert index.change(provider()).impact == Impact.NONE


@pytest.mark.parametrize(
    ("queries", "error"),
    [
        (provider(dimension=1024), "DimensionMismatchError"),
        (provider("other", datatype="float16"), "DatatypeMismatchError"),
        (provider("other"), "ConfigurationError"),
    ],
)
def test_vectors_that_cannot_be_compared_are_refused(queries: Any, error: str) -> None:
    with pytest.raises(getattr(errors, error)):
        Asymmetric(provider("plain", datatype="float32") if error.startswith("Data") else provider(), queries)
    Asymmetric(provider(), queries, validate_family_compatibility=False)
    Asymmetric(provider(), provider("voyage-4-nano", datatype="float16"))  # voyage-4 may mix datatypes
