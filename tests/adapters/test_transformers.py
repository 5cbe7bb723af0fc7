"""The `Trainer` of Transformers, with Holdfast as a callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from holdfast.adapters.transformers import HoldfastCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # what the trainer says of its own dependencies


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def trainer(folder: Path, callback: HoldfastCallback, steps: int) -> Any:
    torch.manual_seed(0)
    data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(16)]
    arguments = transformers.TrainingArguments(
        str(folder / "hf"), max_steps=steps, save_steps=2, eval_strategy="steps", eval_steps=2, report_to=[],
        per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, save_safetensors=True,
    ) if _takes("save_safetensors") else transformers.TrainingArguments(
        str(folder / "hf"), max_steps=steps, save_steps=2, eval_strategy="steps", eval_steps=2, report_to=[],
        per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    return transformers.Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[callback])


def _takes(name: str) -> bool:
    return name in transformers.TrainingArguments.__dataclass_fields__


def test_every_save_of_the_trainer_is_a_checkpoint(tmp_path: Path) -> None:
    callback = HoldfastCallback(tmp_path / "ours", keep_last=2, best_key="eval_loss")
    run = trainer(tmp_path, callback, 6)
    run.train()
    steps = [each.step for each in callback.manager.history()]
    assert steps[-2:] == [4, 6]
    best = callback.manager.best()
    assert best is not None
    assert best.metrics["eval_loss"] >= 0
    assert callback.manager.verify().ok
    other = Model()
    resumed = HoldfastCallback(tmp_path / "ours").resume(other)
    assert resumed is not None
    assert resumed.step == 6
    assert torch.equal(other.layer.weight, run.model.layer.weight)
    assert resumed.state["trainer"]["global_step"] == 6
    assert "optimizer" in resumed.state
