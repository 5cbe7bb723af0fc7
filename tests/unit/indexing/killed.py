"""A process that kills itself at a given step. It logs what it pays for."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast.indexing.ledger.sqlite import SQLiteLedger

from .scene import Model, Scene

_STEPS = (
    "intend",
    "publish",
    "remove",
    "add_batch",
    "set_label",
    "begin",
    "make_live",
    "forget",
    "recipe",
    "fail",
    "redo",
)
_PRUNING_STEPS = ("_drop_cuts", "_mark_idle", "_sum_batches")
_STORE_STEPS = ("upsert", "delete", "create", "make_live", "drop")


class Clockwork:
    """Kills the process before or after the step it was set to."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    def tick(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def wound(self, thing: Any, names: Sequence[str]) -> None:
        for name in names:
            setattr(thing, name, self._around(getattr(thing, name)))

    def _around(self, step: Any) -> Any:
        def ticked(*args: Any, **named: Any) -> Any:
            self.tick()
            found = step(*args, **named)
            self.tick()
            return found

        return ticked


class LoggingModel(Model):
    """Says in a file what was paid for, the moment that it is."""

    def __init__(self, log: Path, seed: str) -> None:
        super().__init__(seed)
        self._log = log

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        found = super().__call__(texts)
        with self._log.open("a") as log:
            log.write(json.dumps(list(texts)) + "\n")
        return found


def main(folder: Path, step: int | None, verb: str = "apply") -> None:
    """Do something to the index in a folder, killed before the step after `step` others; not at all if None."""
    settings = json.loads((folder / "settings.json").read_text())
    scene = Scene(folder)
    scene.model = LoggingModel(folder / "paid.log", settings["seed"])
    scene.chunker = type(scene.chunker)(size=settings["size"])
    clock = Clockwork(step)
    run = scene.run(model=f"model-{settings['seed']}", dimension=settings["dimension"])
    assert isinstance(run._ledger, SQLiteLedger)
    clock.wound(run._ledger, _STEPS)
    clock.wound(run._ledger, _PRUNING_STEPS)
    clock.wound(scene.store, _STORE_STEPS)
    if verb == "apply":
        run.apply(run.plan(), accept_loss=True)
    elif verb == "rollback":
        run.rollback()
    elif verb == "repair":
        run.verify(repair=True)
    else:
        run.prune(keep_generations=0, kept_for=timedelta(0))
    os._exit(0)
