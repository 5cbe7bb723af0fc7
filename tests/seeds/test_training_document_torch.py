"""codex_ml's guide: what it says of PyTorch."""

from __future__ import annotations

from pathlib import Path

import torch

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
