"""A folder of training checkpoints against a simple model, whatever the order of saves, pins, prunes and loads."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from holdfast import durable
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.testing.faulty_disks import FailingDisk
from holdfast.training import CheckpointManager, load_checkpoint

pytestmark = pytest.mark.extras

LOSSES = st.sampled_from([None, 1.0, 2.0, 2.0, 3.0, math.nan, math.inf])
ANY = st.integers(0, 10**6)


@dataclass(frozen=True)
class Saved:
    step: int
    content: int
    loss: float | None

    @property
    def counts(self) -> bool:
        return self.loss is not None and math.isfinite(self.loss)


class TrainingFolder(RuleBasedStateMachine):
    """The model is a list in the order of saving, and a set of pinned steps."""

    @initialize(last=st.integers(0, 3), every=st.sampled_from([None, None, 4]), mode=st.sampled_from(["min", "max"]))
    def begin(self, last: int, every: int | None, mode: Any) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.policy: dict[str, Any] = {"keep_last": last, "keep_every": every, "best_key": "loss", "mode": mode}
        self.manager = CheckpointManager(self.folder, **self.policy)
        self.saved: list[Saved] = []
        self.pinned: set[int] = set()
        self.content = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    # what people do

    @rule(ahead=st.integers(-3, 4), loss=LOSSES, pin=st.booleans(), rewind=st.booleans(), block=st.booleans())
    def save(self, ahead: int, loss: float | None, pin: bool, rewind: bool, block: bool) -> None:
        step = max(0, (self.saved[-1].step if self.saved else 0) + ahead)
        self.content += 1
        state = {"frozen": torch.zeros(300_000), "content": torch.tensor(self.content)}
        options = {"pin": pin, "rewind": rewind, "block": block}
        expected = self._refusal(step) if not rewind else None
        if expected is not None:
            with pytest.raises(expected):
                self.manager.save(step, state, None if loss is None else {"loss": loss}, **options)
            return
        self.manager.save(step, state, None if loss is None else {"loss": loss}, **options)
        self.manager.wait()
        self.saved = [one for one in self.saved if one.step != step] + [Saved(step, self.content, loss)]
        if pin:
            self.pinned.add(step)
        self._prune()

    def _refusal(self, step: int) -> type[Exception] | None:
        if any(one.step == step for one in self.saved):
            return Conflict
        return Refused if self.saved and step < self.saved[-1].step else None

    @precondition(lambda self: self.saved)
    @rule(which=ANY, pinned=st.booleans())
    def pin(self, which: int, pinned: bool) -> None:
        step = self.saved[which % len(self.saved)].step
        self.manager.pin(step, pinned=pinned)
        self.pinned = self.pinned | {step} if pinned else self.pinned - {step}

    @rule()
    def prune(self) -> None:
        planned = self.manager.prune(dry_run=True).removed
        before = {one.step for one in self.saved}
        self._prune()
        assert set(planned) == before - {one.step for one in self.saved}
        assert self.manager.prune().removed == planned

    @rule()
    def another_process_goes_on(self) -> None:
        self.manager = CheckpointManager(self.folder, **self.policy)

    @rule(which=ANY)
    def crash(self, which: int) -> None:
        """Markers are lost or old; what was half written is there."""
        name = ["last", "best.json"][which % 2]
        if name == "last" or not self._best():
            (self.folder / name).unlink(missing_ok=True)
        left = self.folder / ".holdfast" / "saving"
        left.mkdir(parents=True, exist_ok=True)
        (left / "manifest.json").write_text("{")

    # what must be so

    def _best(self) -> Saved | None:
        better = max if self.policy["mode"] == "max" else min
        counted = [one for one in self.saved if one.counts]
        return better(counted, key=lambda one: one.loss) if counted else None  # the first of equals

    def _prune(self) -> None:
        last, every, best = self.policy["keep_last"], self.policy["keep_every"], self._best()
        newest = self.saved[-max(last, 1) :]
        self.saved = [
            one
            for one in self.saved
            if one in newest or one is best or one.step in self.pinned or (every and one.step % every == 0)
        ]

    @invariant()
    def everything_is_there(self) -> None:
        history = self.manager.history()
        assert [each.step for each in history] == [one.step for one in self.saved]
        assert {each.step for each in history if each.pinned} == self.pinned & {one.step for one in self.saved}
        for one in self.saved:
            assert load_checkpoint(self.folder, step=one.step)["content"] == one.content

    @invariant()
    def markers_mean_what_they_say(self) -> None:
        best, found = self._best(), self.manager.best()
        assert (best and best.step) == (found and found.step)
        if self.saved:
            assert load_checkpoint(self.folder / "last")["content"] == self.saved[-1].content
        else:
            with pytest.raises(NotFound):
                load_checkpoint(self.folder / "last")
        if best is not None:
            assert load_checkpoint(self.folder / "best.json")["content"] == best.content


@pytest.mark.usefixtures("no_waiting")
class TestTrainingFolder(TrainingFolder.TestCase):
    settings = settings(max_examples=examples(40), stateful_step_count=15)

    @pytest.fixture
    def no_waiting(self) -> Any:
        with durable.use_disk(FailingDisk(at=0)):  # which never fails, and never waits for the medium
            yield
