"""codex_ml's guide: what it says of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holdfast.errors import HoldfastError
from holdfast.training import load_checkpoint, save_checkpoint


def _trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_snippet(tmp_path: Path) -> None:
    model, optimizer = _trained()
    model_state, opt_state = model.state_dict(), optimizer.state_dict()

    meta = save_checkpoint(
        out_dir="runs/exp1/checkpoints",
        step=1200,
        state={"model": model_state, "optimizer": opt_state},
        metrics={"val_loss": 1.23},
        best_key="val_loss",
        keep_last_k=3,
    )
    state = load_checkpoint(meta["path"], weights_only=True)

    other, again = _trained()
    other.load_state_dict(state["model"])
    again.load_state_dict(state["optimizer"])
    assert torch.equal(other.weight, model.weight)
    assert again.state_dict()["param_groups"] == opt_state["param_groups"]


def test_weights_only_is_that_of_torch(tmp_path: Path) -> None:
    """The same values as `torch.load(weights_only=True)`."""
    model, optimizer = _trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "name": "x"}
    torch.save(state, tmp_path / "theirs.pt")
    theirs = torch.load(tmp_path / "theirs.pt", weights_only=True)
    ours = load_checkpoint(save_checkpoint("run", 1, state)["path"], weights_only=True)
    assert ours.keys() == theirs.keys() and ours["optimizer"]["param_groups"] == theirs["optimizer"]["param_groups"]
    assert ours["epoch"] == 3 and torch.equal(ours["model"]["weight"], theirs["model"]["weight"])


class TestTrainerFacingUtilities:
    """`src/training/checkpointing.py`: "retention, weights_only"."""

    @pytest.mark.parametrize("options", [{}, {"weights_only": True}, {"weights_only": False}])
    def test_what_it_saved_is_loaded(self, options: dict[str, bool], old: Callable[[str], Any]) -> None:
        module = old("codex_ml.training.checkpointing")
        model, optimizer = _trained()
        path = module.save_checkpoint(model, optimizer, epoch=3, val_metric=0.5, out_dir="~/run")
        assert path == Path.home() / "run" / "epoch3-metric0.500000.pt"
        other, again = _trained()
        assert module.load_checkpoint(path, other, again, **options) == (3, 0.5)
        assert torch.equal(other.weight, model.weight)
        assert again.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
        assert torch.load(path, weights_only=True)["epoch"] == 3

    @pytest.mark.parametrize("options", [{}, {"weights_only": True}, {"weights_only": False}])
    def test_weights_only(self, options: dict[str, bool], tmp_path: Path, old: Callable[[str], Any]) -> None:
        """A file that would run something is refused, whatever is asked for; the model stays as it was."""
        victim, model = tmp_path / "ran", _trained()[0]
        before = model.weight.clone()
        evil = {"model_state": _trained()[0].state_dict(), "epoch": 1, "val_metric": 0.1, "extra": _Evil(victim)}
        torch.save(evil, tmp_path / "epoch1-metric0.100000.pt")
        with pytest.raises(HoldfastError, match="weights_only"):
            old("codex_ml.training.checkpointing").load_checkpoint(
                tmp_path / "epoch1-metric0.100000.pt", model, **options
            )
        assert not victim.exists() and torch.equal(model.weight, before)

    def test_a_file_of_codex_ml_is_loaded(self, tmp_path: Path, old: Callable[[str], Any]) -> None:
        model, optimizer = _trained()
        theirs = {
            "model_state": model.state_dict(), "optimizer_state": optimizer.state_dict(), "val_metric": 0.25,
            "epoch": 4, "rng_cpu": torch.get_rng_state(), "rng_cuda_all": None, "peft_state": {"a": torch.ones(1)},
        }  # fmt: skip
        torch.save(theirs, tmp_path / "epoch4-metric0.250000.pt")
        expected = torch.rand(3)
        other, again = _trained()
        module = old("codex_ml.training.checkpointing")
        assert module.load_checkpoint(str(tmp_path / "epoch4-metric0.250000.pt"), other, again) == (4, 0.25)
        assert torch.equal(other.weight, model.weight) and torch.equal(torch.rand(3), expected)

    def test_retention(self, tmp_path: Path, old: Callable[[str], Any]) -> None:
        module = old("codex_ml.training.checkpointing")
        (tmp_path / "epoch-final.pt").write_bytes(b"the user's")
        for epoch, metric in enumerate((0.5, float("nan"), 0.3, 0.4), 1):
            module.save_checkpoint(*_trained(), epoch=epoch, val_metric=metric, out_dir=tmp_path, keep_best_k=2)
        kept = sorted(path.name for path in tmp_path.glob("*.pt"))
        assert kept == ["epoch-final.pt", "epoch3-metric0.300000.pt", "epoch4-metric0.400000.pt"]


class _Evil:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return Path.touch, (self.victim,)
