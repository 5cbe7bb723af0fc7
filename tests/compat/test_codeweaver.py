"""`codeweaver.engine.managers.checkpoint_manager`: checkpoint and resume for an indexing pipeline."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.indexing import (
    ChangeImpact,
    CheckpointManager,
    CheckpointSettingsFingerprint,
    CheckpointSettingsMap,
    IndexingCheckpoint,
    get_checkpoint_settings_map,
)

pytestmark = pytest.mark.usefixtures("own_stores")

SYMMETRIC = CheckpointSettingsFingerprint(
    embedding_config_type="symmetric",
    embed_model="voyage-4",
    embed_model_family="voyage-4",
    query_model=None,
    sparse_model="bm25",
    vector_store="qdrant",
    config_hash="h",
)
ASYMMETRIC = replace(
    SYMMETRIC, embedding_config_type="asymmetric", embed_model="voyage-4-large", query_model="voyage-4-nano"
)
SETTINGS = get_checkpoint_settings_map("/project", "project", embedding_provider=("voyage", {"model": "voyage-4"}))


def test_impacts_are_classes_of_increasing_severity() -> None:
    said = [ChangeImpact.NONE, ChangeImpact.COMPATIBLE, ChangeImpact.QUANTIZABLE, ChangeImpact.TRANSFORMABLE]
    ranks = [impact.rank for impact in (*said, ChangeImpact.BREAKING)]
    assert ranks == sorted(set(ranks))


def test_a_fingerprint_has_the_documented_attributes() -> None:
    assert [field.name for field in fields(CheckpointSettingsFingerprint)][:7] == [
        "embedding_config_type",
        "embed_model",
        "embed_model_family",
        "query_model",
        "sparse_model",
        "vector_store",
        "config_hash",
    ]


@pytest.mark.parametrize(
    ("new", "old", "answer"),
    [
        (SYMMETRIC, SYMMETRIC, (True, ChangeImpact.NONE)),
        (ASYMMETRIC, ASYMMETRIC, (True, ChangeImpact.NONE)),
        (replace(ASYMMETRIC, query_model="voyage-4-lite"), ASYMMETRIC, (True, ChangeImpact.COMPATIBLE)),
        (replace(ASYMMETRIC, embed_model="voyage-4"), ASYMMETRIC, (False, ChangeImpact.BREAKING)),
        (replace(ASYMMETRIC, embed_model_family="other"), ASYMMETRIC, (False, ChangeImpact.BREAKING)),
        (replace(SYMMETRIC, embed_model="other"), SYMMETRIC, (False, ChangeImpact.BREAKING)),
        (replace(SYMMETRIC, sparse_model="splade"), SYMMETRIC, (False, ChangeImpact.BREAKING)),
        (replace(SYMMETRIC, vector_store="chroma"), SYMMETRIC, (False, ChangeImpact.MIGRATABLE)),
    ],
    ids=["same", "same asymmetric", "query model", "embed model", "family", "symmetric model", "sparse", "store"],
)
def test_is_compatible_with(
    new: CheckpointSettingsFingerprint, old: CheckpointSettingsFingerprint, answer: tuple[bool, ChangeImpact]
) -> None:
    assert new.is_compatible_with(old) == answer


def test_the_settings_that_are_hashed() -> None:
    assert set(SETTINGS) == set(CheckpointSettingsMap.__annotations__)


def test_a_checkpoint_knows_whether_its_settings_are_still_those() -> None:
    made = IndexingCheckpoint(settings=SETTINGS)
    other = get_checkpoint_settings_map("/project", "project", embedding_provider=("openai", {}))
    assert made.current_settings_hash() == made.settings_hash
    assert made.matches_settings(SETTINGS) and not made.matches_settings(other)
    assert not made.is_stale(settings=SETTINGS)
    assert made.is_stale(settings=other)
    assert made.is_stale(24, settings=SETTINGS, now=datetime.now(UTC) + timedelta(hours=25))


def test_a_manager_saves_loads_judges_and_deletes(tmp_path: Path) -> None:
    async def use() -> None:
        manager = CheckpointManager(tmp_path / "project", "project", tmp_path / "checkpoints")
        assert await manager.load() is None
        told = {field.name: getattr(SYMMETRIC, field.name) for field in fields(SYMMETRIC)}
        await manager.save(IndexingCheckpoint(settings=SETTINGS, fingerprint=told, files_indexed=3))
        loaded = await manager.load()
        assert loaded is not None and loaded.files_indexed == 3 and loaded.matches_settings(SETTINGS)
        assert manager.is_index_valid_for_config(loaded, SYMMETRIC) == (True, ChangeImpact.NONE)
        changed = replace(SYMMETRIC, embed_model="other")
        assert manager.is_index_valid_for_config(loaded, changed) == (False, ChangeImpact.BREAKING)
        await manager.delete()
        await manager.delete()  # nothing to delete is no error
        assert await manager.load() is None

    asyncio.run(use())
