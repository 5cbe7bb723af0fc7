"""Folders of checkpoints, and things that are done to them; what is seen afterwards is what was there, or is new."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from holdfast.errors import Damaged
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint

from .training_interruptions import RunFolder

DAMAGED = -1.0


@dataclass(frozen=True)
class View:
    """What a reader sees of a run."""

    values: dict[int, float]
    """By step, the value that its tensors have."""
    pinned: set[int]
    latest: float
    best: float


class Scene(RunFolder):
    """Four checkpoints: the first is the best, the second is pinned. A scene says what is done to them."""

    swallows = False
    """Whether an error of the disk is only logged: who only wants to read is not kept from it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        for step in (1, 2, 3, 4):
            self.save(step, float(step), pin=step == 2)
        self.arrange()
        self.keep()
        self.old = self.view()
        self.act()
        self.new = self.view()
        assert self.new != self.old

    def arrange(self) -> None:
        """What else is so before."""

    def may_be_seen(self, view: View) -> bool:
        """Whether what a reader sees is the old or the new."""
        return view in (self.old, self.new)

    def save(self, step: int, value: float, **options: Any) -> None:
        state = {"x": torch.full((30,), value), "other": [torch.full((3,), value), step]}
        save_checkpoint(
            self.out, step, state, metrics={"loss": value}, best_key="loss", rng=False, threads=1, **options
        )

    def manager(self, keep_last: int = 1) -> CheckpointManager:
        return CheckpointManager(self.out, keep_last=keep_last, best_key="loss", rng=False)

    def view(self) -> View:
        """All that is there, every byte verified; what the markers say is there."""
        for marker in ("last", "best.json"):
            said = json.loads((self.out / marker).read_bytes())["path"]
            assert (self.out / said / "manifest.json").is_file(), f"{marker} says {said}, which is not there"
        values = {each.step: self._value(each.path) for each in self.manager().history()}
        pinned = {each.step for each in self.manager().history() if each.pinned}
        return View(values, pinned, self._value(self.out / "last"), self._value(self.out / "best.json"))

    def _value(self, path: Path | str) -> float:
        try:
            found = load_checkpoint(path)
        except Damaged:
            return DAMAGED
        [value] = {*found["x"].tolist(), *found["other"][0].tolist()}
        return float(value)

    def check(self, *, names_may_be_lost: bool = False) -> None:
        """Old or new; it can be done again, and then nothing is left over.

        names_may_be_lost: of a rename within one folder neither name may have arrived, which no journal does.
        """
        seen = self.view()
        assert self.may_be_seen(seen), seen
        with contextlib.nullcontext() if seen != self.new else contextlib.suppress(FileNotFoundError):
            self.act()
        assert self.view() == self.new
        self.save(9, 9.0)  # the next writer cleans up
        assert set(os.listdir(self.out / ".holdfast")) <= {"lock", "pins.json"}
        names = {f"step-{step:08d}" for step in (*self.new.values, 9)}
        beside = set(os.listdir(self.out)) - {".holdfast", "best.json", "last", *names}
        self.check_beside(beside, names_may_be_lost=names_may_be_lost)

    def check_beside(self, beside: set[str], *, names_may_be_lost: bool) -> None:
        """What else is in the folder."""
        assert not beside


class Pin(Scene):
    def act(self) -> None:
        self.manager().pin(3)


class Unpin(Scene):
    def act(self) -> None:
        self.manager().pin(2, pinned=False)


class SavePinned(Scene):
    def act(self) -> None:
        self.save(5, 5.0, pin=True, rewind=True)


class Prune(Scene):
    def arrange(self) -> None:
        self.save(5, 5.0)

    def act(self) -> None:
        self.manager().prune()

    def may_be_seen(self, view: View) -> bool:
        """They go one after the other; what stays is as it was."""
        gone = self.old.values.keys() - view.values.keys()
        rest = {step: value for step, value in self.old.values.items() if step not in gone}
        return gone <= {3, 4} and view == View(rest, self.old.pinned, self.old.latest, self.old.best)


class Replace(Scene):
    """The newest is replaced."""

    def act(self) -> None:
        self.save(4, 4.5, rewind=True)


class ReplaceBest(Scene):
    """The best is replaced by one that is worse than any; and it is the newest then."""

    def act(self) -> None:
        self.save(1, 7.0, rewind=True)


class ReplacePinned(Scene):
    """A run that was set back saves a step that is pinned, and prunes."""

    def act(self) -> None:
        self.save(2, 2.5, rewind=True, keep_last_k=1)

    def may_be_seen(self, view: View) -> bool:
        if view == self.old:
            return True
        gone = self.old.values.keys() - view.values.keys()
        rest = {step: value for step, value in (self.old.values | {2: 2.5}).items() if step not in gone}
        return gone <= {3, 4} and view == View(rest, self.new.pinned, self.new.latest, self.new.best)


class PutAside(Scene):
    """The newest is damaged, and a run that goes on from the one before puts it aside."""

    swallows = True

    def arrange(self) -> None:
        [shard] = (self.out / "step-00000004").glob("*.safetensors")
        shard.chmod(0o600)
        shard.write_bytes(shard.read_bytes()[:-1] + b"\7")

    def act(self) -> None:
        resumed = self.manager().resume()
        assert resumed is not None
        assert resumed.step in (3, 9)

    def check_beside(self, beside: set[str], *, names_may_be_lost: bool) -> None:
        assert beside == {"step-00000004.damaged-1"} or (names_may_be_lost and not beside)
        for name in beside:
            assert sorted(os.listdir(self.out / name)) == sorted(os.listdir(self._kept / "step-00000004"))


class SaveOverBroken(PutAside):
    """The newest has a manifest that cannot be read, and its step is saved again."""

    swallows = False

    def arrange(self) -> None:
        manifest = self.out / "step-00000004" / "manifest.json"
        manifest.chmod(0o600)
        manifest.write_bytes(b"{}")

    def act(self) -> None:
        self.save(4, 0.5, rewind=True)


class Adopt(Scene):
    """Both markers are another program's; a save gives them another name, and writes its own."""

    foreign = b'{"metric": "accuracy", "mode": "max", "path": "theirs.pt"}'

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        assert sorted(self._foreign()) == ["best.json.replaced-1", "last.replaced-1"]

    def arrange(self) -> None:
        for name in ("last", "best.json"):
            (self.out / name).write_bytes(self.foreign)

    def act(self) -> None:
        self.save(5, 0.5, rewind=True, adopt=True)

    def _foreign(self) -> list[str]:
        return [path.name for path in self.out.iterdir() if path.is_file() and path.read_bytes() == self.foreign]

    def view(self) -> View:
        assert {name.removesuffix(".replaced-1") for name in self._foreign()} >= {"last", "best.json"}
        values = {each.step: self._value(each.path) for each in self.manager().history()}
        best = self.manager().best()
        pinned = {each.step for each in self.manager().history() if each.pinned}
        return View(values, pinned, self._value(self.out / "last"), best.metrics["loss"] if best else 0.0)

    def check_beside(self, beside: set[str], *, names_may_be_lost: bool) -> None:
        names = {"best.json", "last"}
        assert (
            {f"{name}.replaced-1" for name in names}
            <= beside
            <= {f"{name}.replaced-{n}" for name in names for n in (1, 2)}
        )


SCENES = (Pin, Unpin, SavePinned, Prune, Replace, ReplaceBest, ReplacePinned, PutAside, SaveOverBroken, Adopt)
