"""A loop with a manager: when it saves, what it goes on from, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast import durable
from holdfast.errors import Damaged, NotFound, Refused, Unavailable
from holdfast.testing.faulty_disks import FailingDisk
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint
from holdfast.training.background import saver
from holdfast.training.folder import FolderRunStore
from holdfast.training.preemption import Preemption
from holdfast.training.run_store import StoredCheckpoint

pytestmark = pytest.mark.extras


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-????????"))


def damage(path: str) -> None:
    file = sorted(Path(path).glob("*.safetensors"))[0]
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_it_saves_every_so_many_steps_and_keeps_the_last(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, save_steps=2, keep_last=3)
    made = [step for step in range(1, 11) if manager.maybe_save(step, lambda: {"x": 1})]
    assert made == [2, 4, 6, 8, 10]
    assert steps(tmp_path) == [6, 8, 10]


def test_a_state_is_made_only_when_it_is_time(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, save_steps=5)
    assert manager.maybe_save(3, lambda: pytest.fail("it is not time")) is None


def test_the_best_is_kept_also_by_saves_without_the_metric(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_last=1, best_key="loss")
    manager.save(1, {}, {"loss": 0.5})
    manager.save(2, {}, {"loss": 0.9})
    manager.save(3, {})
    assert steps(tmp_path) == [1, 3]
    best, latest = manager.best(), manager.latest()
    assert best is not None
    assert latest is not None
    assert (best.step, best.metrics, latest.step) == (1, {"loss": 0.5}, 3)
    assert load_checkpoint(tmp_path / "best.json") == {}


def test_a_new_folder_has_nothing_to_go_on_from(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "new")
    assert manager.resume() is None
    assert manager.latest() is None
    assert manager.best() is None
    assert manager.history() == []


def test_damaged_newest_is_reported_and_the_next_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = CheckpointManager(tmp_path)
    metas = [manager.save(step, {"x": torch.full((10,), float(step))}) for step in (1, 2, 3)]
    damage(metas[2]["path"])
    resumed = manager.resume()
    assert resumed is not None
    assert (resumed.step, resumed.state["x"][0].item()) == (2, 2.0)
    assert "step-00000003" in resumed.problems[0]
    assert "skipped" in caplog.text
    manager.save(3, {"x": torch.ones(1)})
    assert steps(tmp_path) == [1, 2, 3]
    assert (tmp_path / "step-00000003.damaged-1").is_dir()


def test_a_newest_without_a_manifest_is_reported_too(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(1, {"x": 1})
    Path(manager.save(2, {"x": 2})["path"], "manifest.json").unlink()
    resumed = manager.resume()
    assert resumed is not None
    assert resumed.step == 1
    assert "manifest.json" in resumed.problems[0]


def test_where_nothing_is_sound_that_is_said(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    damage(manager.save(1, {"x": torch.ones(3)})["path"])
    with pytest.raises(Damaged, match=r"no checkpoint of .* is intact"):
        manager.resume()


def test_a_run_goes_on_from_an_earlier_step(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, best_key="loss")
    for step, loss in ((1, 0.5), (2, 0.6), (3, 0.7)):
        manager.save(step, {"x": step}, {"loss": loss})
    resumed = manager.resume("best")
    assert resumed is not None
    assert resumed.step == 1
    for step in (2, 3, 4):
        manager.save(step, {"x": -step}, {"loss": 0.4})
    assert load_checkpoint(tmp_path) == {"x": -4}
    assert load_checkpoint(tmp_path, step=2) == {"x": -2}


def test_verify_names_what_is_damaged_and_what_it_touches(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    frozen = torch.randn(500_000)
    metas = [manager.save(step, {"frozen": frozen, "x": torch.ones(step)}) for step in (1, 2, 3)]
    report = manager.verify()
    assert report.ok
    assert report.checkpoints == 3
    assert report.objects == 1 + 3 * 3
    damage(metas[0]["path"])  # the first shard is the frozen one, which all share
    Path(metas[1]["path"], "state.json").unlink()
    report = manager.verify()
    assert {problem.what: problem.checkpoints for problem in report.problems} == {
        "step-00000001/model-00001-of-00002.safetensors": tuple(f"step-0000000{step}" for step in (1, 2, 3)),
        "step-00000002/state.json": ("step-00000002",),
    }


@pytest.mark.parametrize("when", ["holdfast.training.verify.read_manifest", "holdfast.training.verify.each"])
def test_what_is_pruned_while_it_is_verified_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    for step in (1, 2):  # they share a file
        save_checkpoint(tmp_path, step, {"x": torch.ones(300_000), "step": step})
    room, _, name = when.rpartition(".")
    whole = getattr(sys.modules[room], name)

    def late(*args: Any, **more: Any) -> Any:
        monkeypatch.undo()
        save_checkpoint(tmp_path, 3, {}, keep_last_k=2)
        return whole(*args, **more)

    monkeypatch.setattr(when, late)
    report = CheckpointManager(tmp_path).verify()
    assert report.ok, report.problems
    assert report.bytes_read > 1_000_000


def test_a_shard_that_no_manifest_names_is_named_by_verify(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    path = Path(manager.save(1, {"x": torch.ones(3)})["path"])
    (path / "model-00009-of-00009.safetensors").write_bytes(b"extra")
    assert [problem.detail for problem in manager.verify().problems] == ["is not part of this checkpoint"]


def test_a_marker_of_a_newer_version_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": torch.full((3,), float(step))})
    damage(str(tmp_path / "step-00000002"))
    (tmp_path / "last").write_text('{"schema_version": 99, "kind": "holdfast.training"}')
    resumed = CheckpointManager(tmp_path).resume()
    assert resumed is not None
    assert resumed.step == 1
    assert steps(tmp_path) == [1, 2]  # who cannot say what the markers mean does not touch what they point to


def test_number_of_a_set_aside_checkpoint_is_not_reused(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": torch.full((3,), float(step))})
    damage(str(tmp_path / "step-00000002"))
    manager = CheckpointManager(tmp_path)
    manager.resume()
    assert json.loads((tmp_path / "last").read_text())["path"] == "step-00000001"
    assert manager.save(2, {"x": 2})["sequence"] == 3


def test_rewound_run_goes_past_its_abandoned_steps(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        CheckpointManager(tmp_path).save(step, {"x": step})
    manager = CheckpointManager(tmp_path)
    manager.resume(100)
    manager.save(150, {"x": "again"})
    manager = CheckpointManager(tmp_path)
    resumed = manager.resume()
    assert resumed is not None and resumed.step == 150
    for step in (200, 300):
        manager.save(step, {"x": "again"})
        assert load_checkpoint(tmp_path, step=step) == {"x": "again"}
    manager = CheckpointManager(tmp_path)
    manager.resume()
    with pytest.raises(Refused, match="comes before"):
        manager.save(250, {})


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.Philox, np.random.SFC64])
def test_other_numpy_generators_are_restored(kind: Any, tmp_path: Path) -> None:
    usual = np.random.get_bit_generator()
    manager = CheckpointManager(tmp_path)
    try:
        np.random.set_bit_generator(kind(3))
        manager.save(1, {})
        expected = np.random.normal(size=3)
        resumed = manager.resume()
        assert resumed is not None and resumed.problems == ()
        assert np.array_equal(np.random.normal(size=3), expected)
        np.random.set_bit_generator(usual)
        resumed = manager.resume()
        assert resumed is not None and kind.__name__ in resumed.problems[0]
        manager.save(2, {})
        np.random.set_bit_generator(kind(3))
        resumed = manager.resume()
        assert resumed is not None and resumed.step == 2 and "MT19937" in resumed.problems[0]
    finally:
        np.random.set_bit_generator(usual)


def test_concurrently_repaired_checkpoint_is_not_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": torch.full((3,), float(step))})
    damage(str(tmp_path / "step-00000002"))
    writing = FolderRunStore.writing

    def after_another(folder: FolderRunStore) -> Any:
        monkeypatch.setattr(FolderRunStore, "writing", writing)
        save_checkpoint(tmp_path, 2, {"x": torch.full((3,), 5.0)}, rewind=True)
        return writing(folder)

    monkeypatch.setattr(FolderRunStore, "writing", after_another)
    resumed = CheckpointManager(tmp_path).resume()
    assert resumed is not None
    assert resumed.step == 1
    assert load_checkpoint(tmp_path, step=2)["x"].tolist() == [5.0, 5.0, 5.0]


def test_what_is_pruned_while_one_waits_to_pin_it_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, other = (CheckpointManager(tmp_path, keep_last=1) for _ in range(2))
    for step in (1, 2):
        save_checkpoint(tmp_path, step, {"x": step})
    writing = FolderRunStore.writing

    def after_another(folder: FolderRunStore) -> Any:
        monkeypatch.setattr(FolderRunStore, "writing", writing)
        other.prune()
        return writing(folder)

    monkeypatch.setattr(FolderRunStore, "writing", after_another)
    with pytest.raises(NotFound, match="no checkpoint 1"):
        manager.pin(1)
    assert not (tmp_path / ".holdfast" / "pins.json").exists()


def test_history_tells_metrics_and_pins_and_prune_can_be_tried(tmp_path: Path) -> None:
    writer = CheckpointManager(tmp_path, keep_last=None)
    for step in (1, 2, 3, 4):
        writer.save(step, {}, {"loss": step}, metadata={"note": "x"})
    writer.pin(1)
    first = writer.history()[0]
    assert (first.step, first.pinned, first.metrics) == (1, True, {"loss": 1})
    manager = CheckpointManager(tmp_path, keep_last=1)
    plan = manager.prune(dry_run=True)
    assert (plan.removed, plan.is_done) == ([2, 3], False)
    assert steps(tmp_path) == [1, 2, 3, 4]
    manager.pin(1, pinned=False)
    assert manager.prune().removed == [1, 2, 3]
    assert steps(tmp_path) == [4]
    with pytest.raises(NotFound):
        manager.pin(9)


@pytest.mark.parametrize("options", [{"save_steps": 0}, {"keep_last": -1}, {"mode": "best"}, {"keep_every": 0}])
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Refused):
        CheckpointManager(tmp_path, **options)


# going on bitwise


class Loader:
    """Batches in an order drawn at random, that knows where it is."""

    def __init__(self) -> None:
        self._position = 0
        self._order: list[int] = []

    def __next__(self) -> torch.Tensor:
        if self._position == len(self._order):
            self._order, self._position = torch.randperm(7).tolist(), 0
        self._position += 1
        return torch.full((4, 8), float(self._order[self._position - 1]))

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position, "order": list(self._order)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._position, self._order = state["position"], list(state["order"])


class Run:
    """Training that draws from every source of chance."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        np.random.seed(2)
        random.seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.loader = Loader()

    def step(self) -> float:
        batch = next(self.loader) + torch.randn(4, 8) + float(np.random.normal()) + random.gauss(0, 1)
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def state(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part.state_dict() for name, part in parts.items()}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])


@pytest.mark.parametrize("block", [True, False])
def test_resumed_run_has_bitwise_the_same_losses(block: bool, tmp_path: Path) -> None:
    whole = Run()
    expected = [whole.step() for _ in range(30)]

    first = Run()
    manager = CheckpointManager(tmp_path, save_steps=5, loader=first.loader, block=block)
    losses = []
    for step in range(1, 14):
        losses.append(first.step())
        manager.maybe_save(step, first.state)
    manager.wait()

    second = Run()
    resumed = CheckpointManager(tmp_path, loader=second.loader).resume()
    assert resumed is not None
    assert resumed.step == 10
    second.load(resumed.state)
    losses = losses[:10] + [second.step() for _ in range(20)]
    assert losses == expected


def test_a_loader_that_does_not_tell_its_position_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has no state_dict"):
        save_checkpoint(tmp_path, 1, {}, loader=[1, 2])


def test_the_circumstances_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", project], check=True)
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=project, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True)
    monkeypatch.chdir(project)
    manager = CheckpointManager(tmp_path / "out", config={"b": 1, "a": [1, 2]})
    manager.save(1, {})
    found = manager.latest()
    assert found is not None
    assert found.environment["git_commit"] == head.stdout.strip()
    assert found.environment["packages"]["torch"] == torch.__version__
    CheckpointManager(tmp_path / "out", config={"a": [1, 2], "b": 1}).save(2, {})
    assert found.config_hash == CheckpointManager(tmp_path / "out").history()[-1].config_hash


def test_best_is_looked_up_again_after_a_concurrent_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"best_key": "loss", "keep_last_k": 1}
    save_checkpoint(tmp_path, 1, {}, metrics={"loss": 2.0}, **options)
    full = FolderRunStore.full

    def late(folder: FolderRunStore, found: StoredCheckpoint) -> StoredCheckpoint:
        monkeypatch.undo()
        save_checkpoint(tmp_path, 2, {}, metrics={"loss": 1.0}, **options)
        return full(folder, found)

    monkeypatch.setattr(FolderRunStore, "full", late)
    best = CheckpointManager(tmp_path).best()
    assert best is not None and best.step == 2


# SIGTERM

_LOOP = """
import os, signal, sys
from holdfast.training import CheckpointManager
with CheckpointManager(sys.argv[1], save_steps=100) as manager:
    for step in range(1, 1000):
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        manager.maybe_save(step, {"step": step})
        if step > 7:
            print("went on")
"""


def test_sigterm_saves_at_the_next_step_and_ends_the_process(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _LOOP, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert ended.stdout == ""
    assert load_checkpoint(tmp_path) == {"step": 7}


_PARENT = """
import os, signal, sys, time
from holdfast.training import CheckpointManager
with CheckpointManager(sys.argv[1], save_steps=100) as manager:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"ready")
        time.sleep(15)
        os._exit(0)
    os.read(reading, 5)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), manager.should_stop)
"""


def test_a_child_that_was_forked_is_ended_by_sigterm(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _PARENT, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout == f"{-signal.SIGTERM} False\n"


def test_after_the_block_the_signal_does_what_it_did_before(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with CheckpointManager(tmp_path, save_steps=1) as manager:
            os.kill(os.getpid(), signal.SIGTERM)
            assert manager.should_stop
            manager.maybe_save(1, {})
            assert came == [signal.SIGTERM]
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def came() -> Iterator[list[int]]:
    """The SIGTERMs that went past a manager."""
    found: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGTERM, before)


def test_a_signal_that_comes_after_the_last_step_is_passed_on(tmp_path: Path, came: list[int]) -> None:
    with CheckpointManager(tmp_path, save_steps=10) as manager:
        manager.maybe_save(1, {})
        os.kill(os.getpid(), signal.SIGTERM)
        assert came == []
    assert came == [signal.SIGTERM]


def test_a_signal_that_the_loop_was_told_of_is_its_own(tmp_path: Path, came: list[int]) -> None:
    with CheckpointManager(tmp_path) as manager:
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.should_stop
    with pytest.raises(KeyError), CheckpointManager(tmp_path):
        os.kill(os.getpid(), signal.SIGTERM)
        raise KeyError
    assert came == []


def test_failed_save_does_not_prevent_the_sigterm_save(
    tmp_path: Path, came: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with CheckpointManager(tmp_path, save_steps=1, block=False) as manager:
        with durable.use_disk(FailingDisk(at=4, error=errno.EIO, once=False)):
            manager.maybe_save(1, {"step": 1})
            assert saver._thread is not None
            saver._thread.join()
        os.kill(os.getpid(), signal.SIGTERM)
        manager.maybe_save(2, {"step": 2})
    assert came == [signal.SIGTERM]
    assert load_checkpoint(tmp_path) == {"step": 2}
    assert "an earlier save failed: writing to" in caplog.text


def test_signal_during_the_final_wait_keeps_the_last_save(tmp_path: Path) -> None:
    saved: list[bool] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: saved.append((tmp_path / "step-00000001").is_dir()))
    try:
        with contextlib.ExitStack() as held, CheckpointManager(tmp_path, block=False) as manager:
            held.enter_context(FolderRunStore(tmp_path).writing())  # the save cannot end before the signal has come
            manager.save(1, {"step": 1})
            held.callback(os.kill, os.getpid(), signal.SIGTERM)
            threading.Timer(0.05, held.close).start()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert saved == [True]


def test_failed_last_save_is_reported_despite_a_signal(tmp_path: Path, came: list[int]) -> None:
    with pytest.raises(Unavailable, match="writing to"), CheckpointManager(tmp_path, block=False) as manager:
        with durable.use_disk(FailingDisk(at=4, error=errno.EIO, once=False)):
            manager.save(1, {"step": 1})
            assert saver._thread is not None
            saver._thread.join()
        os.kill(os.getpid(), signal.SIGTERM)
    assert came == []


def test_a_signal_that_comes_as_the_block_is_left_is_not_lost(
    tmp_path: Path, came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = Preemption.end

    def just_too_late(self: Preemption) -> None:
        end(self)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Preemption, "end", just_too_late)
    with CheckpointManager(tmp_path):
        pass
    assert came == [signal.SIGTERM]


def test_what_a_checkpoint_does_not_hold_is_among_the_problems(tmp_path: Path) -> None:
    class Loader:
        def state_dict(self) -> dict[str, int]:
            return {"at": 3}

        def load_state_dict(self, state: dict[str, int]) -> None:
            raise AssertionError("there is nothing to load")

    save_checkpoint(tmp_path, 1, {}, rng=False)
    resumed = CheckpointManager(tmp_path, loader=Loader()).resume()
    assert resumed is not None
    assert [problem.split(" has ")[1].split(",")[0] for problem in resumed.problems] == [
        "no random states", "no position of a data loader",
    ]  # fmt: skip
    for manager, options in (
        (CheckpointManager(tmp_path, rng=False), {}),
        (CheckpointManager(tmp_path), {"rng": False}),
    ):
        resumed = manager.resume(**options)
        assert resumed is not None
        assert resumed.problems == ()
