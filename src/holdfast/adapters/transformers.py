"""Holdfast as a callback of the `Trainer` of Transformers: each of its saves is also an atomic, verified checkpoint.

    Trainer(..., callbacks=[HoldfastCallback("runs/exp1/checkpoints", keep_last=3, best_key="eval_loss")])

Go on, bit for bit, with `trainer.train(resume_from_checkpoint=callback.prepare(trainer))`.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from holdfast.durable import remove_tree
from holdfast.errors import Conflict, Extra
from holdfast.training.manager import CheckpointManager, Resumed

with Extra("transformers"):
    import torch
    from transformers import TrainerCallback, TrainerState


_OURS = ".holdfast-prepared"
"""An empty file by which `prepare` knows a folder that it has made itself."""


class HoldfastCallback(TrainerCallback):  # type: ignore[misc]  # an extra, whose types are not read
    """Saves model, optimiser, schedule, scaler, random states and the trainer's own state whenever the trainer saves.

    `options` are those of `CheckpointManager`. Ends the training, saved, when SIGTERM comes.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        self.manager = CheckpointManager(root, **options)
        self._metrics: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.manager.__enter__()

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self._metrics = {name: value for name, value in (metrics or {}).items() if _is_number(value)}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.manager.should_stop:
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        latest = self.manager.latest()
        if latest is not None and latest.step == state.global_step:
            return
        parts = {"model": kwargs.get("model"), "optimizer": kwargs.get("optimizer")}
        parts |= {"scheduler": kwargs.get("lr_scheduler"), "scaler": getattr(kwargs.get("optimizer"), "scaler", None)}
        saved = {name: part.state_dict() for name, part in parts.items() if part is not None}
        self.manager.save(state.global_step, saved | {"trainer": dataclasses.asdict(state)}, self._metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.manager.__exit__(None, None, None)

    def prepare(self, trainer: Any) -> str | None:
        """Write the newest sound checkpoint as the trainer itself would have, and return where; None if there is none.

        It goes to a folder of its own below the trainer's `output_dir`, which its own rotation leaves alone.
        """
        resumed = self.resume(trainer.model)
        if resumed is None:
            return None
        place = Path(trainer.args.output_dir, f"holdfast-{resumed.step}")
        _make_empty(place)
        trainer.save_model(str(place))
        for name in ("optimizer", "scheduler", "scaler"):
            if name in resumed.state:
                torch.save(resumed.state[name], place / f"{name}.pt")
        TrainerState(**resumed.state["trainer"]).save_to_json(str(place / "trainer_state.json"))
        trainer._save_rng_state(str(place))  # there is no public way; `resume` has just set the random states back
        return str(place)

    def resume(self, model: Any, optimizer: Any = None, scheduler: Any = None, **options: Any) -> Resumed | None:
        """Load the newest sound checkpoint into what is given; None if nothing was saved yet."""
        resumed = self.manager.resume(**options)
        if resumed is not None:
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            parts["scaler"] = getattr(optimizer, "scaler", None)  # of float16, as Accelerate keeps it
            for name, part in parts.items():
                if part is not None and name in resumed.state:
                    part.load_state_dict(resumed.state[name])
        return resumed


def _make_empty(place: Path) -> None:
    """Make a folder in place of the one that was prepared before; Conflict if it is somebody else's."""
    if os.path.lexists(place):
        if not (place / _OURS).is_file():
            raise Conflict(f"{place} is there, and was not prepared by Holdfast", hint="Move it away.")
        remove_tree(str(place))
    place.mkdir(parents=True)
    (place / _OURS).touch()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
