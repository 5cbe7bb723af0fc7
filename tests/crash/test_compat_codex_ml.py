"""Saves with the names of codex_ml, interrupted at every call that changes the disk: the old state, or the new."""

from __future__ import annotations

import errno
import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest

from compat.names import names_of
from holdfast import durable
from holdfast.compat.codex_ml import payload
from holdfast.testing.faulty_disks import (
    WRITES,
    DiskCall,
    FailingDisk,
    ForgetfulDisk,
    KillingDisk,
    PowerLoss,
    die_in_child,
    every_point,
)

pytestmark = pytest.mark.crash

core = names_of("codex_ml.utils.checkpoint_core")
checkpointing = names_of("codex_ml.utils.checkpointing")
steps = names_of("codex_ml.training.checkpoint_manager")
legacy = names_of("codex_ml.utils.checkpoint")


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child has none of the threads of PyTorch."""
    monkeypatch.setattr(payload, "torch", None)
    monkeypatch.setattr("holdfast.compat.codex_ml.utils.checkpointing.TORCH_AVAILABLE", False)


class Scene:
    """A folder with the state 1, and the save of the state 2."""

    def __init__(self, root: Path) -> None:
        self.out = root
        self.save(1)

    def save(self, number: int) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        """Return the number of the newest state that is found, after everything that is there was verified."""
        raise NotImplementedError

    def check(self, *, expected: tuple[int, ...] = (1, 2)) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert self.read() in expected
            self.save(3)
            assert self.read() == 3
        assert not [path for path in self.out.rglob(".*") if path.name != ".lock"]


class OneFile(Scene):
    def save(self, number: int) -> None:
        checkpointing.save_checkpoint(self.out / "a.pt", None, None, None, number)

    def read(self) -> Any:
        return checkpointing.load_training_checkpoint(self.out / "a.pt")["epoch"]


class Folder(Scene):
    def save(self, number: int) -> None:
        core.save_checkpoint(self.out, {"n": number}, metadata={"epoch": number}, metric_value=1 / number, top_k=1)

    def read(self) -> Any:
        for path in self.out.glob("ckpt-*.pt"):
            core.verify_checkpoint(path)
        names_of("codex_ml.cli.checkpoint_validate").validate_checkpoint(self.out)
        return core.load_best(self.out)[0]["n"]


class Epochs(Scene):
    def save(self, number: int) -> None:
        checkpointing.CheckpointManager(self.out, keep_last=1).save(number, metrics={"val_loss": 1 / number})

    def read(self) -> Any:
        best = json.loads((self.out / "best.json").read_text())["items"][0]
        assert Path(best["path"]).is_dir()
        return checkpointing.CheckpointManager(self.out).load_latest()["meta"]["epoch"]


class SameEpoch(Epochs):
    def save(self, number: int) -> None:
        checkpointing.CheckpointManager(self.out).save(1, metrics={"val_loss": number})

    def read(self) -> Any:
        return checkpointing.CheckpointManager(self.out).load_latest()["meta"]["metrics"]["val_loss"]


class Steps(Scene):
    def save(self, number: int) -> None:
        manager = steps.CheckpointManager(self.out, keep_last=1, metric="loss")
        manager.save_now(number, str(number).encode(), {"loss": 1 / number})

    def read(self) -> Any:
        best = json.loads((self.out / "best.json").read_text())
        assert (self.out / best["path"]).read_bytes() == str(best["step"]).encode()
        assert (self.out / "best").read_bytes()
        newest = Path(steps.CheckpointManager.find_resume(self.out))
        assert newest.name == f"ckpt-{newest.read_text()}.pt"
        return int(newest.read_text())


class LegacyFile(Scene):
    def save(self, number: int) -> None:
        legacy.save_checkpoint({"n": number}, self.out / "model.ckpt", top_k=1)

    def read(self) -> Any:
        return legacy.load_checkpoint(self.out / "model.ckpt")["n"]


class Part:
    def __init__(self, number: int) -> None:
        self.number = number

    def state_dict(self) -> dict[str, int]:
        return {"n": self.number}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.number = state["n"]


class LegacyFolder(Scene):
    def save(self, number: int) -> None:
        legacy.save_checkpoint(
            model=Part(number), optimizer=Part(number), scheduler=None, out_dir=self.out / "ck", metadata={"n": number}
        )

    def read(self) -> Any:
        model, optimizer = Part(0), Part(0)
        told = legacy.load_checkpoint(
            model=model, optimizer=optimizer, scheduler=None, ckpt_dir=self.out / "ck", strict=True
        )
        assert model.number == optimizer.number == told["n"]
        return told["n"]


SCENES = [OneFile, Folder, Epochs, SameEpoch, Steps, LegacyFile, LegacyFolder]


def points(kind: type[Scene], root: Path) -> list[DiskCall]:
    scene = kind(root / "first")
    found = every_point(lambda: scene.save(2))
    assert len(found) > 8
    return found


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("when", ["before", "halfway"])
def test_kill(kind: type[Scene], when: Any, tmp_path: Path) -> None:
    for call in points(kind, tmp_path):
        if when == "before" or call.name in WRITES:
            scene = kind(tmp_path / f"{call.number}")
            assert die_in_child(KillingDisk(at=call.number, when=when), lambda scene=scene: scene.save(2)), call
            scene.check()


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_failing_disk(kind: type[Scene], error: int, tmp_path: Path) -> None:
    for call in points(kind, tmp_path):
        scene = kind(tmp_path / f"{call.number}")
        with durable.use_disk(FailingDisk(at=call.number, error=error, once=False)):
            try:
                scene.save(2)
            except (OSError, checkpointing.CheckpointLoadError):
                pass
        scene.check()


@pytest.mark.parametrize("kind", SCENES)
@pytest.mark.parametrize("seed", [None, 1])
def test_power_loss(kind: type[Scene], seed: int | None, tmp_path: Path) -> None:
    """Of what was not synced, nothing survives, or some of it."""
    chance = Random(seed)
    for at in range(1, len(points(kind, tmp_path)) + 2):
        scene = kind(tmp_path / f"{at}")
        disk = ForgetfulDisk(scene.out, at=at)
        with durable.use_disk(disk):
            try:
                scene.save(2)
                expected: tuple[int, ...] = (2,)
            except PowerLoss:
                expected = (1, 2)
        disk.lose_power(survives=lambda _: seed is not None and chance.random() < 0.5)
        scene.check(expected=expected)
