"""Training checkpoints of NumPy arrays. They need no large package, so the default tier has them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.errors import Damaged
from holdfast.testing.faulty_disks import KillingDisk, die_in_child, every_point
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint


def state(step: int) -> dict[str, Any]:
    return {"weights": np.full((50, 4), step, dtype=np.float32), "step": step, "names": ["a", ("b", None)]}


def same(found: dict[str, Any], step: int) -> bool:
    expected = state(step)
    weights = found.pop("weights")
    return np.array_equal(weights, expected.pop("weights")) and weights.dtype == np.float32 and found == expected


def test_state_is_restored_exactly(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    assert same(load_checkpoint(tmp_path, step=1), 1)


def test_damaged_shard_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, state(1))
    [shard] = tmp_path.rglob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.chmod(0o600)
    shard.write_bytes(data)
    with pytest.raises(Damaged):
        load_checkpoint(tmp_path, step=1)
    assert not CheckpointManager(tmp_path).verify().ok


def test_kill_at_any_write_leaves_old_or_new(tmp_path: Path) -> None:
    kept, live = tmp_path / "kept", tmp_path / "live"
    save_checkpoint(kept, 1, state(1))

    def reset() -> None:
        shutil.rmtree(live, ignore_errors=True)
        shutil.copytree(kept, live)

    def save() -> None:
        save_checkpoint(live, 2, state(2))

    reset()
    calls = every_point(save)
    assert len(calls) > 10
    for call in calls:
        reset()
        assert die_in_child(KillingDisk(at=call.number), save), call
        found = load_checkpoint(live, step="latest")
        assert same(found, found["step"]) and found["step"] in (1, 2), call
        save_checkpoint(live, 3, state(3))
        assert CheckpointManager(live).verify().ok, call
