"""What each rank does, under `torchrun`: `transformers_ranks.py ACTS FOLDER`. A real trainer and a tiny model."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import transformers

from holdfast.adapters.transformers import HoldfastCallback

STEPS, STOP = 14, 9  # 6 steps are an epoch of two ranks, so that the run is stopped in the middle of the second


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.dropout = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        count = 1 + rank()  # so that the ranks do not come to have the same random states
        noise = sum(random.random() for _ in range(count)) + float(
            np.random.rand(count).sum() + torch.rand(count).sum()
        )
        out = self.last(self.dropout(self.first(x))) * (1 + noise / 100)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Stop(transformers.TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == STOP:
            raise InterruptedError


def trainer(root: Path, *callbacks: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    data = [{"x": torch.randn(4, generator=generator), "labels": torch.zeros(1)} for _ in range(24)]
    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        str(root), max_steps=STEPS, save_steps=4, report_to=[], per_device_train_batch_size=2, use_cpu=True,
        disable_tqdm=True, logging_steps=1, learning_rate=0.05, ddp_backend="gloo" if dist.is_initialized() else None,
    )  # fmt: skip
    return transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=list(callbacks))


def keep(run: Any, path: Path) -> None:
    """What the run has come to, on this rank."""
    path.mkdir(parents=True, exist_ok=True)
    draws = random.random(), float(np.random.rand()), torch.rand(3).tolist()
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    moments = run.optimizer.state_dict()["state"]
    torch.save({"weights": weights, "moments": moments, "draws": draws}, path / f"{rank()}.pt")


def first(root: Path) -> None:
    """A run to its end, and one that is stopped."""
    straight = trainer(root / "straight", HoldfastCallback(root / "straight/ours"))
    straight.train()
    keep(straight, root / "kept/straight")
    stopped = trainer(root / "hf", HoldfastCallback(root / "ours"), Stop())
    try:
        stopped.train()
    except InterruptedError:
        pass
    else:
        raise AssertionError("it was not stopped")
    dist.barrier()
    if dist.get_rank() == 0:
        for ranks in (1, 2, 3):
            shutil.copytree(root / "ours", root / f"ours-{ranks}")


def again(root: Path) -> None:
    """Both go on: by the trainer's own checkpoint, and by ours; the second prepares the same folder again."""
    theirs = trainer(root / "hf")
    theirs.train(resume_from_checkpoint=str(root / "hf/checkpoint-8"))
    keep(theirs, root / "kept/theirs")
    for number in (1, 2):
        callback = HoldfastCallback(root / "ours")
        callback.manager.prune()
        ours = trainer(root / "prepared", callback, Stop())
        place = callback.prepare(ours)
        assert place == str(root / "prepared/holdfast-8"), place
        if number == 1:
            continue
        ours.remove_callback(Stop)
        assert ours.train(resume_from_checkpoint=place).global_step == STEPS
        keep(ours, root / "kept/ours")


def plain(root: Path) -> None:
    """Without a trainer: only one rank saves a step, and none gets the random states of another."""
    from holdfast.errors import Conflict
    from holdfast.training import CheckpointManager

    torch.manual_seed(rank())
    manager, told = CheckpointManager(root / "plain"), ""
    try:
        manager.save(1, {"x": 1})
    except Conflict as error:
        told = str(error)
    both: list[str] = ["", ""]
    dist.all_gather_object(both, told)
    assert both.count("") == 1, both
    assert "HoldfastWriter" in "".join(both), both
    saver = both.index("")
    expected = torch.rand(3)
    resumed = manager.resume()
    assert resumed is not None
    if rank() == saver:
        assert resumed.problems == ()
        assert torch.equal(torch.rand(3), expected)
    else:
        assert f"those of rank {saver}" in resumed.problems[0], resumed.problems
    loaded = HoldfastCallback(root / "ours-2").resume(Model())
    assert loaded is not None
    assert loaded.problems == ()
    own = torch.load(root / f"hf/checkpoint-8/rng_state_{rank()}.pth", weights_only=False)
    assert torch.equal(torch.get_rng_state(), own["cpu"])
    assert random.getstate() == own["python"]


def others(root: Path) -> None:
    """Another number of ranks goes on."""
    ranks = dist.get_world_size()
    callback = HoldfastCallback(root / f"ours-{ranks}")
    run = trainer(root / f"with-{ranks}", callback)
    place = callback.prepare(run)
    assert place is not None
    files = sorted(path.name for path in Path(place).glob("rng_state*"))
    expected = ["rng_state.pth"] if ranks == 1 else ["rng_state_0.pth", "rng_state_1.pth"]
    assert files == expected, files
    if dist.get_rank() == 0:
        (root / f"told-{ranks}").write_text("\n".join(callback.notes))
    assert run.train(resume_from_checkpoint=place).global_step == STEPS


def fail(root: Path) -> None:
    """What the first rank cannot save, or cannot prepare, is an error on all: none waits for ever."""
    from holdfast.errors import HoldfastError

    target = root / "failing" / "ours"
    if dist.get_rank() == 0:
        target.mkdir(parents=True)
        (target / "last").write_text("mine")
    dist.barrier()
    for act in (lambda: trainer(root / "failing/hf", HoldfastCallback(target)).train(), lambda: _prepare(root)):
        try:
            act()
        except HoldfastError as error:
            (root / f"error-{dist.get_rank()}").open("a").write(f"{error}\n")
        else:
            raise AssertionError("nothing was told")


def _prepare(root: Path) -> None:
    place = root / "taken" / "holdfast-14"
    if dist.get_rank() == 0:
        place.mkdir(parents=True)
        (place / "notes.txt").write_text("mine")
    dist.barrier()
    callback = HoldfastCallback(root / "straight/ours")
    callback.prepare(trainer(root / "taken", callback))


def signalled(root: Path) -> None:
    """SIGTERM that reaches one rank alone ends all of them at the same step, saved."""
    import signal

    class Signal(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 5 and rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    callback = HoldfastCallback(root / "signalled/ours")
    run = trainer(root / "signalled/hf", callback, Signal())
    run.train()
    assert run.state.global_step == 6, run.state.global_step
    assert callback.manager.latest().step == 6  # type: ignore[union-attr]


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    acts = {act.__name__: act for act in (first, again, plain, others, fail, signalled)}
    for name in sys.argv[1].split(","):
        acts[name](Path(sys.argv[2]))
        Path(sys.argv[2], f"{name}-done-{dist.get_rank()}").touch()
        dist.barrier()
    os._exit(0)  # the threads of gloo do not always outlive the end of the interpreter
