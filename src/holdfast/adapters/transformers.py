"""Holdfast as a callback of the `Trainer` of Transformers: each of its saves is also an atomic, verified checkpoint.

    Trainer(..., callbacks=[HoldfastCallback("runs/exp1/checkpoints", keep_last=3, best_key="eval_loss")])

Go on, bit for bit, with `trainer.train(resume_from_checkpoint=callback.prepare(trainer))`. Under `torchrun` every rank
calls the same; the first one writes, and the random states of all of them are kept.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.durable import disk, remove_tree, sync_folder
from holdfast.errors import Conflict, Extra, NotFound, Refused, Unavailable
from holdfast.training import sweeping
from holdfast.training.manager import CheckpointManager, Resumed
from holdfast.training.resume.rng import capture_rng, restore_rng

with Extra("transformers"):
    import torch
    import torch.distributed as dist
    from transformers import TrainerCallback, TrainerState

_log = logging.getLogger("holdfast")

_OURS = ".holdfast-prepared"
"""The file by which `prepare` knows a folder that it has made itself; it names what was written there."""


class HoldfastCallback(TrainerCallback):  # type: ignore[misc]  # an extra, whose types are not read
    """Saves model, optimiser, schedule, scaler, random states and the trainer's own state whenever the trainer saves.

    `options` are those of `CheckpointManager`. Ends the training, saved, when SIGTERM comes to any rank.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        self.manager = CheckpointManager(root, **options)
        self.notes: tuple[str, ...] = ()
        """What `prepare` could not restore, or passed over."""
        self._keeps_rng = bool(options.get("rng", True))
        self._ranks = _Ranks()
        self._step = -1
        """The step that was saved or loaded last, by this callback."""
        self._metrics: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        sharded = [name for name in ("fsdp", "deepspeed") if getattr(args, name, None)]
        if sharded:
            what = f"the trainer shards its model ({sharded[0]}), and HoldfastCallback saves whole ones"
            raise Refused(what, hint="Save with torch.distributed.checkpoint and holdfast.adapters.dcp.HoldfastWriter.")
        self.manager.__enter__()

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self._metrics = {name: value for name, value in (metrics or {}).items() if _is_number(value)}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ranks.any(self.manager.should_stop):  # one that stopped alone would leave the others waiting for it
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save, on the first rank, what all of them have; an error is raised on every rank."""
        rng = self._ranks.each(capture_rng) if self._keeps_rng and self._ranks.count > 1 else None
        self._ranks.first(lambda: self._save(state, kwargs, rng))

    def _save(self, state: Any, kwargs: dict[str, Any], rng: list[Any] | None) -> None:
        if not state.is_world_process_zero or state.global_step == self._step:  # SIGTERM and the schedule may meet
            return
        parts = {"model": kwargs.get("model"), "optimizer": kwargs.get("optimizer")}
        parts |= {"scheduler": kwargs.get("lr_scheduler"), "scaler": getattr(kwargs.get("optimizer"), "scaler", None)}
        saved = {name: part.state_dict() for name, part in parts.items() if part is not None}
        saved |= {"trainer": dataclasses.asdict(state), "world_size": self._ranks.count}
        self.manager.save(state.global_step, saved if rng is None else saved | {"ranks": rng}, self._metrics)
        self._step = state.global_step

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.manager.__exit__(None, None, None)

    def prepare(self, trainer: Any) -> str | None:
        """Write the newest sound checkpoint as the trainer itself would have, and return where; None if there is none.

        It goes to a folder of its own below the trainer's `output_dir`, which its own rotation leaves alone. All ranks
        call this, and get the same. What a run of another number of ranks cannot have back is logged, and in `notes`.
        """
        place, rng, self.notes = self._ranks.first(lambda: self._prepare(trainer))
        if place is None:
            return None
        self._ranks.each(lambda: _save_own_rng(trainer, Path(place), rng, self._ranks.own))
        self._ranks.first(lambda: _close(Path(place)))
        for note in self.notes if self._ranks.own == 0 else ():
            _log.warning("%s", note)
        return str(place)

    def _prepare(self, trainer: Any) -> tuple[str | None, list[Any], tuple[str, ...]]:
        """What the first rank does: the folder, and of each rank its random states."""
        resumed = self._load(trainer.model)
        if resumed is None:
            return None, [], ()
        place = Path(trainer.args.output_dir, f"holdfast-{resumed.step}")
        _make_empty(place)
        trainer.save_model(str(place), _internal_call=True)  # else it may be pushed to the hub
        for name in ("optimizer", "scheduler", "scaler"):
            if name in resumed.state:
                torch.save(resumed.state[name], place / f"{name}.pt")
        TrainerState(**resumed.state["trainer"]).save_to_json(str(place / "trainer_state.json"))
        rng = resumed.state.get("ranks") or ([capture_rng()] if self._keeps_rng else [])
        return str(place), rng, (*resumed.problems, *self._changed(resumed.state))

    def resume(self, model: Any, optimizer: Any = None, scheduler: Any = None, **options: Any) -> Resumed | None:
        """Load the newest sound checkpoint into what is given; None if nothing was saved yet.

        Each rank gets its own random states back, if it had some when the checkpoint was saved.
        """
        resumed = self._load(model, optimizer, scheduler, **options)
        if resumed is None or not options.get("rng", True):
            return resumed
        rng = resumed.state.get("ranks") or []
        notes = restore_rng(rng[self._ranks.own]) if self._ranks.own < len(rng) else []
        return dataclasses.replace(resumed, problems=(*resumed.problems, *notes, *self._changed(resumed.state)))

    def _load(self, model: Any, optimizer: Any = None, scheduler: Any = None, **options: Any) -> Resumed | None:
        if self._ranks.own:
            options["rng"] = False  # what the manager keeps is that of the first rank
        resumed = self.manager.resume(**options)
        if resumed is not None:
            self._step = resumed.step
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            parts["scaler"] = getattr(optimizer, "scaler", None)  # of float16, as Accelerate keeps it
            for name, part in parts.items():
                if part is not None and name in resumed.state:
                    part.load_state_dict(resumed.state[name])
        return resumed

    def _changed(self, state: dict[str, Any]) -> list[str]:
        """What another number of ranks does not have back (P4)."""
        before, now = state.get("world_size", 1), self._ranks.count
        if before == now:
            return []
        kept = "weights, optimiser, schedule, scaler and the trainer's state are restored"
        alone = range(min(before, now), max(before, now))
        whose = f"rank {alone[0]}" if len(alone) == 1 else f"ranks {alone[0]} to {alone[-1]}"
        lost = (
            f"there are no random states for {whose}" if now > before else f"the random states of {whose} are not used"
        )
        numbers = f"it was saved with a world size of {before} and is resumed with {now}"
        return [f"{numbers}: {kept}; {lost}, and each rank gets other data"]


class _Ranks:
    """The processes of a distributed run, which act together; alone, the one that there is."""

    def __init__(self) -> None:
        self._group: Any = None

    @property
    def own(self) -> int:
        return int(dist.get_rank()) if self.count > 1 else 0

    @property
    def count(self) -> int:
        return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1

    def each(self, act: Callable[[], Any]) -> list[Any]:
        """Act on every rank, and return what came of it on all; if one fails, all do: none waits for ever."""
        if self.count == 1:
            return [act()]
        mine: Any = None
        failure: Exception | None = None
        try:
            mine = act()
        except Exception as error:
            failure = error
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, (mine, failure and str(getattr(failure, "message", failure))), group=self._cpu())
        if failure is not None:
            raise failure
        for rank, (_, told) in enumerate(found):
            if told is not None:
                raise Unavailable(f"rank {rank} failed: {told}", hint="See to that, and start all ranks again.")
        return [result for result, _ in found]

    def first(self, act: Callable[[], Any]) -> Any:
        """Act on the first rank alone; every rank gets what came of it."""
        return self.each(act if self.own == 0 else lambda: None)[0]

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        if self.count == 1:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._cpu())
        return bool(found)

    def _cpu(self) -> Any:
        """A group whose messages do not wait for a device; made by all ranks at once, when they first need it."""
        if self._group is None:
            self._group = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        return self._group


def _save_own_rng(trainer: Any, place: Path, rng: list[Any], rank: int) -> None:
    """Set this rank's random states back, and write them as the trainer does, which reads them when it goes on."""
    if not place.is_dir():
        what = f"rank {rank} does not see {place}"
        raise NotFound(what, hint="Let output_dir be on a file system that all ranks see.")
    if rank < len(rng):
        restore_rng(rng[rank])
        trainer._save_rng_state(str(place))  # there is no public way


def _make_empty(place: Path) -> None:
    """Make a folder in place of the one that was prepared before; Conflict if it is somebody else's."""
    if os.path.lexists(place):
        if not (place / _OURS).is_file() or place.is_symlink():
            raise Conflict(f"{place} is there, and was not prepared by Holdfast", hint="Move it away.")
        written = (place / _OURS).read_text()  # empty if `prepare` was interrupted: then nobody was given the folder
        if written and set(_names(place)) - set(json.loads(written)):  # P1: a file of somebody else
            kept = sweeping.aside(place, "replaced")
            _log.warning("kept, because Holdfast did not write all of it: %s", kept)
            disk().rename(str(place), str(kept))
        else:
            remove_tree(str(place))
    place.mkdir(parents=True)
    (place / _OURS).touch()


def _close(place: Path) -> None:
    """Say what was written, so that what comes later is known to be somebody else's."""
    (place / _OURS).write_text(json.dumps(_names(place)))
    sync_folder(place)


def _names(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
