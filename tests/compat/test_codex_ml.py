"""`codex_ml` checkpointing: one schema, the markers `last` and `best.json`, integrity, retention."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from holdfast.errors import Damaged
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("own_stores"),
]


def test_the_snippet(tmp_path: Path) -> None:
    model, optimizer = torch.nn.Linear(2, 2), torch.optim.SGD([torch.zeros(1)], momentum=0.9)
    meta = save_checkpoint(
        out_dir=str(tmp_path / "runs/exp1/checkpoints"),
        step=1200,
        state={"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        metrics={"val_loss": 1.23},
        best_key="val_loss",
        keep_last_k=3,
    )
    state = load_checkpoint(meta["path"], weights_only=True)
    assert torch.equal(state["model"]["weight"], model.weight)
    assert load_checkpoint(meta["path"])["optimizer"] == optimizer.state_dict()


def test_the_markers_and_the_schema(tmp_path: Path) -> None:
    versions = set()
    for step, loss in ((1, 0.5), (2, 0.7), (3, 0.5), (4, 0.3)):  # 3 is as good as 1: no strict improvement
        meta = save_checkpoint(tmp_path, step, {"step": step}, metrics={"val_loss": loss}, best_key="val_loss")
        versions.add(meta["schema_version"])
        assert load_checkpoint(tmp_path / "last") == {"step": step}
        best = json.loads((tmp_path / "best.json").read_text())
        expected = (4, 0.3) if step == 4 else (1, 0.5)
        assert (best["step"], best["value"], best["metric"]) == (*expected, "val_loss")
        assert load_checkpoint(tmp_path / best["path"]) == {"step": expected[0]}
    assert versions == {json.loads((tmp_path / "step-00000004" / "manifest.json").read_text())["schema_version"]}


def test_integrity_and_retention(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=2, keep_best=0)
    for step in range(1, 5):
        manager.save(step, {"weight": torch.full((4,), float(step))}, metadata={"note": step})
    assert [each.step for each in manager.history()] == [3, 4]
    [weights] = (tmp_path / "step-00000004").rglob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(data)
    with pytest.raises(Damaged):
        load_checkpoint(tmp_path / "step-00000004")


def test_the_newest_is_looked_at_on_the_command_line(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 7, {"a": 1}, metrics={"val_loss": 1.0})
    command = [sys.executable, "-m", "holdfast.cli", "training", "info", "latest", "--dir", str(tmp_path), "--json"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["checkpoint"]["step"] == 7
