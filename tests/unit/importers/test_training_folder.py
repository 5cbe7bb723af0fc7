"""Folders of `torch.save` and safetensors files, with the marker files of codex_ml."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from holdfast.errors import Damaged, Refused
from holdfast.training import CheckpointManager, load_checkpoint
from unit.importers.scenes import bytes_and_times, plan, run


def state(number: float) -> dict[str, Any]:
    """What a training loop saves: weights and an optimizer's state."""
    model = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(model.weight, number)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": int(number)}


def weight(value: Any) -> float:
    return float(value["model"]["bias"][0].detach())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "imported")


def steps(target: str) -> list[int]:
    return [each.step for each in CheckpointManager(target).history()]


class TestLayouts:
    def test_manager_with_sidecars(self, source: Path, target: str) -> None:
        saved = {}
        for step, loss in ((100, 0.5), (200, 0.25), (300, 0.75)):
            saved[step] = state(step)
            torch.save(saved[step], source / f"ckpt-{step}.pt")
            (source / f"ckpt-{step}.meta.json").write_text(
                json.dumps({"step": step, "metrics": {"val_loss": loss}, "created_at": 1_700_000_000 + step})
            )
        (source / "best.json").write_text(json.dumps({"metric": "val_loss", "mode": "min", "value": 0.25, "step": 200}))
        (source / "best").symlink_to("ckpt-200.pt")
        (source / "last").write_text("ckpt-300.pt\n")
        before = bytes_and_times(source)
        done = run(source, target)
        assert (done.added, done.not_carried, list(done.notes)) == (3, (), [])
        assert bytes_and_times(source) == before
        assert steps(target) == [100, 200, 300]
        found = load_checkpoint(target, step=200)
        assert torch.equal(found["model"]["weight"], saved[200]["model"]["weight"])
        assert found["optimizer"]["param_groups"] == saved[200]["optimizer"]["param_groups"]
        assert found["epoch"] == 200
        history = CheckpointManager(target).history()
        assert [each.metrics for each in history] == [{"val_loss": 0.5}, {"val_loss": 0.25}, {"val_loss": 0.75}]
        assert history[0].timestamp.timestamp() == 1_700_000_100
        assert json.loads(Path(target, "best.json").read_text())["step"] == 200
        assert CheckpointManager(target).verify().ok

    def test_folders_of_epochs(self, source: Path, target: str) -> None:
        for epoch in (1, 2):
            folder = source / f"epoch-{epoch}"
            folder.mkdir()
            torch.save(state(epoch), folder / "state.pt")
            (folder / "meta.json").write_text(json.dumps({"epoch": epoch, "metrics": {"val_loss": 1.0 / epoch}}))
            (folder / "rng.json").write_text(json.dumps({"python": [1, 2, 3]}))
        (source / "last").write_text(str(source / "epoch-1"))
        planned = plan(source, target)
        assert planned.new == 2
        assert "epoch-1" in planned.notes[0]
        run(source, target)
        found = CheckpointManager(target).history()[1]
        assert (found.step, found.metrics["val_loss"]) == (2, 0.5)
        assert found.metadata["rng.json"] == {"python": [1, 2, 3]}
        assert load_checkpoint(target, step=2)["epoch"] == 2

    def test_metric_in_the_name(self, source: Path, target: str) -> None:
        for epoch, value in ((3, 0.25), (4, 0.125)):
            torch.save(state(epoch), source / f"epoch{epoch}-metric{value:.6f}.pt")
        run(source, target)
        assert [(each.step, each.metrics) for each in CheckpointManager(target).history()] == [
            (3, {"metric": 0.25}),
            (4, {"metric": 0.125}),
        ]

    def test_core_with_index(self, source: Path, target: str) -> None:
        entries = []
        for number in (1, 2):
            name = f"ckpt-20260102-030405-00000{number}-0001.pt"
            torch.save(state(number), source / name)
            os.utime(source / name, (1_700_000_000 + number,) * 2)
            entries.append({"path": str(source / name), "metric": float(number), "created_at": 1, "sha256": "x"})
        torch.save(state(1), source / "state.pt")
        (source / "index.json").write_text(json.dumps({"metric_key": "accuracy", "mode": "max", "entries": entries}))
        done = run(source, target)
        assert done.added == 2
        assert "counted from 0" in done.notes[0]
        assert [each.metrics for each in CheckpointManager(target).history()] == [{"accuracy": 1.0}, {"accuracy": 2.0}]
        assert json.loads(Path(target, "best.json").read_text())["step"] == 1

    def test_safetensors_and_optimizer(self, source: Path, target: str) -> None:
        folder = source / "checkpoint-500"
        folder.mkdir()
        save_file({"w": torch.arange(4.0)}, folder / "model.safetensors")
        torch.save({"lr": 0.1}, folder / "optimizer.pt")
        run(source, target)
        found = load_checkpoint(target, step=500)
        assert torch.equal(found["model"]["w"], torch.arange(4.0))
        assert found["optimizer"] == {"lr": 0.1}

    def test_legacy_format_and_plain_pickle(self, source: Path, target: str) -> None:
        torch.save(OrderedDict(w=torch.ones(2)), source / "step-1.pt", _use_new_zipfile_serialization=False)
        (source / "step-2.pkl").write_bytes(pickle.dumps({"loss": [1.0, 0.5]}))
        run(source, target)
        assert torch.equal(load_checkpoint(target, step=1)["w"], torch.ones(2))
        assert load_checkpoint(target, step=2) == {"loss": [1.0, 0.5]}


class TestAgain:
    def test_second_run_adds_nothing(self, source: Path, target: str) -> None:
        torch.save(state(1), source / "ckpt-1.pt")
        run(source, target)
        assert plan(source, target).new == 0
        done = run(source, target)
        assert (done.added, done.present) == (0, 1)
        torch.save(state(2), source / "ckpt-2.pt")
        assert run(source, target).added == 1

    def test_step_that_is_taken_is_reported(self, source: Path, target: str) -> None:
        torch.save(state(1), source / "ckpt-1.pt")
        CheckpointManager(target).save(5, {"own": 1})
        done = run(source, target)
        assert done.added == 0
        assert "comes before step 5" in done.not_carried[0].why

    def test_continues_after_kill(self, source: Path, target: str) -> None:
        for step in range(1, 5):
            torch.save({"n": step}, source / f"ckpt-{step}.pt")
        script = """
import os, signal, sys
from holdfast.importers import ImportRequest, open_import
opened = open_import(ImportRequest(sys.argv[1], sys.argv[2]))
opened.run(lambda stage, done, total: done == 3 and os.kill(os.getpid(), signal.SIGKILL))
"""
        killed = subprocess.run([sys.executable, "-c", script, str(source), target], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert steps(target) == [1, 2]
        assert run(source, target).added == 2
        assert steps(target) == [1, 2, 3, 4]

    def test_plan_creates_nothing(self, source: Path, target: str) -> None:
        torch.save(state(1), source / "ckpt-1.pt")
        plan(source, target)
        assert not os.path.exists(target)


class Evil:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (self.marker,)


class TestBadInput:
    @pytest.mark.parametrize("legacy", [False, True])
    def test_nothing_is_executed(self, source: Path, target: str, tmp_path: Path, legacy: bool) -> None:
        marker = tmp_path / "made"
        torch.save({"w": Evil(str(marker))}, source / "ckpt-1.pt", _use_new_zipfile_serialization=not legacy)
        (source / "ckpt-2.pkl").write_bytes(pickle.dumps(Evil(str(marker))))
        with pytest.raises(Damaged, match="mkdir"):
            run(source, target)
        assert not marker.exists()
        assert not os.path.exists(target)

    @pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", None])
    @pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
    def test_unreadable_file(self, source: Path, target: str, content: bytes | None, suffix: str) -> None:
        good = source / f"ckpt-1{suffix}"
        if suffix == ".pt":
            torch.save(state(1), good)
        else:
            save_file({"w": torch.ones(100)}, good)
        whole = good.read_bytes()
        (source / f"ckpt-2{suffix}").write_bytes(whole[: len(whole) // 2] if content is None else content)
        done = run(source, target)
        assert done.added == 1
        assert [each.what for each in done.not_carried] == [f"ckpt-2{suffix}"]

    def test_zip_bomb(self, source: Path, target: str) -> None:
        with zipfile.ZipFile(source / "ckpt-1.pt", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\0" * (64 << 20))
        with pytest.raises(Damaged, match="would unpack to"):
            run(source, target)

    def test_huge_header_of_safetensors(self, source: Path, target: str) -> None:
        (source / "ckpt-1.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
        with pytest.raises(Damaged):
            run(source, target)

    def test_deep_json_beside_it(self, source: Path, target: str) -> None:
        torch.save({"n": 1}, source / "ckpt-1.pt")
        (source / "ckpt-1.meta.json").write_text("[" * 100_000)
        (source / "best.json").write_text("null")
        (source / "index.json").write_bytes(b"\xff")
        assert run(source, target).added == 1

    def test_link_leads_nowhere(self, source: Path, target: str, tmp_path: Path) -> None:
        torch.save({"n": 1}, tmp_path / "secret-2.pt")
        torch.save({"n": 1}, source / "ckpt-1.pt")
        (source / "ckpt-2.pt").symlink_to(tmp_path / "secret-2.pt")
        assert run(source, target).added == 1

    def test_target(self, source: Path) -> None:
        torch.save({"n": 1}, source / "ckpt-1.pt")
        with pytest.raises(Refused, match="no target for"):
            run(source)
        with pytest.raises(Refused, match="the source itself"):
            run(source, source)

    def test_empty_folder(self, source: Path, target: str) -> None:
        with pytest.raises(Refused, match="unknown format"):
            run(source, target)
