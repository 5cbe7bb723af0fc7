"""The `Trainer` of Transformers, with Holdfast as a callback."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from holdfast.adapters.transformers import HoldfastCallback
from holdfast.errors import Conflict, Refused

pytestmark = [
    pytest.mark.extras,
    pytest.mark.usefixtures("no_network"),
    pytest.mark.filterwarnings("ignore"),  # what the trainer says of its own dependencies
]


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        out = self.layer(self.dropout(x))
        return {"loss": (out - labels).square().mean(), "logits": out}


def trainer(folder: Path, callback: HoldfastCallback, steps: int) -> Any:
    torch.manual_seed(0)
    data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(16)]
    arguments = transformers.TrainingArguments(
        str(folder / "hf"), max_steps=steps, save_steps=2, eval_strategy="steps", eval_steps=2, report_to=[],
        per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    return transformers.Trainer(Model(), arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[callback])


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


class Stop(transformers.TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 5:
            raise InterruptedError


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    straight = trainer(tmp_path / "straight", HoldfastCallback(tmp_path / "straight/ours"), 10)
    straight.train()
    callback = HoldfastCallback(tmp_path / "ours")
    stopped = trainer(tmp_path, callback, 10)
    assert callback.prepare(stopped) is None
    stopped.add_callback(Stop())
    with pytest.raises(InterruptedError):
        stopped.train()
    shutil.rmtree(tmp_path / "hf")  # nothing of the trainer's own is needed
    again = HoldfastCallback(tmp_path / "ours")
    resumed = trainer(tmp_path, again, 10)
    assert [resumed.train(resume_from_checkpoint=again.prepare(resumed)).global_step] == [10]
    assert torch.equal(resumed.model.layer.weight, straight.model.layer.weight)
    losses = [[(entry["step"], entry["loss"]) for entry in run.state.log_history if "loss" in entry]
              for run in (straight, resumed)]  # fmt: skip
    assert losses[0] == losses[1]
    assert [each.step for each in again.manager.history()] == [2, 4, 6, 8, 10]


def test_one_process_saves_and_a_step_is_saved_once(tmp_path: Path) -> None:
    callback, model = HoldfastCallback(tmp_path), Model()
    callback.on_save(None, transformers.TrainerState(global_step=3, is_world_process_zero=False), None, model=model)
    assert callback.manager.latest() is None
    for _ in range(2):  # the trainer's own schedule and SIGTERM may ask for the same one
        callback.on_save(None, transformers.TrainerState(global_step=3), None, model=model)
    assert [each.step for each in callback.manager.history()] == [3]


def test_the_scaler_of_float16_comes_back_too(tmp_path: Path) -> None:
    def scaled(model: Model, scale: float) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.scaler = torch.amp.GradScaler("cpu", init_scale=scale)  # where Accelerate keeps it
        return optimizer

    callback, model = HoldfastCallback(tmp_path / "ours"), Model()
    state = transformers.TrainerState(global_step=3)
    callback.on_save(None, state, None, model=model, optimizer=scaled(model, 8.0))
    optimizer = scaled(model, 2.0)
    callback.resume(model, optimizer)
    assert optimizer.scaler.get_scale() == 8.0
    place = callback.prepare(trainer(tmp_path, callback, 4))
    assert place is not None
    assert torch.load(Path(place, transformers.trainer.SCALER_NAME), weights_only=True)["scale"] == 8.0


def test_only_a_folder_that_was_prepared_is_prepared_again(tmp_path: Path) -> None:
    callback, model = HoldfastCallback(tmp_path / "ours"), Model()
    callback.on_save(None, transformers.TrainerState(global_step=3), None, model=model)
    hugging = trainer(tmp_path, callback, 4)
    place = Path(hugging.args.output_dir, "holdfast-3")
    place.mkdir(parents=True)
    (place / "notes.txt").write_text("mine")
    with pytest.raises(Conflict, match="was not prepared"):
        callback.prepare(hugging)
    assert (place / "notes.txt").read_text() == "mine"
    (place / "notes.txt").unlink()
    place.rmdir()
    for _ in range(2):
        assert callback.prepare(hugging) == str(place)


def test_what_is_measured_and_no_number_is_left_out(tmp_path: Path) -> None:
    callback = HoldfastCallback(tmp_path, best_key="eval_loss")
    callback.on_evaluate(None, None, None, metrics={"eval_loss": 0.5, "eval_done": True, "eval_name": "x"})
    callback.on_save(None, transformers.TrainerState(global_step=3), None, model=Model())
    best = callback.manager.best()
    assert best is not None and best.metrics == {"eval_loss": 0.5}


def test_a_file_of_others_in_a_prepared_folder_is_kept(tmp_path: Path) -> None:
    callback, model = HoldfastCallback(tmp_path / "ours"), Model()
    callback.on_save(None, transformers.TrainerState(global_step=3), None, model=model)
    hugging = trainer(tmp_path, callback, 4)
    place = Path(callback.prepare(hugging) or "")
    (place / "notes.txt").write_text("mine")
    assert callback.prepare(hugging) == str(place)
    assert (place.with_name("holdfast-3.replaced-1") / "notes.txt").read_text() == "mine"
    assert not (place / "notes.txt").exists()
    (place / ".holdfast-prepared").write_text("")  # as one that was killed leaves it
    assert callback.prepare(hugging) == str(place)
    assert sorted(path.name for path in place.parent.iterdir()) == ["holdfast-3", "holdfast-3.replaced-1"]


def test_a_step_of_another_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    state = transformers.TrainerState(global_step=3)
    HoldfastCallback(tmp_path).on_save(None, state, None, model=Model())
    with pytest.raises(Conflict, match="step 3 is already saved"):
        HoldfastCallback(tmp_path).on_save(None, state, None, model=Model())
    goes_on = HoldfastCallback(tmp_path)
    goes_on.resume(Model())
    goes_on.on_save(None, state, None, model=Model())  # it is the one that was loaded


@pytest.mark.parametrize("option", ["fsdp", "deepspeed"])
def test_a_trainer_that_shards_its_model_is_refused(option: str, tmp_path: Path) -> None:
    arguments = transformers.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
    setattr(arguments, option, {"zero_stage": 3})
    with pytest.raises(Refused, match=option):
        HoldfastCallback(tmp_path).on_train_begin(arguments, None, None)
