"""Small tensors share files, and what did not change is still not written again. Counted, not timed."""

from __future__ import annotations

import gc
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from holdfast.errors import Damaged, Refused
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.stored import digests, manifest
from holdfast.training.stored.shards import SHARD_BYTES

from .scenes import same

pytestmark = pytest.mark.extras

KIB = 1 << 10
COUNT = 2_000
BYTES = COUNT * 8 * KIB


def small_tensors() -> dict[str, torch.Tensor]:
    return {f"layer{at // 10}.part{at % 10}": torch.full((2 * KIB,), float(at)) for at in range(COUNT)}


def shard_bytes(path: str) -> int:
    """How many bytes of tensors a checkpoint has that no other one shares."""
    files = Path(path).glob("*.safetensors")
    return sum(file.stat().st_size for file in files if file.stat().st_nlink == 1)


def check_whole(path: str, state: dict[str, torch.Tensor]) -> None:
    """Each tensor is in one file, and the index says which; reading all files gives nothing stale."""
    where: Counter[str] = Counter()
    said = json.loads(Path(path, "model.safetensors.index.json").read_text())["weight_map"]
    for file in Path(path).glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            where.update(opened.keys())
            assert all(said[name] == file.name for name in opened.keys())  # noqa: SIM118
            assert all(opened.get_tensor(name).equal(state[name]) for name in opened.keys())  # noqa: SIM118
    assert where == Counter(dict.fromkeys(state, 1))
    assert same(load_checkpoint(path), state)


def save(folder: Path, step: int, state: Any) -> dict[str, Any]:
    return save_checkpoint(folder, step, state, rng=False)


def test_small_tensors_are_gathered_into_few_files(tmp_path: Path) -> None:
    path = save(tmp_path, 1, small_tensors())["path"]
    assert len(list(Path(path).glob("*.safetensors"))) == -(-BYTES // SHARD_BYTES)
    check_whole(path, small_tensors())


def test_small_tensors_that_did_not_change_are_not_written_again(tmp_path: Path) -> None:
    state = small_tensors()
    save(tmp_path, 1, state)
    meta = save(tmp_path, 2, state)
    assert shard_bytes(meta["path"]) == 0
    assert meta["files_shared"] == BYTES // SHARD_BYTES + 1
    check_whole(meta["path"], state)


def test_a_tenth_in_one_stretch_writes_about_a_tenth(tmp_path: Path) -> None:
    state = small_tensors()
    save(tmp_path, 1, state)
    for tensor in list(state.values())[: COUNT // 10]:
        tensor.add_(1)
    meta = save(tmp_path, 2, state)
    assert shard_bytes(meta["path"]) < BYTES / 10 + SHARD_BYTES
    check_whole(meta["path"], state)


def test_scattered_tenth_writes_a_tenth_from_the_second_save(tmp_path: Path) -> None:
    state = small_tensors()
    save(tmp_path, 1, state)
    for step in (2, 3, 4):
        for tensor in list(state.values())[::10]:
            tensor.add_(1)
        meta = save(tmp_path, step, state)
        if step > 2:  # now they lie together
            assert shard_bytes(meta["path"]) < 0.12 * BYTES
        check_whole(meta["path"], state)
    assert CheckpointManager(tmp_path).verify().ok


def test_a_tensor_that_is_gone_is_in_no_file(tmp_path: Path) -> None:
    state = small_tensors()
    save(tmp_path, 1, state)
    del state["layer7.part3"]
    meta = save(tmp_path, 2, state)
    assert shard_bytes(meta["path"]) <= SHARD_BYTES + 16 * KIB
    check_whole(meta["path"], state)
    state["new"] = torch.ones(3)
    check_whole(save(tmp_path, 3, state)["path"], state)


def test_what_is_not_worth_a_file_stays_with_what_changed(tmp_path: Path) -> None:
    state = {"x": torch.ones(3), "still": torch.ones(KIB)}
    for step in range(3):
        state["x"].add_(1)
        path = save(tmp_path, step, state)["path"]
        assert len(list(Path(path).glob("*.safetensors"))) == 1


def test_files_do_not_become_more_and_more(tmp_path: Path) -> None:
    """Each save changes other tensors, and may leave two files that are not full."""
    state = small_tensors()
    for step in range(40):
        state[f"layer{step * 4}.part0"].add_(1)
        meta = save_checkpoint(tmp_path, step, state, rng=False, keep_last_k=1)
    files = list(Path(meta["path"]).glob("*.safetensors"))
    assert len(files) <= BYTES // SHARD_BYTES + 1 + 12
    check_whole(meta["path"], state)


def test_the_digest_of_each_small_tensor_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest costs ten times what a fingerprint costs, and what did not change needs none."""
    made: list[int] = []
    real = digests.digest

    def counted(data: bytes | memoryview, algorithm: str) -> str:
        made.append(len(data))
        return real(data, algorithm)

    monkeypatch.setattr(digests, "digest", counted)
    state = small_tensors()
    save(tmp_path, 1, state)
    files = BYTES // SHARD_BYTES + 1
    documents = 3
    assert len(made) == COUNT + 2 * files + documents  # of a file also its header
    made.clear()
    save(tmp_path, 2, state)
    assert len(made) <= documents + files  # the header of a file that is read again, for its medium


def test_names_are_stored_as_they_are(tmp_path: Path) -> None:
    state = {name: torch.ones(2) for name in ['a"b', "back\\slash", "new\nline", "naïve 🙂", "\x00", "</script>"]}
    path = save(tmp_path, 1, state)["path"]
    found = json.loads(Path(path, "manifest.json").read_text())
    assert set(found["tensors"]) == set(state)
    check_whole(path, state)


def test_a_digest_that_is_none_is_damage(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {"x": torch.ones(2)})["path"]
    found = json.loads(Path(path, "manifest.json").read_text())
    for wrong in ('","dtype":"', None, ""):
        found["tensors"]["x"] |= {"digest": wrong, "sample": "", "fingerprint": ""}
        with pytest.raises(Damaged):
            manifest.decode(json.dumps(found).encode(), "it", verify=False)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_search_for_garbage_is_left_as_it_was(tmp_path: Path, is_on: bool) -> None:
    try:
        gc.enable() if is_on else gc.disable()
        path = save(tmp_path, 1, small_tensors())["path"]
        assert gc.isenabled() is is_on
        load_checkpoint(path)
        assert gc.isenabled() is is_on
        with pytest.raises(Refused):
            save(tmp_path, 2, {"x": object()})
        assert gc.isenabled() is is_on
    finally:
        gc.enable()
