"""`holdfast.compat.codeweaver`: the names and files of CodeWeaver's checkpoint manager, without its defects."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from holdfast.errors import Damaged, NotFound, Unavailable

from .names import names_of

MODULE = "holdfast.compat.codeweaver.engine.managers.checkpoint_manager"
old = names_of("codeweaver.engine.managers.checkpoint_manager")
core = names_of("codeweaver.core")
base = names_of("codeweaver.providers.embedding.capabilities.base")
Asymmetric = names_of("codeweaver.providers.config.categories").AsymmetricEmbeddingProviderSettings
ProviderSettings = names_of("codeweaver.providers.config.providers").ProviderSettings
Impact = old.ChangeImpact

SYMMETRIC = old.CheckpointSettingsFingerprint(
    embedding_config_type="symmetric", embed_model="voyage-3", embed_model_family="voyage-3", query_model=None,
    sparse_model=None, vector_store="qdrant", config_hash="abc",
)  # fmt: skip
ASYMMETRIC = replace(SYMMETRIC, embedding_config_type="asymmetric", query_model="voyage-3")
FAMILY = base.ModelFamily(
    family_id="voyage-3", default_dimension=1024, member_models=frozenset({"voyage-3", "voyage-3-lite"}),
    asymmetric_query_models=frozenset({"voyage-3-lite"}), output_dimensions=(512, 1024), is_normalized=True,
    cross_provider_compatible=True, default_dtype="float16", preferred_metrics=("cosine", "dot"),
)  # fmt: skip


def run(awaitable: Any) -> Any:
    return asyncio.run(awaitable)


@pytest.fixture
def manager(tmp_path: Path) -> Any:
    return old.CheckpointManager(
        project_path=Path("/test/project"), project_name="test_project", checkpoint_dir=tmp_path / "checkpoints"
    )


def embedding(model: str, family: Any = FAMILY) -> MagicMock:
    made = MagicMock()
    made.model_name = model
    made.embedding_config.capabilities = base.EmbeddingModelCapabilities(
        model_name=model, model_family=family, default_dimension=1024
    )
    return made


def asymmetric(documents: str, queries: str) -> MagicMock:
    made = MagicMock(spec=Asymmetric)
    made.embed_provider, made.query_provider = embedding(documents), MagicMock()
    made.query_provider.model_name = queries
    return made


def settings_with(first: Any, sparse: Any = None, store: str = "qdrant") -> MagicMock:
    made = MagicMock()
    made.provider = ProviderSettings.model_construct(
        embedding=(first,), sparse_embedding=sparse, vector_store=(MagicMock(provider=store),)
    )
    return made


class Codeweaver:
    """The settings of a CodeWeaver that the program uses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current: Any = None
        module = ModuleType("codeweaver.core")
        module.get_settings = lambda: self.current  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "codeweaver.core", module)

    def use(self, *, model: str = "voyage-3", store: str = "qdrant", **indexer: Any) -> None:
        config = SimpleNamespace(capabilities=SimpleNamespace(model_family=SimpleNamespace(family_id="voyage-3")))
        provider = SimpleNamespace(
            embedding=(SimpleNamespace(model_name=model, embedding_config=config),),
            sparse_embedding=None,
            vector_store=(SimpleNamespace(provider=store),),
        )
        self.current = SimpleNamespace(indexer=SimpleNamespace(**indexer), provider=provider)


@pytest.fixture
def codeweaver(monkeypatch: pytest.MonkeyPatch) -> Codeweaver:
    return Codeweaver(monkeypatch)


class TestNames:
    def test_all(self) -> None:
        assert {
            "EXCEPTION_PATTERN", "ChangeImpact", "CheckpointManager", "CheckpointSettingsFingerprint",
            "CheckpointSettingsMap", "IndexingCheckpoint", "get_checkpoint_settings_map",
        } <= set(old.__all__)  # fmt: skip

    def test_the_package_has_the_names_too(self) -> None:
        package = names_of("codeweaver.engine.managers")
        assert all(getattr(package, name) is getattr(old, name) for name in old.__all__)

    def test_impacts(self) -> None:
        said = [Impact(value) for value in ("none", "compatible", "quantizable", "transformable", "breaking")]
        assert said == sorted(said)

    def test_fingerprint_fields(self) -> None:
        assert [each.name for each in fields(old.CheckpointSettingsFingerprint)] == [
            "embedding_config_type", "embed_model", "embed_model_family", "query_model", "sparse_model",
            "vector_store", "config_hash", "dimension", "datatype",
        ]  # fmt: skip
        with pytest.raises(FrozenInstanceError):
            SYMMETRIC.embed_model = "x"

    def test_settings_map(self) -> None:
        assert list(inspect.signature(old.get_checkpoint_settings_map).parameters)[:2] == [
            "project_path",
            "project_name",
        ]
        assert set(old.get_checkpoint_settings_map()) == {
            "indexer", "project_path", "project_name", "embedding_provider", "sparse_provider", "vector_store",
        }  # fmt: skip

    def test_exception_pattern_finds_whole_names(self) -> None:
        """CodeWeaver's finds the last part only."""
        assert old.EXCEPTION_PATTERN.findall("a ValueError, then DiskFault: no") == ["ValueError", "DiskFault"]

    def test_checkpoint_defaults(self) -> None:
        made = old.IndexingCheckpoint()
        assert made.session_id.version == 7 and made.project_path is None and made.current_batch_id is None
        assert (made.files_discovered, made.files_embedding_complete, made.files_indexed) == (0, 0, 0)
        assert (made.chunks_created, made.chunks_embedded, made.chunks_indexed) == (0, 0, 0)
        assert (made.files_with_errors, made.batch_ids_completed, made.errors) == ([], [], [])
        assert made.start_time.tzinfo is UTC and made.settings_hash

    def test_each_checkpoint_has_its_own_session(self) -> None:
        """CodeWeaver's default is made once a process."""
        assert old.IndexingCheckpoint().session_id != old.IndexingCheckpoint().session_id

    def test_model_family(self) -> None:
        assert FAMILY.is_compatible("voyage-3", "voyage-3-lite") and not FAMILY.is_compatible("voyage-3", "x")
        assert FAMILY.validate_dimensions(512, 512) == (True, None)
        assert FAMILY.validate_dimensions(512, 1024)[0] is False and FAMILY.validate_dimensions(7, 7)[0] is False


@pytest.mark.parametrize(
    ("new", "before", "answer"),
    [
        (SYMMETRIC, SYMMETRIC, (True, Impact.NONE)),
        (replace(SYMMETRIC, embed_model="voyage-4", embed_model_family="x"), SYMMETRIC, (False, Impact.BREAKING)),
        (replace(ASYMMETRIC, query_model="voyage-3-lite"), ASYMMETRIC, (True, Impact.COMPATIBLE)),
        (replace(ASYMMETRIC, embed_model="voyage-3-lite"), ASYMMETRIC, (False, Impact.BREAKING)),
        (replace(ASYMMETRIC, embed_model="v2", embed_model_family="v2"), ASYMMETRIC, (False, Impact.BREAKING)),
        (
            replace(ASYMMETRIC, embed_model_family=None, query_model="voyage-3-lite"),
            replace(ASYMMETRIC, embed_model_family=None),
            (False, Impact.BREAKING),
        ),
        (replace(SYMMETRIC, sparse_model="splade"), replace(SYMMETRIC, sparse_model="bm25"), (False, Impact.BREAKING)),
        (replace(SYMMETRIC, sparse_model="bm25"), SYMMETRIC, (False, Impact.BREAKING)),
        (replace(SYMMETRIC, vector_store="inmemory"), SYMMETRIC, (False, Impact.BREAKING)),
        (replace(SYMMETRIC, embed_model="", embed_model_family=None),) * 2 + ((True, Impact.NONE),),
        # CodeWeaver never looks at these, or answers NONE and BREAKING the wrong way round
        (replace(SYMMETRIC, dimension=512), replace(SYMMETRIC, dimension=1024), (False, Impact.TRANSFORMABLE)),
        (replace(SYMMETRIC, dimension=2048), replace(SYMMETRIC, dimension=1024), (False, Impact.BREAKING)),
        (replace(SYMMETRIC, datatype="float16"), replace(SYMMETRIC, datatype="float32"), (False, Impact.QUANTIZABLE)),
        (replace(SYMMETRIC, datatype="float32"), replace(SYMMETRIC, datatype="float16"), (False, Impact.BREAKING)),
        (SYMMETRIC, replace(ASYMMETRIC, query_model="voyage-3-lite"), (True, Impact.COMPATIBLE)),
        (replace(ASYMMETRIC, embed_model_family=None),) * 2 + ((True, Impact.NONE),),
    ],
)
def test_compatibility(new: Any, before: Any, answer: Any) -> None:
    assert new.is_compatible_with(before) == answer


class TestFiles:
    def test_round_trip(self, manager: Any) -> None:
        made = old.IndexingCheckpoint(
            project_path=Path("/test/project"), files_discovered=10, files_indexed=5,
            settings_hash=core.get_blake_hash(b"test"), errors=[{"file": "a.py", "error": "ValueError"}],
        )  # fmt: skip
        assert run(manager.save(made)) is None
        loaded = run(manager.load())
        assert type(loaded) is old.IndexingCheckpoint and loaded == made
        assert loaded.settings_hash == core.get_blake_hash("test") and len(loaded.settings_hash) == 64

    def test_save_stamps_the_time_of_the_checkpoint(self, manager: Any) -> None:
        made = old.IndexingCheckpoint(last_checkpoint=datetime(2020, 1, 1, tzinfo=UTC))
        run(manager.save(made))
        assert datetime.now(UTC) - made.last_checkpoint < timedelta(minutes=1)

    def test_file_name(self, manager: Any, tmp_path: Path) -> None:
        mark = core.get_blake_hash(str(Path("/test/project")))[:8]
        expected = (tmp_path / "checkpoints").resolve() / f"checkpoint_test_project-{mark}.json"
        assert manager.checkpoint_file == manager.checkpoint_path == expected
        run(manager.save(old.IndexingCheckpoint(files_indexed=3)))
        assert json.loads(expected.read_text())["files_indexed"] == 3

    def test_project_name_stays_in_the_folder(self, tmp_path: Path) -> None:
        """CodeWeaver puts the name into the path as it is."""
        manager = old.CheckpointManager(Path("/p"), "../../out", tmp_path / "checkpoints")
        run(manager.save(old.IndexingCheckpoint()))
        assert manager.checkpoint_file.parent == (tmp_path / "checkpoints").resolve()
        assert {path.name for path in tmp_path.iterdir()} == {"checkpoints"}

    def test_a_checkpoint_of_codeweaver_is_loaded(self, manager: Any) -> None:
        manager.checkpoint_dir.mkdir()
        stored = {
            "session_id": "01890a5d-ac96-774b-bcce-b302099a8057", "project_path": "/test/project",
            "start_time": "2026-01-01T00:00:00Z", "last_checkpoint": "2026-01-01T00:05:00Z", "files_discovered": 9,
            "files_embedding_complete": 3, "files_indexed": 3, "files_with_errors": [], "chunks_created": 4,
            "chunks_embedded": 4, "chunks_indexed": 4, "batch_ids_completed": [], "current_batch_id": None,
            "errors": [], "settings_hash": "ab" * 32,
        }  # fmt: skip
        manager.checkpoint_file.write_text(json.dumps(stored))
        loaded = run(manager.load())
        assert (loaded.files_discovered, loaded.settings_hash) == (9, "ab" * 32) and loaded.is_stale()

    def test_nothing_saved_is_none_and_delete_can_be_repeated(self, manager: Any) -> None:
        assert run(manager.load()) is None
        run(manager.save(old.IndexingCheckpoint()))
        run(manager.delete())
        run(manager.delete())
        assert run(manager.load()) is None and not manager.checkpoint_file.exists()

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"files_indexed": 3}', b"\xff"])
    def test_a_damaged_file_is_an_error(self, manager: Any, text: bytes) -> None:
        """CodeWeaver answers None, and indexing begins again."""
        manager.checkpoint_dir.mkdir()
        manager.checkpoint_file.write_bytes(text)
        with pytest.raises(Damaged):
            run(manager.load())

    def test_a_failed_save_is_an_error(self, manager: Any) -> None:
        """CodeWeaver logs it and goes on."""
        manager.checkpoint_dir.parent.joinpath("checkpoints").write_text("a file")
        with pytest.raises(Unavailable):
            run(manager.save(old.IndexingCheckpoint()))

    def test_earlier_checkpoints_stay(self, manager: Any) -> None:
        """CodeWeaver overwrites its only copy in place."""
        for count in range(3):
            run(manager.save(old.IndexingCheckpoint(files_indexed=count)))
        assert [each.files_indexed for each in run(manager.history())] == [2, 1, 0]

    def test_json(self) -> None:
        made = old.IndexingCheckpoint(files_indexed=2)
        assert old.IndexingCheckpoint.model_validate_json(made.model_dump_json(indent=2)) == made
        assert old.IndexingCheckpoint.model_validate(made.model_dump()) == made


class TestSettings:
    def test_hash_is_the_same_in_every_process(self) -> None:
        """CodeWeaver hashes sets in their order of the moment, so that a restart makes every checkpoint stale."""
        script = (
            f"import warnings; warnings.simplefilter('ignore'); from {MODULE} import *;"
            "from holdfast.indexing.checkpoint import settings_hash;"
            "m = get_checkpoint_settings_map('/p', 'n', indexer={'excludes': frozenset('abcdefgh')});"
            "print(settings_hash(m))"
        )
        found = {
            subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True,
                env=os.environ | {"PYTHONHASHSEED": seed},
            ).stdout
            for seed in "123"
        }  # fmt: skip
        assert len(found) == 1 and found != {""}

    def test_project_reaches_the_hash(self, codeweaver: Codeweaver) -> None:
        codeweaver.use()
        one, two = (old.IndexingCheckpoint(project_path=Path(path)) for path in ("/a", "/b"))
        assert one.settings_hash != two.settings_hash and one.matches_settings() and two.matches_settings()

    def test_stale_after_a_change_of_the_current_settings(self, codeweaver: Codeweaver, manager: Any) -> None:
        codeweaver.use(excludes=frozenset({"a", "b"}))
        made = old.IndexingCheckpoint(project_path=manager.project_path)
        run(manager.save(made))
        loaded = run(manager.load())
        assert loaded.matches_settings() and not loaded.is_stale() and not loaded.is_stale(max_age_hours=24)
        codeweaver.use(model="voyage-4", excludes=frozenset({"a", "b"}))
        assert not loaded.matches_settings() and loaded.is_stale()
        assert loaded.current_settings_hash() != loaded.settings_hash

    @pytest.mark.parametrize(
        ("start", "last", "is_stale"),
        [(0, 0, False), (-30, -25, True), (-30, -23, False), (0, 1, True), (0, -1, True)],
    )
    def test_stale_by_age(self, start: int, last: int, is_stale: bool) -> None:
        now = datetime.now(UTC)
        made = old.IndexingCheckpoint(
            start_time=now + timedelta(hours=start), last_checkpoint=now + timedelta(hours=last)
        )
        assert made.is_stale() is is_stale


class TestValidity:
    def test_fingerprint_of_a_checkpoint_without_one(self, manager: Any) -> None:
        checkpoint = old.IndexingCheckpoint(settings_hash=core.get_blake_hash(b"x"))
        with patch(f"{MODULE}.get_settings") as get_settings:
            get_settings.return_value = settings_with(embedding("voyage-3"))
            found = manager._extract_fingerprint(checkpoint)
        assert (found.embedding_config_type, found.embed_model, found.query_model) == ("symmetric", "voyage-3", None)
        assert (found.embed_model_family, found.vector_store) == ("voyage-3", "qdrant")

    def test_fingerprint_of_a_configuration(self, manager: Any) -> None:
        with patch(f"{MODULE}.get_settings") as get_settings, patch(f"{MODULE}.get_checkpoint_settings_map") as mapped:
            get_settings.return_value, mapped.return_value = settings_with(None), {}
            found = manager._create_fingerprint(asymmetric("voyage-3", "voyage-3-lite"))
        assert (found.embedding_config_type, found.embed_model, found.query_model) == (
            "asymmetric", "voyage-3", "voyage-3-lite",
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("before", "new", "answer"),
        [
            (asymmetric("voyage-3", "voyage-3"), asymmetric("voyage-3", "voyage-3-lite"), (True, Impact.COMPATIBLE)),
            (embedding("voyage-2", None), embedding("voyage-3"), (False, Impact.BREAKING)),
        ],
    )
    def test_valid_for_settings_objects(self, manager: Any, before: Any, new: Any, answer: Any) -> None:
        checkpoint = old.IndexingCheckpoint(settings_hash=core.get_blake_hash(b"old"))
        with patch(f"{MODULE}.get_settings") as get_settings, patch(f"{MODULE}.get_checkpoint_settings_map") as mapped:
            get_settings.return_value, mapped.return_value = settings_with(before), {}
            assert manager.is_index_valid_for_config(checkpoint, new) == answer

    @pytest.mark.parametrize(
        ("change", "answer"),
        [
            ({}, (True, Impact.NONE)),
            ({"model": "voyage-4"}, (False, Impact.BREAKING)),
            ({"store": "chroma"}, (False, Impact.BREAKING)),
        ],
    )
    def test_compares_with_what_the_checkpoint_contains(
        self, codeweaver: Codeweaver, manager: Any, change: Any, answer: Any
    ) -> None:
        """CodeWeaver takes both sides from the current settings, so that no change between runs is ever seen."""
        codeweaver.use()
        run(manager.save(old.IndexingCheckpoint(project_path=manager.project_path)))
        codeweaver.use(**change)
        loaded = run(manager.load())
        assert manager.is_index_valid_for_config(loaded, codeweaver.current.provider.embedding[0]) == answer
        assert loaded.matches_settings() is (answer[1] is Impact.NONE)

    def test_without_anything_to_compare_with(self, manager: Any) -> None:
        with pytest.raises(NotFound):
            manager.is_index_valid_for_config(old.IndexingCheckpoint(settings_hash="x"), embedding("voyage-3"))
        with pytest.raises(NotFound):
            manager.is_index_valid_for_config(old.IndexingCheckpoint(settings_hash="x"), SYMMETRIC)
