"""CodeWeaver's JSON checkpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, Refused
from holdfast.indexing import CheckpointManager, IndexingCheckpoint
from unit.importers.scenes import bytes_and_times, plan, run

VALUES: dict[str, Any] = {
    "session_id": "0190f3a5-7c1e-7e6a-8000-000000000001",
    "project_path": "/home/ada/shop",
    "start_time": "2026-01-02T03:04:05.123456Z",
    "last_checkpoint": "2026-01-02T04:00:00Z",
    "files_discovered": 10,
    "files_embedding_complete": 8,
    "files_indexed": 7,
    "files_with_errors": ["a.py"],
    "chunks_created": 100,
    "chunks_embedded": 90,
    "chunks_indexed": 80,
    "batch_ids_completed": ["b1"],
    "current_batch_id": None,
    "errors": [{"file": "a.py", "error": "ValueError"}],
    "settings_hash": "abc",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "checkpoint_shop-0123abcd.json"
    path.write_text(json.dumps(VALUES, indent=2))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out"


def stored(target: Path) -> list[IndexingCheckpoint]:
    return CheckpointManager("/home/ada/shop", "shop", target).stored()


def test_fields_and_time_come_over(source: Path, target: Path) -> None:
    before = bytes_and_times(source.parent)
    assert run(source, target).added == 1
    assert bytes_and_times(source.parent) == before
    (found,) = stored(target)
    assert (found.files_indexed, found.chunks_indexed, found.batch_ids_completed) == (7, 80, ["b1"])
    assert found.last_checkpoint == datetime(2026, 1, 2, 4, tzinfo=UTC)
    assert (str(found.session_id), found.errors) == (VALUES["session_id"], VALUES["errors"])


def test_second_run_adds_nothing_and_progress_is_added(source: Path, target: Path) -> None:
    run(source, target)
    assert plan(source, target).new == 0
    assert run(source, target).added == 0
    source.write_text(json.dumps(VALUES | {"last_checkpoint": "2026-01-02T05:00:00Z", "files_indexed": 9}))
    assert run(source, target).added == 1
    assert [each.files_indexed for each in stored(target)] == [9, 7]


def test_newer_checkpoint_stays_the_latest(source: Path, target: Path) -> None:
    own = CheckpointManager("/home/ada/shop", "shop", target)
    own.add(IndexingCheckpoint(project_path=Path("/home/ada/shop"), files_indexed=99))
    with pytest.raises(Damaged, match="newer checkpoint"):
        run(source, target)
    assert [each.files_indexed for each in stored(target)] == [99]


def test_folder_of_several_projects(source: Path, target: Path) -> None:
    other = VALUES | {"project_path": "/home/ada/blog"}
    (source.parent / "checkpoint_blog-00000000.json").write_text(json.dumps(other))
    (source.parent / "manifest_shop.json").write_text("{}")
    assert run(source.parent, target).added == 2


def test_unknown_fields_are_reported(source: Path, target: Path) -> None:
    source.write_text(json.dumps(VALUES | {"has_file_manifest": True}))
    assert [each.what for each in run(source, target).not_carried] == [f"{source.name}: has_file_manifest"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        "{}",
        json.dumps(VALUES | {"files_indexed": -1}),
        json.dumps(VALUES | {"session_id": "x"}),
        json.dumps(VALUES | {"start_time": "soon"}),
        json.dumps(VALUES | {"project_path": None}),
        json.dumps(VALUES | {"files_discovered": "many"}),
        json.dumps(VALUES | {"files_with_errors": [1]}),
        json.dumps(VALUES | {"batch_ids_completed": [None]}),
        json.dumps(VALUES | {"batch_ids_completed": None}),
        json.dumps(VALUES | {"errors": ["ValueError"]}),
        json.dumps(VALUES | {"current_batch_id": 5}),
        json.dumps(VALUES | {"project_path": 7}),
    ],
)
def test_bad_file(source: Path, target: Path, text: str) -> None:
    source.write_text(text)
    with pytest.raises((Damaged, Refused)):
        run(source, target)
    assert not target.exists()


def test_target_is_needed(source: Path) -> None:
    with pytest.raises(Refused, match="no target for"):
        run(source)
