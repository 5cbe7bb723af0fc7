"""A callback for the `Trainer` of Transformers: each of its saves is also an atomic, verified Holdfast checkpoint.

    Trainer(..., callbacks=[HoldfastCallback("runs/exp1/checkpoints", keep_last=3, best_key="eval_loss")])

Continue, bit for bit, with `trainer.train(resume_from_checkpoint=callback.prepare(trainer))`. Under `torchrun` every
rank calls the same; the first one writes, and saves the random states of all of them.
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
from holdfast.training.folder import free_name
from holdfast.training.manager import CheckpointManager, Resumed
from holdfast.training.resume.rng import capture_rng, restore_rng
from holdfast.validation import check_known, parameters_of

with Extra("transformers"):
    import torch
    import torch.distributed as dist
    from transformers import TrainerCallback, TrainerState

_log = logging.getLogger("holdfast")

_OURS = ".holdfast-prepared"
"""The file that marks a folder as made by `prepare`; it lists what was written there."""


class HoldfastCallback(TrainerCallback):  # type: ignore[misc]  # an extra, whose types are not read
    """Saves model, optimizer, scheduler, scaler, random states and the trainer's state whenever the trainer saves.

    `options` are those of `CheckpointManager`. On SIGTERM to any rank, saves and ends the training.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        """`options` are those of `CheckpointManager`."""
        check_known(options, set(parameters_of(CheckpointManager.__init__)) - {"root"}, "HoldfastCallback")
        self.manager = CheckpointManager(root, **options)
        self.notes: tuple[str, ...] = ()
        """What `prepare` could not restore, or skipped (P4)."""
        self._keeps_rng = bool(options.get("rng", True))
        self._ranks = _Ranks()
        self._step = -1
        """The step that this callback saved or loaded last."""
        self._metrics: dict[str, float] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        sharded = [name for name in ("fsdp", "deepspeed") if getattr(args, name, None)]
        if sharded:
            what = f"the trainer shards its model ({sharded[0]}), and HoldfastCallback saves only whole ones"
            raise Refused(what, hint="Save with torch.distributed.checkpoint and holdfast.adapters.dcp.HoldfastWriter.")
        self.manager.__enter__()

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self._metrics = {name: value for name, value in (metrics or {}).items() if _is_number(value)}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._ranks.any(
            self.manager.should_stop
        ):  # all ranks stop together: the others would wait for one that stops alone
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save on the first rank, with the random states of all. An error is raised on every rank."""
        rng = self._ranks.each(capture_rng) if self._keeps_rng and self._ranks.count > 1 else None
        self._ranks.first(lambda: self._save(state, kwargs, rng))

    def _save(self, state: Any, kwargs: dict[str, Any], rng: list[Any] | None) -> None:
        if (
            not state.is_world_process_zero or state.global_step == self._step
        ):  # SIGTERM may come at a step that is saved anyway
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
        """Write the newest sound checkpoint in the trainer's own format, and return its folder; None if there is none.

        The folder is below the trainer's `output_dir`, under a name that the trainer's rotation ignores. All ranks call
        this, and get the same. What a run with another number of ranks cannot restore is logged, and is in `notes`.
        """
        folder, rng, self.notes = self._ranks.first(lambda: self._prepare(trainer))
        if folder is None:
            return None
        self._ranks.each(lambda: _save_own_rng(trainer, Path(folder), rng, self._ranks.own))
        self._ranks.first(lambda: _close(Path(folder)))
        for note in self.notes if self._ranks.own == 0 else ():
            _log.warning("%s", note)
        return str(folder)

    def _prepare(self, trainer: Any) -> tuple[str | None, list[Any], tuple[str, ...]]:
        """Write the folder, on the first rank; also return the random states of each rank."""
        resumed = self._load(trainer.model)
        if resumed is None:
            return None, [], ()
        folder = Path(trainer.args.output_dir, f"holdfast-{resumed.step}")
        _make_empty(folder)
        trainer.save_model(str(folder), _internal_call=True)  # otherwise it may push to the hub
        for name in ("optimizer", "scheduler", "scaler"):
            if name in resumed.state:
                torch.save(resumed.state[name], folder / f"{name}.pt")
        TrainerState(**resumed.state["trainer"]).save_to_json(str(folder / "trainer_state.json"))
        rng = resumed.state.get("ranks") or ([capture_rng()] if self._keeps_rng else [])
        return str(folder), rng, (*resumed.problems, *self._changed(resumed.state))

    def resume(self, model: Any, optimizer: Any = None, scheduler: Any = None, **options: Any) -> Resumed | None:
        """Load the newest sound checkpoint into model, optimizer and scheduler; None if nothing was saved yet.

        Restores the random states of each rank, if the checkpoint has some for it. `options` are those of
        `CheckpointManager.resume`.
        """
        resumed = self._load(model, optimizer, scheduler, **options)
        if resumed is None or not options.get("rng", True):
            return resumed
        rng = resumed.state.get("ranks") or []
        notes = restore_rng(rng[self._ranks.own]) if self._ranks.own < len(rng) else []
        return dataclasses.replace(resumed, problems=(*resumed.problems, *notes, *self._changed(resumed.state)))

    def _load(self, model: Any, optimizer: Any = None, scheduler: Any = None, **options: Any) -> Resumed | None:
        if self._ranks.own:
            options["rng"] = False  # the manager has saved those of the first rank
        resumed = self.manager.resume(**options)
        if resumed is not None:
            self._step = resumed.step
            parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
            parts["scaler"] = getattr(optimizer, "scaler", None)  # for float16; Accelerate stores it there
            for name, part in parts.items():
                if part is not None and name in resumed.state:
                    part.load_state_dict(resumed.state[name])
        return resumed

    def _changed(self, state: dict[str, Any]) -> list[str]:
        """Return what is not restored with another number of ranks (P4)."""
        before, now = state.get("world_size", 1), self._ranks.count
        if before == now:
            return []
        kept = "model, optimizer, scheduler, scaler and the trainer's state are restored"
        alone = range(min(before, now), max(before, now))
        whose = f"rank {alone[0]}" if len(alone) == 1 else f"ranks {alone[0]} to {alone[-1]}"
        lost = (
            f"there are no random states for {whose}" if now > before else f"the random states of {whose} are not used"
        )
        numbers = f"it was saved with a world size of {before} and is resumed with {now}"
        return [f"{numbers}: {kept}; {lost}, and each rank gets other data"]


class _Ranks:
    """The processes of a distributed run; or this one, if the run is not distributed."""

    def __init__(self) -> None:
        self._group: Any = None

    @property
    def own(self) -> int:
        return int(dist.get_rank()) if self.count > 1 else 0

    @property
    def count(self) -> int:
        return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1

    def each(self, act: Callable[[], Any]) -> list[Any]:
        """Call a function on every rank, and return the results of all. If one fails, all raise: none waits forever."""
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
        for rank, (_, message) in enumerate(found):
            if message is not None:
                raise Unavailable(f"rank {rank} failed: {message}", hint="Fix that, and start all ranks again.")
        return [result for result, _ in found]

    def first(self, act: Callable[[], Any]) -> Any:
        """Call a function on the first rank only. Every rank gets its result."""
        return self.each(act if self.own == 0 else lambda: None)[0]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        if self.count == 1:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self._cpu())
        return bool(found)

    def _cpu(self) -> Any:
        """Return a group that communicates without devices. All ranks create it together, at its first use."""
        if self._group is None:
            self._group = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
        return self._group


def _save_own_rng(trainer: Any, folder: Path, rng: list[Any], rank: int) -> None:
    """Restore this rank's random states, and write them in the trainer's format, which reads them when it continues."""
    if not folder.is_dir():
        what = f"rank {rank} has no {folder}"
        raise NotFound(what, hint="Use an output_dir on a file system that all ranks share.")
    if rank < len(rng):
        restore_rng(rng[rank])
        trainer._save_rng_state(str(folder))  # no public API


def _make_empty(folder: Path) -> None:
    """Create a folder in place of the one that was prepared before. Conflict if Holdfast did not make that (P1)."""
    if os.path.lexists(folder):
        if not (folder / _OURS).is_file() or folder.is_symlink():
            raise Conflict(f"{folder} exists and was not prepared by Holdfast", hint="Move it away.")
        written = (folder / _OURS).read_text()  # empty if `prepare` was interrupted: then nobody uses the folder
        if written and set(_names(folder)) - set(json.loads(written)):  # P1: a file of another program
            kept = free_name(folder, "replaced")
            _log.warning("kept, because Holdfast did not write all of it: %s", kept)
            disk().rename(str(folder), str(kept))
        else:
            remove_tree(str(folder))
    folder.mkdir(parents=True)
    (folder / _OURS).touch()


def _close(folder: Path) -> None:
    """List what was written, so that a later file is recognized as foreign."""
    (folder / _OURS).write_text(json.dumps(_names(folder)))
    sync_folder(folder)


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
