"""Both back ends of a run, a folder and an object store, answer alike."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import Conflict, NotFound, Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.checkpoints import open_run
from holdfast.training.run_store import RunStore
from holdfast.training.shard_reader import read_bytes, read_manifest

pytestmark = pytest.mark.extras


@pytest.fixture(params=["folder", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "run" if request.param == "folder" else request.getfixturevalue("url")


@pytest.fixture
def run(place: Any) -> RunStore:
    for step in (1, 2, 3):
        save_checkpoint(place, step, {"x": torch.full((3,), step)}, metrics={"loss": abs(step - 2)}, best_key="loss")
    return open_run(place)


def test_scan_is_in_the_order_of_saves(run: RunStore) -> None:
    found, broken = run.scan()
    assert [(each.step, each.manifest.sequence) for each in found] == [(1, 1), (2, 2), (3, 3)]
    assert not broken


def test_page_has_the_greatest_steps_first(run: RunStore) -> None:
    found, broken, following = run.page(2)
    assert ([each.step for each in found], broken, following) == ([3, 2], [], 2)
    found, _, following = run.page(2, before=following)
    assert ([each.step for each in found], following) == ([1], None)


@pytest.mark.parametrize(("what", "step"), [("latest", 3), ("best", 2), (1, 1)])
def test_get_finds_by_name_and_number(run: RunStore, what: Any, step: int) -> None:
    found = run.get(what)
    assert found.step == step
    assert "x" in found.manifest.tensors


def test_get_of_a_missing_step(run: RunStore) -> None:
    with pytest.raises(NotFound, match="no checkpoint 9"):
        run.get(9)


def test_full_reads_the_whole_manifest(run: RunStore) -> None:
    brief = run.scan()[0][0]
    assert run.full(brief).manifest.tensors.keys() >= {"x"}


def test_reader_verifies(run: RunStore) -> None:
    found = run.get(2)
    data, dtype, shape = run.reader(found, verify=True).fetch("x")
    assert (bytes(data), dtype, shape) == (torch.full((3,), 2).numpy().tobytes(), "I64", (3,))


def test_verify_reads_everything(run: RunStore) -> None:
    report = run.verify()
    assert report.ok
    assert report.checkpoints == 3
    assert report.bytes_read > 0


def test_pins(run: RunStore) -> None:
    assert run.pinned() == set()
    with run.writing():
        run.pin({1, 3})
    assert run.pinned() == {1, 3}


def test_remove_repoints_and_removes(run: RunStore) -> None:
    with run.writing():
        found, _ = run.scan()
        run.repoint_markers(found[:1])
        for each in found[1:]:
            run.remove(each)
    assert [each.step for each in run.scan()[0]] == [1]
    assert (run.best_marker() or {})["step"] == 1
    with run.writing():
        assert run.foreign_files(run.get(1)) == []


def test_set_aside_frees_the_step(run: RunStore, place: Any) -> None:
    with run.writing():
        kept = run.set_aside(run.get(3).path)
    assert "damaged-1" in str(kept)
    assert [each.step for each in run.scan()[0]] == [1, 2]
    save_checkpoint(place, 3, {"x": 7}, metrics={"loss": 0.0}, best_key="loss")
    assert load_checkpoint(place)["x"] == 7


def test_saves_that_are_refused_leave_the_run_as_it_was(run: RunStore, place: Any) -> None:
    with pytest.raises(Conflict, match="step 3 is already saved"):
        save_checkpoint(place, 3, {})
    save_checkpoint(place, 5, {})
    with pytest.raises(Refused, match="step 4 comes before step 5"):
        save_checkpoint(place, 4, {})
    assert [each.step for each in run.scan()[0]] == [1, 2, 3, 5]


def test_unknown_options_are_errors(place: Any) -> None:
    """A misspelt option must not be ignored."""
    manager = CheckpointManager(place)
    with pytest.raises(Refused, match="keep_lats"):
        manager.save(1, {}, keep_lats=3)
    with pytest.raises(Refused, match="weight_only"):
        manager.resume(weight_only=True)
    with pytest.raises(TypeError, match="keep_lats"):
        CheckpointManager(place, keep_lats=3)  # type: ignore[call-arg]
    assert manager.history() == []


def test_new_bytes_are_what_the_one_before_does_not_share(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        state = {"frozen": torch.ones(600_000), "x": torch.full((600_000,), float(min(step, 2)))}
        save_checkpoint(tmp_path, step, state, rng=False)
    run = open_run(tmp_path)
    found, _ = run.scan()
    new = run.new_bytes(found)
    assert new[1] > 4_800_000
    assert 2_400_000 < new[2] < 3_000_000  # not `frozen`
    assert new[3] < 100_000  # nothing but the small files
    assert run.new_bytes(found[1:])[3] == new[3]


def test_new_bytes_are_not_known_of_objects(url: str) -> None:
    save_checkpoint(url, 1, {"x": torch.ones(3)})
    run = open_run(url)
    assert run.new_bytes(run.scan()[0]) == {}


def test_verify_tells_how_far_it_is(run: RunStore) -> None:
    told: list[tuple[str, int, int]] = []
    report = run.verify(lambda *words: told.append(words))
    assert {stage for stage, _, _ in told} == {"reading"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1] == told[-1][2] == report.bytes_read


def test_reading_a_manifest_takes_no_more_memory_than_it_has_bytes(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"epoch": 1}, rng=False)
    tracemalloc.start()
    try:
        read_manifest(tmp_path / "step-00000001")
        read_bytes(tmp_path / "last")
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
