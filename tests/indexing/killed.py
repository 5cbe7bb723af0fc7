"""A process that plans and applies, and kills itself at a step that it is told. It logs what it pays for.

killed.py FOLDER STEP      STEP is a number of steps, or "never"
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from holdfast.indexing.ledger.sqlite import SQLiteLedger
from indexing.scene import Model, Scene

_STEPS = ("intend", "publish", "remove", "add_batch", "set_label", "begin", "make_live", "forget", "recipe", "fail")
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


def main(folder: Path, step: str) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    scene = Scene(folder)
    scene.model = LoggingModel(folder / "paid.log", settings["seed"])
    scene.chunker = type(scene.chunker)(size=settings["size"])
    clock = Clockwork(None if step == "never" else int(step))
    run = scene.run(model=f"model-{settings['seed']}", dimension=settings["dimension"])
    assert isinstance(run._ledger, SQLiteLedger)
    clock.wound(run._ledger, _STEPS)
    clock.wound(scene.store, _STORE_STEPS)
    applied = run.apply(run.plan(), accept_loss=True)
    print(json.dumps([applied.ok, applied.stopped, applied.embedded]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
