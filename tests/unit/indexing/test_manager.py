"""The predecessor's checkpoint and manager."""

from __future__ import annotations

import asyncio
import enum
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.indexing import (
    ChangeImpact,
    CheckpointManager,
    CheckpointSettingsFingerprint,
    IndexingCheckpoint,
    get_checkpoint_settings_map,
)
from holdfast.indexing.manager import KEPT
from holdfast.testing.faulty_disks import ForgetfulDisk, PowerLoss

FINGERPRINT = CheckpointSettingsFingerprint(
    "asymmetric", "voyage-4-large", "voyage-4", "voyage-4-nano", None, "qdrant", "h", 1024, "float32"
)


def test_a_failed_save_that_was_cancelled_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """P4: nobody waits for it any more."""
    started, may_end = threading.Event(), threading.Event()

    class Slow(CheckpointManager):
        def _save(self, checkpoint: IndexingCheckpoint) -> None:
            started.set()
            may_end.wait(60)
            raise Unavailable("the disk is gone")

    async def scene() -> None:
        task = asyncio.ensure_future(
            Slow(tmp_path, "p", tmp_path / "c").save(IndexingCheckpoint(project_path=tmp_path))
        )
        await asyncio.to_thread(started.wait, 60)
        task.cancel()
        await asyncio.wait([task])
        may_end.set()

    asyncio.run(scene())
    assert "the disk is gone" in caplog.text


class Color(enum.Enum):
    RED = "red"


def settings(**indexer: Any) -> Any:
    return get_checkpoint_settings_map("/p", "p", indexer=indexer, embedding_provider=("voyage", {"api_key": "s3"}))


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(tmp_path / "project", "My Project/../x", tmp_path / "state")


def save(manager: CheckpointManager, **values: Any) -> IndexingCheckpoint:
    checkpoint = IndexingCheckpoint(project_path=manager.project_path, fingerprint=asdict(FINGERPRINT), **values)
    asyncio.run(manager.save(checkpoint))
    return checkpoint


class TestCheckpoint:
    def test_each_has_its_own_session(self) -> None:
        assert IndexingCheckpoint().session_id != IndexingCheckpoint().session_id

    def test_matches_its_settings_in_any_order(self) -> None:
        made = IndexingCheckpoint(settings=settings(exclude={"a", "b"}, size=20))
        assert made.matches_settings(settings(size=20, exclude={"b", "a"}))
        assert not made.matches_settings(settings(size=40, exclude={"a", "b"}))
        assert made.current_settings_hash().startswith("b3:")

    def test_a_secret_is_neither_kept_nor_counted(self) -> None:
        one = IndexingCheckpoint(settings=settings(api_key="x"))
        assert one.matches_settings(settings(api_key="y"))
        assert "s3" not in json.dumps(one.to_dict())

    @pytest.mark.parametrize(
        ("age", "stale"), [(timedelta(hours=1), False), (timedelta(hours=25), True), (timedelta(hours=-1), True)]
    )
    def test_it_is_stale_when_it_is_old_or_from_the_future(self, age: timedelta, stale: bool) -> None:
        now = datetime.now(UTC)
        made = IndexingCheckpoint(start_time=now - timedelta(days=9), last_checkpoint=now - age)
        assert made.is_stale(now=now) is stale

    def test_is_stale_under_other_settings_or_with_bad_times(self) -> None:
        made = IndexingCheckpoint(settings=settings(size=1))
        assert not made.is_stale(settings=settings(size=1))
        assert made.is_stale(settings=settings(size=2))
        now = datetime.now(UTC)
        assert IndexingCheckpoint(start_time=now, last_checkpoint=now - timedelta(minutes=1)).is_stale()

    @pytest.mark.parametrize(
        "value",
        [
            {"a", "b"},
            frozenset({2, 1}),
            ("a", ("b",)),
            Path("/x/y"),
            {"deep": [{Path("z")}]},
            timedelta(1),
            b"\0",
            Color.RED,
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_loaded_one_matches_its_settings(self, manager: CheckpointManager, value: Any) -> None:
        given = settings(exclude=value)
        save(manager, settings=given)
        loaded = asyncio.run(manager.load())
        assert loaded is not None and loaded.matches_settings()
        assert loaded.matches_settings(given) and not loaded.is_stale(settings=given)
        assert manager.is_index_valid_for_config(loaded, given) == (True, ChangeImpact.NONE)
        assert not loaded.matches_settings(settings(exclude="other"))

    def test_a_password_in_a_set_is_not_stored(self) -> None:
        made = IndexingCheckpoint(settings=settings(mirrors={"https://me:hunter2@host/x"}))
        assert "hunter2" not in json.dumps(made.to_dict())

    def test_numbers_below_zero_and_times_without_a_zone_are_refused(self) -> None:
        with pytest.raises(Refused, match="files_indexed"):
            IndexingCheckpoint(files_indexed=-1)
        with pytest.raises(Refused, match="time zone"):
            IndexingCheckpoint(start_time=datetime(2026, 1, 1))


class TestManager:
    def test_what_was_saved_is_loaded(self, manager: CheckpointManager) -> None:
        assert asyncio.run(manager.load()) is None
        made = save(manager, settings=settings(size=1), files_indexed=3, errors=[{"file": "ü", "error": "x"}])
        found = asyncio.run(manager.load())
        assert found is not None
        assert found.to_dict() == json.loads(json.dumps(made.to_dict()))
        assert manager.checkpoint_file.parent == manager.checkpoint_dir

    @pytest.mark.parametrize(
        "values",
        [
            {"project_name": 5},
            {"files_with_errors": [1]},
            {"errors": ["x"]},
            {"settings_hash": 5},
            {"current_batch_id": "x"},
            {"session_id": 7},
        ],
    )
    def test_what_could_not_be_loaded_is_refused(self, manager: CheckpointManager, values: dict[str, Any]) -> None:
        first = save(manager)
        with pytest.raises(Refused, match="cannot be stored"):
            save(manager, **values)
        loaded = asyncio.run(manager.load())
        assert loaded is not None and loaded.session_id == first.session_id

    def test_the_history_is_kept_and_bounded(self, manager: CheckpointManager) -> None:
        for number in range(KEPT + 3):
            save(manager, files_indexed=number)
        found = asyncio.run(manager.history())
        assert [one.files_indexed for one in found] == list(range(KEPT + 2, 2, -1))

    def test_deleting_may_be_done_twice_and_leaves_other_projects(self, manager: CheckpointManager) -> None:
        other = CheckpointManager(manager.project_path, "other", manager.checkpoint_dir)
        save(other)
        save(manager)
        asyncio.run(manager.delete())
        asyncio.run(manager.delete())
        assert asyncio.run(manager.load()) is None
        assert asyncio.run(other.load()) is not None

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda text: text[: len(text) // 2],
            lambda text: text.replace(b'"files_indexed": 2', b'"files_indexed": 7'),
            lambda text: b"[]",
            lambda text: b"",
        ],
    )
    def test_a_damaged_one_is_an_error_and_the_older_ones_are_there(
        self, manager: CheckpointManager, spoil: Callable[[bytes], bytes]
    ) -> None:
        save(manager, files_indexed=1)
        save(manager, files_indexed=2)
        path = manager.checkpoint_file
        path.write_bytes(spoil(path.read_bytes()))
        with pytest.raises(Damaged):
            asyncio.run(manager.load())
        assert [one.files_indexed for one in asyncio.run(manager.history())] == [1]

    def test_one_of_a_newer_version_is_refused(self, manager: CheckpointManager) -> None:
        save(manager)
        path = manager.checkpoint_file
        path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))
        with pytest.raises(Refused, match="version 99"):
            asyncio.run(manager.load())

    def test_an_error_is_raised(self, manager: CheckpointManager) -> None:
        manager.checkpoint_dir.write_text("a file is in the way")
        with pytest.raises(Unavailable):
            save(manager)

    def test_many_processes_lose_none(self, manager: CheckpointManager) -> None:
        script = (
            "import asyncio, sys; from holdfast.indexing import *\n"
            "m = CheckpointManager(sys.argv[1], 'p', sys.argv[2])\n"
            "for n in range(2): asyncio.run(m.save(IndexingCheckpoint(files_indexed=n)))\n"
        )
        given = [sys.executable, "-c", script, str(manager.project_path), str(manager.checkpoint_dir)]
        running = [subprocess.Popen(given) for _ in range(4)]
        assert [one.wait() for one in running] == [0] * 4
        assert len(os.listdir(manager.checkpoint_dir)) == 8 + 1, "and the lock"

    def test_a_power_loss_at_any_write_leaves_the_old_or_the_new(self, tmp_path: Path) -> None:
        at = 0
        while True:
            at += 1
            manager = CheckpointManager(tmp_path, "p", tmp_path / str(at))
            save(manager, files_indexed=1)
            disk = ForgetfulDisk(manager.checkpoint_dir, at=at)
            with durable.use_disk(disk):
                try:
                    manager._save(IndexingCheckpoint(files_indexed=2))
                except PowerLoss:
                    done = False
                else:
                    done = True
                disk.lose_power()
            found = asyncio.run(manager.load())
            assert found is not None
            assert found.files_indexed == 2 if done else found.files_indexed in (1, 2)
            if done:
                break
        assert at > 4


class TestValidity:
    def test_the_old_side_is_what_the_checkpoint_holds(self, manager: CheckpointManager) -> None:
        made = save(manager)
        new = {**asdict(FINGERPRINT), "query_model": "voyage-4-lite"}
        assert manager.is_index_valid_for_config(made, new) == (True, ChangeImpact.COMPATIBLE)
        assert manager.is_index_valid_for_config(made, {**new, "dimension": 256}) == (False, ChangeImpact.TRANSFORMABLE)
        assert manager.is_index_valid_for_config(made, {**new, "embed_model": "x"}) == (False, ChangeImpact.BREAKING)

    def test_settings_beside_the_fingerprint_count(self, manager: CheckpointManager) -> None:
        made = save(manager, settings=settings(chunk_size=20, batch_size=8))
        same = asdict(FINGERPRINT)
        for changed, impact in (
            ({"chunk_size": 20, "batch_size": 99}, ChangeImpact.NONE),
            ({"chunk_size": 40, "batch_size": 8}, ChangeImpact.RECHUNK),
            ({"chunk_size": 20, "batch_size": 8, "unheard_of": 1}, ChangeImpact.RECHUNK),
            ({"chunk_size": 20, "batch_size": 8, "metric": "dot"}, ChangeImpact.LAYOUT),
        ):
            new = {**same, "settings": {"indexer": changed}}
            assert manager.is_index_valid_for_config(made, new)[1] is impact

    @pytest.mark.parametrize(
        ("changed", "impact"),
        [
            ({"embedding_provider": ("openai", {"model": "voyage-4", "dimension": 1024})}, ChangeImpact.BREAKING),
            ({"embedding_provider": ("voyage", {"model": "other", "dimension": 1024})}, ChangeImpact.BREAKING),
            ({"embedding_provider": ("voyage", {"model": "voyage-4", "dimension": 256})}, ChangeImpact.TRANSFORMABLE),
            ({"embedding_provider": ("voyage", {"model": "voyage-4", "dimension": 2048})}, ChangeImpact.BREAKING),
            ({"embedding_provider": ("voyage", {"model": "voyage-4"})}, ChangeImpact.BREAKING),
            ({"embedding_provider": None}, ChangeImpact.BREAKING),
            ({"sparse_provider": ("bm25", {"model": "splade"})}, ChangeImpact.BREAKING),
            ({"sparse_provider": None}, ChangeImpact.BREAKING),
            ({"vector_store": ("chroma",)}, ChangeImpact.MIGRATABLE),
            ({"vector_store": ("qdrant", {"collection": "c2"})}, ChangeImpact.LAYOUT),
            ({"project_name": "other"}, ChangeImpact.METADATA),
        ],
    )
    def test_another_setting_is_never_no_change(
        self, manager: CheckpointManager, changed: dict[str, Any], impact: ChangeImpact
    ) -> None:
        old = {
            "indexer": {"chunk_size": 20},
            "embedding_provider": ("voyage", {"model": "voyage-4", "dimension": 1024}),
            "sparse_provider": ("bm25", {"model": "bm25"}),
            "vector_store": ("qdrant",),
        }
        made = save(manager, settings=get_checkpoint_settings_map("/p", "p", **old))
        new = get_checkpoint_settings_map("/p", **{"project_name": "p", **old, **changed})
        as_hash = replace(FINGERPRINT, config_hash=made.current_settings_hash(new))
        assert not made.matches_settings(new) and made.is_stale(settings=new)
        assert manager.is_index_valid_for_config(made, new) == (False, impact)
        assert manager.is_index_valid_for_config(made, {**asdict(FINGERPRINT), "settings": new}) == (False, impact)
        assert manager.is_index_valid_for_config(made, as_hash) == (False, ChangeImpact.UNPROVEN)

    def test_the_same_settings_are_no_change(self, manager: CheckpointManager) -> None:
        made = save(manager, settings=settings(chunk_size=20, batch_size=8))
        same = settings(chunk_size=20, batch_size=99)
        assert made.matches_settings(same) and not made.is_stale(settings=same)
        for new in (same, {**asdict(FINGERPRINT), "settings": same}, FINGERPRINT):
            assert manager.is_index_valid_for_config(made, new) == (True, ChangeImpact.NONE)
        as_hash = replace(FINGERPRINT, config_hash=made.current_settings_hash(same))
        assert manager.is_index_valid_for_config(made, as_hash) == (True, ChangeImpact.NONE)

    def test_a_query_model_in_the_settings_needs_its_family(self, manager: CheckpointManager) -> None:
        made = save(manager, settings=get_checkpoint_settings_map(embedding_provider=("v", {"query_model": "a"})))
        new = get_checkpoint_settings_map(embedding_provider=("v", {"query_model": "b"}))
        assert manager.is_index_valid_for_config(made, new) == (False, ChangeImpact.UNPROVEN)
        known = {**asdict(FINGERPRINT), "query_model": "voyage-4-lite", "settings": new}
        assert manager.is_index_valid_for_config(made, known) == (True, ChangeImpact.COMPATIBLE)

    def test_only_the_hash_of_the_old_settings_is_known(self, manager: CheckpointManager) -> None:
        new = settings(size=1)
        made = save(manager, settings_hash=IndexingCheckpoint(settings=new).settings_hash)
        assert manager.is_index_valid_for_config(made, new) == (True, ChangeImpact.NONE)
        assert manager.is_index_valid_for_config(made, settings(size=2)) == (False, ChangeImpact.UNPROVEN)

    def test_nothing_to_compare_is_an_error(self, manager: CheckpointManager) -> None:
        with pytest.raises(Refused, match="embed_model"):
            manager.is_index_valid_for_config(save(manager), {})

    def test_one_without_a_fingerprint_cannot_be_judged(self, manager: CheckpointManager) -> None:
        with pytest.raises(NotFound, match="no fingerprint"):
            manager.is_index_valid_for_config(IndexingCheckpoint(), FINGERPRINT)
        with pytest.raises(Refused, match="embed_model"):
            manager.is_index_valid_for_config(save(manager), {"vector_store": "x"})

    def test_unknown_key_is_refused(self, manager: CheckpointManager) -> None:
        """A misspelt key that is ignored would make every index look valid."""
        with pytest.raises(Refused, match="unknown key 'dimensions'"):
            manager.is_index_valid_for_config(save(manager), {**asdict(FINGERPRINT), "dimensions": 256})
        with pytest.raises(Refused, match="unknown key 'embeding_provider'"):
            new = {**asdict(FINGERPRINT), "settings": {"embeding_provider": ("x",)}}
            manager.is_index_valid_for_config(save(manager), new)
