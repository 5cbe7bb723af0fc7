"""`codeweaver.engine.managers.checkpoint_manager`, its API reference: every class, method and sentence of it."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.digest import digest
from holdfast.errors import Damaged, Refused
from holdfast.indexing import (
    ChangeImpact,
    CheckpointManager,
    CheckpointSettingsFingerprint,
    CheckpointSettingsMap,
    IndexingCheckpoint,
    get_checkpoint_settings_map,
)

ASYMMETRIC = CheckpointSettingsFingerprint(
    embedding_config_type="asymmetric",
    embed_model="voyage-4-large",
    embed_model_family="voyage-4",
    query_model="voyage-4-lite",
    sparse_model="bm25",
    vector_store="qdrant",
    config_hash="h",
)
SYMMETRIC = replace(ASYMMETRIC, embedding_config_type="symmetric", query_model=None)
SETTINGS = get_checkpoint_settings_map(
    "/project",
    "project",
    indexer={"chunk_size": 800},
    embedding_provider=("voyage", {"model": "voyage-4-large"}),
    sparse_provider=("fastembed", {"model": "bm25"}),
    vector_store=("qdrant",),
)


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(tmp_path / "project", "project", tmp_path / "checkpoints")


def saved(manager: CheckpointManager, **more: Any) -> IndexingCheckpoint:
    """A checkpoint after it was saved and loaded by another manager."""
    given = {"settings": SETTINGS, "fingerprint": _values(SYMMETRIC)} | more
    asyncio.run(manager.save(IndexingCheckpoint(**given)))
    other = CheckpointManager(manager.project_path, manager.project_name, manager.checkpoint_dir)
    loaded = asyncio.run(other.load())
    assert loaded is not None
    return loaded


def _values(fingerprint: CheckpointSettingsFingerprint) -> dict[str, Any]:
    return {field.name: getattr(fingerprint, field.name) for field in fields(fingerprint)}


class TestModule:
    """Checkpoint and resume functionality for indexing pipeline."""

    @pytest.mark.parametrize(
        "name",
        [
            "ChangeImpact",
            "CheckpointManager",
            "CheckpointSettingsFingerprint",
            "CheckpointSettingsMap",
            "IndexingCheckpoint",
            "get_checkpoint_settings_map",
        ],
    )
    def test_names(self, name: str, old: Callable[[str], Any]) -> None:
        module = old("codeweaver.engine.managers.checkpoint_manager")
        assert name in module.__all__ and inspect.isclass(getattr(module, name)) is (name != module.__all__[-1])

    def test_state_is_persisted_to_enable_resumption_after_interruption(self, tmp_path: Path) -> None:
        """Saved by a process that is killed, resumed by another."""
        script = (
            "import asyncio, os, sys; from holdfast.indexing import *\n"
            "m = CheckpointManager(sys.argv[1], 'p', sys.argv[2])\n"
            "asyncio.run(m.save(IndexingCheckpoint(files_discovered=9, files_indexed=4, batch_ids_completed=['b1'])))\n"
            "os.kill(os.getpid(), 9)\n"
        )
        ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "p"), str(tmp_path / "c")], check=False)
        found = asyncio.run(CheckpointManager(tmp_path / "p", "p", tmp_path / "c").load())
        assert ended.returncode == -9 and found is not None
        assert (found.files_discovered, found.files_indexed, found.batch_ids_completed) == (9, 4, ["b1"])


class TestChangeImpact:
    """Classification of configuration change impact on index validity."""

    def test_each_level_is_more_severe_than_the_one_before(self) -> None:
        named = ["NONE", "COMPATIBLE", "QUANTIZABLE", "TRANSFORMABLE", "BREAKING"]
        levels = [ChangeImpact[name] for name in named]
        assert levels == sorted(levels) and len(set(levels)) == 5

    def test_they_define_whether_reindexing_is_needed(self) -> None:
        assert [impact for impact in ChangeImpact if impact.usable] == [
            ChangeImpact.NONE,
            ChangeImpact.COMPATIBLE,
            ChangeImpact.EQUIVALENT,
        ]


class TestCheckpointManager:
    """Manages checkpoint save/load operations for indexing pipeline."""

    def test_constructor(self, tmp_path: Path) -> None:
        made = CheckpointManager(project_path=tmp_path, project_name="p", checkpoint_dir=tmp_path / "c")
        assert (made.project_path, made.project_name, made.checkpoint_dir) == (tmp_path, "p", tmp_path / "c")

    def test_pure_state_management_without_default_configuration(self, tmp_path: Path) -> None:
        """Nothing is read from a configuration: what is not given is not there."""
        (tmp_path / "work" / "holdfast.toml").write_text("[index]\n")
        made = IndexingCheckpoint()
        assert (made.settings, made.settings_hash, made.fingerprint) == (None, None, None)
        assert get_checkpoint_settings_map() == {
            "indexer": {},
            "project_path": None,
            "project_name": None,
            "embedding_provider": None,
            "sparse_provider": None,
            "vector_store": None,
        }

    def test_save(self, manager: CheckpointManager) -> None:
        """Save checkpoint to disk."""
        before = datetime.now(UTC)
        asyncio.run(manager.save(IndexingCheckpoint(files_indexed=3)))
        stored = json.loads(manager.checkpoint_path.read_text())
        assert stored["files_indexed"] == 3
        assert before <= datetime.fromisoformat(stored["last_checkpoint"]) <= datetime.now(UTC)

    def test_load(self, manager: CheckpointManager) -> None:
        """Load checkpoint from disk if available."""
        assert asyncio.run(manager.load()) is None
        assert saved(manager, files_indexed=3).files_indexed == 3

    def test_load_of_a_damaged_one_is_an_error(self, manager: CheckpointManager) -> None:
        """Not in the document, and on purpose: see docs/migrating.md."""
        saved(manager)
        manager.checkpoint_path.write_text("{")
        with pytest.raises(Damaged):
            asyncio.run(manager.load())

    def test_delete(self, manager: CheckpointManager) -> None:
        """Delete checkpoint file."""
        saved(manager)
        asyncio.run(manager.delete())
        assert asyncio.run(manager.load()) is None and not manager.checkpoint_path.exists()
        asyncio.run(manager.delete())

    def test_is_index_valid_for_config_takes_checkpoint_and_new_config(self) -> None:
        taken = list(inspect.signature(CheckpointManager.is_index_valid_for_config).parameters)
        assert taken == ["self", "checkpoint", "new_config"]

    def test_it_returns_is_valid_and_impact(self, manager: CheckpointManager) -> None:
        is_valid, impact = manager.is_index_valid_for_config(saved(manager), SYMMETRIC)
        assert (is_valid, impact) == (True, ChangeImpact.NONE)

    def test_valid_means_that_the_checkpoint_can_be_reused(self, manager: CheckpointManager) -> None:
        made = saved(manager, fingerprint=_values(ASYMMETRIC), settings=None)
        assert manager.is_index_valid_for_config(made, replace(ASYMMETRIC, query_model="voyage-4-nano")) == (
            True,
            ChangeImpact.COMPATIBLE,
        )
        assert manager.is_index_valid_for_config(made, replace(ASYMMETRIC, embed_model="other")) == (
            False,
            ChangeImpact.BREAKING,
        )

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("embedding_provider", ("openai", {"model": "voyage-4-large"})),
            ("embedding_provider", ("voyage", {"model": "other"})),
            ("embedding_provider", ("voyage", {"model": "voyage-4-large", "dimension": 256})),
            ("sparse_provider", None),
            ("vector_store", ("chroma",)),
            ("indexer", {"chunk_size": 400}),
        ],
    )
    def test_it_bridges_fingerprint_and_matches_settings(
        self, manager: CheckpointManager, setting: str, value: Any
    ) -> None:
        """Both say the same: what does not match is not `NONE`."""
        made, new = saved(manager), {**SETTINGS, setting: value}
        assert not made.matches_settings(new) and made.is_stale(settings=new)
        for config in (new, {**_values(SYMMETRIC), "settings": new}):
            is_valid, impact = manager.is_index_valid_for_config(made, config)
            assert not is_valid and impact is not ChangeImpact.NONE

    def test_it_uses_what_the_checkpoint_contains(self, manager: CheckpointManager) -> None:
        made = saved(manager, fingerprint=_values(replace(SYMMETRIC, embed_model="old")))
        assert manager.is_index_valid_for_config(made, SYMMETRIC) == (False, ChangeImpact.BREAKING)

    def test_validation_of_settings_alone_stays(self, manager: CheckpointManager) -> None:
        """Backward compatibility with existing checkpoint validation logic."""
        made = saved(manager, fingerprint=None)
        assert manager.is_index_valid_for_config(made, SETTINGS) == (True, ChangeImpact.NONE)


class TestFingerprint:
    """Family-aware configuration fingerprint for checkpoint compatibility checking."""

    def test_it_is_a_dataclass(self) -> None:
        assert is_dataclass(CheckpointSettingsFingerprint)

    @pytest.mark.parametrize(
        "attribute",
        [
            "embedding_config_type",
            "embed_model",
            "embed_model_family",
            "query_model",
            "sparse_model",
            "vector_store",
            "config_hash",
        ],
    )
    def test_attributes(self, attribute: str) -> None:
        assert getattr(ASYMMETRIC, attribute) == _values(ASYMMETRIC)[attribute]

    def test_config_type_is_symmetric_or_asymmetric(self) -> None:
        hints = typing.get_type_hints(CheckpointSettingsFingerprint)
        assert typing.get_args(hints["embedding_config_type"]) == ("symmetric", "asymmetric")

    @pytest.mark.parametrize("optional", ["embed_model_family", "query_model", "sparse_model"])
    def test_optional_attributes(self, optional: str) -> None:
        assert getattr(replace(SYMMETRIC, **{optional: None}), optional) is None

    @pytest.mark.parametrize("missing", [None, ""])
    def test_query_model_is_required_for_asymmetric_configs(
        self, missing: str | None, manager: CheckpointManager, old: Callable[[str], Any]
    ) -> None:
        values = {**_values(ASYMMETRIC), "query_model": missing}
        old_class = old("codeweaver.engine.managers.checkpoint_manager").CheckpointSettingsFingerprint
        for cls in (CheckpointSettingsFingerprint, old_class):
            with pytest.raises(Refused, match="query_model"):
                cls(**values)
        with pytest.raises(Refused, match="query_model"):
            manager.is_index_valid_for_config(saved(manager), values)

    def test_a_stored_one_without_query_model_can_be_compared(self, manager: CheckpointManager) -> None:
        """Written before it was required: documents and queries were embedded with the same model."""
        made = saved(manager, settings=None, fingerprint={**_values(ASYMMETRIC), "query_model": None})
        same = replace(ASYMMETRIC, query_model=ASYMMETRIC.embed_model)
        assert manager.is_index_valid_for_config(made, same) == (True, ChangeImpact.NONE)
        assert manager.is_index_valid_for_config(made, ASYMMETRIC) == (True, ChangeImpact.COMPATIBLE)

    def test_config_hash_is_of_the_full_configuration(self, manager: CheckpointManager) -> None:
        """For validation: equal fields do not prove an index valid if the hash of the whole differs."""
        made = saved(manager, settings=None)
        assert manager.is_index_valid_for_config(made, replace(SYMMETRIC)) == (True, ChangeImpact.NONE)
        changed = replace(SYMMETRIC, config_hash="of another configuration")
        assert manager.is_index_valid_for_config(made, changed) == (False, ChangeImpact.UNPROVEN)
        assert changed.is_compatible_with(SYMMETRIC) == (True, ChangeImpact.NONE)

    def test_config_hash_may_be_that_of_the_settings(self, manager: CheckpointManager) -> None:
        made = saved(manager)
        new = replace(SYMMETRIC, config_hash=made.settings_hash or "")
        assert manager.is_index_valid_for_config(made, new) == (True, ChangeImpact.NONE)

    @pytest.mark.parametrize("kind", ["Symmetric", "both", None])
    def test_another_config_type_is_refused(self, kind: Any) -> None:
        with pytest.raises(Refused, match="embedding_config_type"):
            replace(SYMMETRIC, embedding_config_type=kind)

    def test_query_model_may_change_within_its_family(self) -> None:
        """Asymmetric: same family + same embed model + different query model = COMPATIBLE."""
        new = replace(ASYMMETRIC, query_model="voyage-4-nano")
        assert new.is_compatible_with(ASYMMETRIC) == (True, ChangeImpact.COMPATIBLE)

    @pytest.mark.parametrize("change", [{"embed_model_family": "other"}, {"embed_model": "voyage-4"}])
    def test_asymmetric_other_family_or_embed_model_is_breaking(self, change: dict[str, str]) -> None:
        assert replace(ASYMMETRIC, **change).is_compatible_with(ASYMMETRIC) == (False, ChangeImpact.BREAKING)

    def test_symmetric_other_model_is_breaking(self) -> None:
        new = replace(SYMMETRIC, embed_model="voyage-4")
        assert new.is_compatible_with(SYMMETRIC) == (False, ChangeImpact.BREAKING)

    def test_symmetric_same_is_none(self) -> None:
        assert replace(SYMMETRIC).is_compatible_with(SYMMETRIC) == (True, ChangeImpact.NONE)

    def test_sparse_model_changes(self) -> None:
        for other in ("splade", None):
            new = replace(SYMMETRIC, sparse_model=other)
            assert new.is_compatible_with(SYMMETRIC) == (False, ChangeImpact.BREAKING)

    def test_vector_store_changes(self) -> None:
        """ "We can migrate vector stores without reindexing if needed"."""
        new = replace(SYMMETRIC, vector_store="chroma")
        assert new.is_compatible_with(SYMMETRIC) == (False, ChangeImpact.MIGRATABLE)

    def test_vector_store_changes_under_the_old_name(self, old: Callable[[str], Any]) -> None:
        made = old("codeweaver.engine.managers.checkpoint_manager").CheckpointSettingsFingerprint(**_values(SYMMETRIC))
        assert replace(made, vector_store="chroma").is_compatible_with(made) == (False, ChangeImpact.BREAKING)

    def test_is_compatible_with_takes_other(self) -> None:
        assert list(inspect.signature(SYMMETRIC.is_compatible_with).parameters) == ["other"]


class TestSettingsMap:
    """Subset of settings relevant for checkpoint hashing."""

    def test_it_is_a_mapping_distinct_from_the_fingerprint(self) -> None:
        assert typing.is_typeddict(CheckpointSettingsMap)
        assert set(CheckpointSettingsMap.__annotations__) == {
            "indexer",
            "project_path",
            "project_name",
            "embedding_provider",
            "sparse_provider",
            "vector_store",
        }

    def test_it_is_complete_for_the_hash(self) -> None:
        made = IndexingCheckpoint(settings=SETTINGS)
        for key in CheckpointSettingsMap.__annotations__:
            assert not made.matches_settings({**SETTINGS, key: "other"})  # type: ignore[misc]

    def test_get_checkpoint_settings_map(self) -> None:
        """Get relevant settings for checkpoint hashing."""
        assert SETTINGS["embedding_provider"] == ("voyage", {"model": "voyage-4-large"})
        assert (SETTINGS["project_path"], SETTINGS["project_name"]) == ("/project", "project")

    def test_secrets_are_not_relevant(self) -> None:
        made = get_checkpoint_settings_map(embedding_provider=("voyage", {"api_key": "s3cret"}))
        assert "s3cret" not in repr(made)


class TestIndexingCheckpoint:
    """Persistent checkpoint for indexing pipeline state."""

    def test_current_settings_hash_is_blake3(self) -> None:
        """Compute Blake3 hash of current settings."""
        made = IndexingCheckpoint(settings=SETTINGS)
        assert made.current_settings_hash().startswith("b3:") and len(made.current_settings_hash()) == len(digest("x"))
        assert made.current_settings_hash({**SETTINGS, "project_name": "x"}) != made.current_settings_hash()

    def test_the_hash_is_the_same_in_every_process(self) -> None:
        script = (
            "from holdfast.indexing import *; print(IndexingCheckpoint(settings=get_checkpoint_settings_map('/p', 'p',"
            " indexer={'exclude': frozenset(['a', 'b', 'c', 'd'])})).settings_hash)"
        )
        found = {
            subprocess.run(
                [sys.executable, "-c", script], capture_output=True, check=True, env={"PYTHONHASHSEED": seed}
            ).stdout
            for seed in ("1", "2", "3")
        }
        assert len(found) == 1

    def test_matches_settings(self, manager: CheckpointManager) -> None:
        """Check if checkpoint settings match current configuration."""
        made = saved(manager)
        assert made.matches_settings() and made.matches_settings(SETTINGS)
        assert not made.matches_settings({**SETTINGS, "vector_store": ("chroma",)})

    @pytest.mark.parametrize("value", [{"a", "b"}, frozenset({"a"}), ("a", "b"), Path("/a/b")], ids=type)
    def test_settings_of_any_plain_type_match_after_loading(self, manager: CheckpointManager, value: Any) -> None:
        given = get_checkpoint_settings_map("/p", "p", indexer={"exclude": value})
        made = saved(manager, settings=given)
        assert made.matches_settings(given) and not made.is_stale(settings=given)

    def test_is_stale_when_too_old(self) -> None:
        """Check if checkpoint is too old …"""
        made, now = IndexingCheckpoint(), datetime.now(UTC)
        assert not made.is_stale(now=now + timedelta(hours=23)) and made.is_stale(now=now + timedelta(hours=25))
        assert made.is_stale(1, now=now + timedelta(hours=2))
        assert inspect.signature(IndexingCheckpoint.is_stale).parameters["max_age_hours"].default == 24

    def test_is_stale_when_settings_mismatch(self) -> None:
        """… or settings mismatch."""
        made = IndexingCheckpoint(settings=SETTINGS)
        assert not made.is_stale(settings=SETTINGS) and made.is_stale(settings={**SETTINGS, "project_name": "x"})
