"""`holdfast.compat.codex_ml` with PyTorch: models, optimizers, callbacks, copies; and nothing is unpickled."""

from __future__ import annotations

import importlib
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from holdfast.compat.codex_ml import files, payload

from .names import names_of

pytestmark = pytest.mark.extras

core = names_of("codex_ml.utils.checkpoint_core")
checkpointing = names_of("codex_ml.utils.checkpointing")
metric_files = names_of("codex_ml.training.checkpointing")
steps = names_of("codex_ml.training.checkpoint_manager")


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return Path.touch, (self.victim,)


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_documented_snippet(tmp_path: Path) -> None:
    model, optimizer = trained()
    meta = checkpointing.save_checkpoint(
        out_dir=str(tmp_path / "runs/exp1/checkpoints"),
        step=1200,
        state={"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        metrics={"val_loss": 1.23},
        best_key="val_loss",
        keep_last_k=3,
    )
    state = checkpointing.load_checkpoint(meta["path"], weights_only=True)
    assert same(state["model"], model.state_dict())


class TestOneFile:
    def test_model_and_optimizer(self, tmp_path: Path) -> None:
        model, optimizer = trained()
        path = tmp_path / "ckpt.pt"
        checkpointing.save_checkpoint(str(path), model, optimizer, None, epoch=3, dataset_paths=[__file__, "none"])
        fresh, other = trained()
        state = checkpointing.load_training_checkpoint(str(path), fresh, other)
        assert state["epoch"] == 3 and same(fresh.state_dict(), model.state_dict())
        assert other.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
        assert state["extra"]["dataset_checksums"] == {__file__: files.sha256_of(Path(__file__))}
        plain = torch.load(path, weights_only=True)  # PyTorch reads it
        assert same(plain["model_state_dict"], model.state_dict()) and same(plain["model"], model.state_dict())

    def test_damage(self, tmp_path: Path) -> None:
        model, optimizer = trained()
        checkpointing.save_checkpoint(tmp_path / "m.pt", model, optimizer, scheduler=None, epoch=1, extra={})
        (tmp_path / "m.pt").write_bytes(b"corrupted")
        with pytest.raises(RuntimeError, match="checksum mismatch"):
            checkpointing.load_training_checkpoint(tmp_path / "m.pt", model, optimizer)

    def test_a_model_that_does_not_fit(self, tmp_path: Path) -> None:
        checkpointing.save_checkpoint(tmp_path / "m.pt", torch.nn.Linear(2, 2), None, None, 1)
        with pytest.raises(checkpointing.CheckpointLoadError, match="failed to load model state"):
            checkpointing.load_training_checkpoint(tmp_path / "m.pt", torch.nn.Linear(3, 3))

    @pytest.mark.parametrize("safe", [True, False])
    def test_files_of_torch(self, tmp_path: Path, safe: bool) -> None:
        state = {"linear.weight": torch.randn(2, 3), "linear.bias": torch.randn(2)}
        torch.save(state, tmp_path / "state.pt")
        assert same(checkpointing.load_checkpoint(tmp_path / "state.pt", safe=safe, map_location="cpu"), state)

    @pytest.mark.parametrize(
        "options", [{"safe": True}, {"safe": False}, {"format": "pickle"}, {"weights_only": False}]
    )
    @pytest.mark.parametrize("legacy", [True, False])
    def test_nothing_is_unpickled(self, tmp_path: Path, options: dict[str, Any], legacy: bool) -> None:
        """codex_ml unpickles with `safe=False`, in `load_training_checkpoint` and where a fallback is taken."""
        victim, path = tmp_path / "ran", tmp_path / "evil.pt"
        torch.save({"x": Evil(victim)}, path, _use_new_zipfile_serialization=not legacy)
        with pytest.raises(checkpointing.CheckpointLoadError):
            checkpointing.load_checkpoint(path, **options)
        with pytest.raises(checkpointing.CheckpointLoadError):
            checkpointing.load_training_checkpoint(path)
        with pytest.raises(core.CheckpointIntegrityError):
            core.load_checkpoint(path)
        assert not victim.exists()

    def test_mixed_values(self, tmp_path: Path) -> None:
        np = pytest.importorskip("numpy")
        state = {
            "t": torch.ones(2),
            "a": np.float32([1, 2]),
            "nested": [{"s": {1}}, torch.zeros(1)],
            5: b"\0",
            "d": torch.float16,
        }
        path = tmp_path / "x.pt"
        path.write_bytes(payload.dumps(state, use_torch=True))
        loaded = payload.read(path)
        assert (
            torch.equal(loaded["t"], state["t"])
            and loaded["a"].dtype == np.float32
            and loaded["nested"][0] == {"s": {1}}
        )
        assert loaded[5] == b"\0" and loaded["d"] is torch.float16

    def test_save_ckpt(self, tmp_path: Path) -> None:
        checkpointing.save_ckpt({"w": torch.ones(1)}, str(tmp_path / "a.pt"))
        checkpointing.verify_ckpt_integrity(str(tmp_path / "a.pt"))
        told = json.loads((tmp_path / "checksums.json").read_text())
        assert told["file"] == "a.pt" and told["sha256"] == files.sha256_of(tmp_path / "a.pt")


class TestEpochs:
    def test_latest_is_restored(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path / "ckpts", keep_last=3, keep_best=1)
        for epoch in (1, 2):
            model, optimizer = trained()
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
            folder = manager.save(epoch, model=model, optimizer=optimizer, scheduler=scheduler)
        (tmp_path / "ckpts" / "last").write_text(str(tmp_path / "missing"))
        fresh, other = trained()
        info = manager.load_latest(model=fresh, optimizer=other, scheduler=torch.optim.lr_scheduler.StepLR(other, 1))
        assert info["meta"]["epoch"] == 2 and Path(info["path"]) == folder and (folder / "state.pt").exists()
        assert same(fresh.state_dict(), model.state_dict())

    def test_wrong_shapes_change_nothing(self, tmp_path: Path) -> None:
        manager = checkpointing.CheckpointManager(tmp_path)
        manager.save(1, torch.nn.Linear(2, 2))
        other = torch.nn.Linear(2, 3)
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(ValueError, match="mismatched"):
            manager.load_latest(other)
        assert same(other.state_dict(), before)

    def test_copies_elsewhere(self, tmp_path: Path) -> None:
        storage = names_of("codex_ml.utils.storage").FSSpecStorage("memory://codex-checkpoints")
        root = tmp_path / "checkpoints"
        manager = checkpointing.CheckpointManager(root, storage=storage, remote_prefix="runs/demo")
        model, _ = trained()
        manager.save(1, model=model, metrics={"loss": 0.1})
        shutil.rmtree(root)
        fresh, _ = trained()
        again = checkpointing.CheckpointManager(root, storage=storage, remote_prefix="runs/demo")
        info = again.load_latest(fresh)
        assert (info["path"] / "meta.json").exists() and same(fresh.state_dict(), model.state_dict())

    def test_payloads(self, tmp_path: Path) -> None:
        model, optimizer = trained()
        manager = checkpointing.CheckpointManager(tmp_path)
        saved = checkpointing.build_payload_bytes(model, optimizer, rng_state=True)
        path = manager.save_now(1, saved, {"loss": 1.0}, rng_state=True)
        fresh, other = trained()
        expected = random.random()
        checkpointing.load_payload(str(path), fresh, other)
        assert same(fresh.state_dict(), model.state_dict())
        assert json.loads(path.with_suffix(".meta.json").read_text())["rng"]
        assert random.random() == expected


class TestRandomStates:
    def test_all_libraries(self) -> None:
        np = pytest.importorskip("numpy")
        seeds = checkpointing.set_seed(42)
        assert seeds == {"python": 42, "numpy": 42, "torch": 42}
        state = json.loads(json.dumps(checkpointing.dump_rng_state()))
        expected = random.random(), np.random.rand(), torch.rand(3)
        random.seed(1), np.random.seed(1), torch.manual_seed(1)  # type: ignore[func-returns-value]
        checkpointing.load_rng_state(state)
        assert random.random() == expected[0] and np.random.rand() == expected[1]
        assert torch.equal(torch.rand(3), expected[2])

    def test_a_step_goes_on_where_it_was(self, tmp_path: Path) -> None:
        """codex_ml goes back to the state at the last seed, so that random numbers repeat."""
        model, optimizer = trained()
        manager = steps.CheckpointManager(tmp_path)
        random.seed(123)
        torch.manual_seed(123)
        first = random.random(), torch.rand(1)
        saved = checkpointing.build_payload_bytes(model, optimizer, rng_state=True)
        path = manager.save_now(1, saved, {"loss": 1.0}, rng_state=True)
        second = random.random(), torch.rand(1)
        checkpointing.load_payload(str(path), model, optimizer)
        assert random.random() == second[0] != first[0] and torch.equal(torch.rand(1), second[1])


class TestMetricFiles:
    def test_best_stay_and_the_newest(self, tmp_path: Path) -> None:
        model, optimizer = trained()
        for epoch, value in enumerate([0.5, 0.3, 0.4, 0.9]):
            path = metric_files.save_checkpoint(
                model,
                optimizer,
                epoch=epoch,
                val_metric=value,
                out_dir=tmp_path,
                keep_best_k=2,
                manifest={"git": "dead"},
            )
        assert path.name == "epoch3-metric0.900000.pt"
        assert sorted(each.name for each in tmp_path.glob("*.pt")) == [
            "epoch1-metric0.300000.pt", "epoch2-metric0.400000.pt", "epoch3-metric0.900000.pt",
        ]  # fmt: skip
        assert json.loads((tmp_path / "manifest.json").read_text()) == {"git": "dead"}
        fresh, other = trained()
        assert metric_files.load_checkpoint(path, fresh, other) == (3, 0.9)
        assert same(fresh.state_dict(), model.state_dict())

    def test_random_states(self, tmp_path: Path) -> None:
        model, optimizer = trained()
        path = metric_files.save_checkpoint(model, optimizer, epoch=1, val_metric=0.5, out_dir=tmp_path, extra={"x": 1})
        expected = torch.rand(2)
        metric_files.load_checkpoint(path, model, optimizer)
        assert torch.equal(torch.rand(2), expected)
        state = metric_files.snapshot_rng_state()
        expected = torch.rand(2)
        metric_files.restore_rng_state(state)
        assert torch.equal(torch.rand(2), expected)

    def test_wrong_mode(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="mode must be"):
            metric_files.save_checkpoint(*trained(), epoch=1, val_metric=0.5, out_dir=tmp_path, mode="median")


def test_callback(tmp_path: Path) -> None:
    importlib.import_module("transformers")
    model, optimizer = trained()
    manager = steps.CheckpointManager(tmp_path, save_steps=1, keep_last=2)
    callback, state = manager.callback(), SimpleNamespace(global_step=0, epoch=0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    with pytest.raises(RuntimeError, match="model and optimizer are required"):
        callback.on_train_begin(None, state, None)
    callback.on_train_begin(None, state, None, model=model, optimizer=optimizer, lr_scheduler=scheduler)
    for state.global_step in (1, 2, 3):
        callback.on_step_end(None, state, None)
    assert sorted(path.name for path in tmp_path.glob("step-*.pt")) == ["step-2.pt", "step-3.pt"]
    fresh, other = trained()
    checkpointing.load_payload(tmp_path / "step-3.pt", fresh, other)
    assert same(fresh.state_dict(), model.state_dict())
