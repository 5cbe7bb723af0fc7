"""Saves that go on beside the loop: the state may change, errors are raised, and the end waits."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast import durable
from holdfast.errors import Conflict, Refused, Unavailable
from holdfast.testing.faulty_disks import FailingDisk
from holdfast.training import CheckpointManager, load_checkpoint, save_checkpoint, wait_for_save
from holdfast.training.background import BackgroundSaver, saver
from holdfast.training.folder import FolderRunStore

from .scenes import same, small_state

pytestmark = pytest.mark.extras


def test_the_state_may_change_as_soon_as_it_returns(tmp_path: Path) -> None:
    state = {
        "x": torch.ones(2_000_000), "strided": torch.ones(500, 600).T, "scalar": torch.tensor(1.0),
        "array": np.ones(1000), "column": np.ones((50, 50))[:, 3], "bf": torch.ones(5, dtype=torch.bfloat16),
    }  # fmt: skip
    expected = {name: value.copy() if isinstance(value, np.ndarray) else value.clone() for name, value in state.items()}
    meta = save_checkpoint(tmp_path, 1, state, block=False)
    for value in state.values():
        value[...] = 0
    done = wait_for_save()
    assert done is not None
    assert done["path"] == meta["path"]
    loaded = load_checkpoint(meta["path"])
    for name, value in expected.items():
        assert (loaded[name] == value).all(), name
        assert loaded[name].shape == value.shape


def test_every_kind_of_state_goes_the_same_way(tmp_path: Path) -> None:
    state = small_state() | {
        "sparse": torch.eye(3).to_sparse(),
        "e": torch.empty(0, 2),
        "expanded": torch.ones(1).expand(5),
    }
    save_checkpoint(tmp_path, 1, state, block=False)
    wait_for_save()
    assert same(state, load_checkpoint(tmp_path))


def test_memory_is_that_of_one_state_and_is_used_again(tmp_path: Path) -> None:
    state = {"x": torch.ones(1_000_000), "y": torch.ones(10)}
    saver.buffer.release()
    sizes = {save_checkpoint(tmp_path, step, state, block=False, rng=False)["arena_bytes"] for step in range(4)}
    wait_for_save()
    assert sizes == {4_000_000 // 4096 * 4096 + 4096 + 40}
    room = saver.buffer._buffer.data_ptr()
    save_checkpoint(tmp_path, 9, {"x": torch.ones(10)}, block=False)
    wait_for_save()
    assert saver.buffer._buffer.data_ptr() == room


def test_two_threads_that_save_do_not_get_each_others_weights(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    def save_other() -> None:
        save_checkpoint(other, 1, {"x": torch.full((1000,), 2.0)}, block=False)

    class Slow:
        """A loader whose position takes so long to tell that another thread begins a save meanwhile."""

        def state_dict(self) -> dict[str, Any]:
            thread.start()
            thread.join(0.3)
            return {}

        def load_state_dict(self, state: Any) -> None: ...

    thread = threading.Thread(target=save_other)
    with FolderRunStore(other).writing():  # what the other thread has begun is not written before we have copied
        save_checkpoint(one, 1, {"x": torch.full((1000,), 1.0)}, block=False, loader=Slow())
    thread.join()
    wait_for_save()
    assert load_checkpoint(one)["x"].unique().tolist() == [1.0]
    assert load_checkpoint(other)["x"].unique().tolist() == [2.0]


def test_an_error_is_told_by_the_next_call_once(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": 1})
    with durable.use_disk(FailingDisk(at=4, error=errno.ENOSPC, once=False)):
        save_checkpoint(tmp_path, 2, {"x": torch.ones(1000)}, block=False)
        with pytest.raises(Unavailable, match="No space left"):
            save_checkpoint(tmp_path, 3, {"x": 3}, block=False)
    assert wait_for_save() is None
    assert load_checkpoint(tmp_path) == {"x": 1}
    save_checkpoint(tmp_path, 3, {"x": 3})
    assert load_checkpoint(tmp_path) == {"x": 3}


def test_what_can_be_refused_is_refused_at_once(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 2, {})
    with pytest.raises(Conflict):
        save_checkpoint(tmp_path, 2, {}, block=False)
    with pytest.raises(Refused, match="cannot be saved"):
        save_checkpoint(tmp_path, 3, {"x": object()}, block=False)
    with pytest.raises(Refused, match="gate"):
        save_checkpoint(tmp_path, 3, {}, block=False, gate=5)


def test_a_process_that_ends_waits_for_its_save(tmp_path: Path) -> None:
    code = (
        "import sys, torch\nfrom holdfast.training import save_checkpoint\n"
        "save_checkpoint(sys.argv[1], 1, {f't{n}': torch.full((500_000,), 3.0) for n in range(10)}, block=False)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True)
    assert load_checkpoint(tmp_path)["t9"].sum() == 1_500_000


def test_an_error_that_nobody_asks_for_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    alone = BackgroundSaver()

    def fail() -> dict[str, object]:
        raise Unavailable("the disk is gone")

    alone.start(fail)
    assert alone._thread is not None
    alone._thread.join()
    with caplog.at_level(logging.ERROR):
        alone._log_at_exit()
    assert "the disk is gone" in caplog.text
    with pytest.raises(Unavailable):
        alone.wait()


def test_the_end_of_a_block_tells_the_error(tmp_path: Path) -> None:
    with (
        durable.use_disk(FailingDisk(at=4, error=errno.EIO, once=False)),
        pytest.raises(Unavailable),
        CheckpointManager(tmp_path, block=False) as manager,
    ):
        manager.save(1, {"x": 1})


def test_save_error_does_not_hide_the_block_error(tmp_path: Path) -> None:
    with (
        durable.use_disk(FailingDisk(at=4, error=errno.EIO, once=False)),
        pytest.raises(KeyError, match="mine") as raised,
        CheckpointManager(tmp_path, block=False) as manager,
    ):
        manager.save(1, {"x": 1})
        raise KeyError("mine")
    assert "the save in the background failed, too" in raised.value.__notes__[0]


@pytest.mark.filterwarnings("ignore:This process")  # that is what is tried
def test_a_forked_child_has_no_save_in_flight(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"x": torch.ones(3_000_000)}, block=False)
    child = os.fork()
    if not child:
        os._exit(0 if wait_for_save() is None else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert wait_for_save() is not None


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_is_not_told_of_a_save_of_its_parent() -> None:
    alone = BackgroundSaver()
    alone.start(lambda: {"step": 1})
    assert alone._thread is not None
    alone._thread.join()
    child = os.fork()
    if not child:
        os._exit(0 if alone.wait() is None else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert alone.wait() == {"step": 1}


@pytest.mark.filterwarnings("ignore:This process")
def test_forked_child_does_not_wait_for_the_save_thread() -> None:
    alone = BackgroundSaver()
    has_turn, may_go = threading.Event(), threading.Event()

    def copy() -> None:
        with alone.turn:
            has_turn.set()
            may_go.wait()

    thread = threading.Thread(target=copy)
    thread.start()
    has_turn.wait()
    child = os.fork()
    if not child:
        os._exit(0 if alone.turn.acquire(timeout=0) else 1)
    _, status = os.waitpid(child, 0)
    may_go.set()
    thread.join()
    assert status == 0


def test_optimizer_step_waits_once_and_removes_its_hook() -> None:
    from holdfast.training.frameworks.cuda_copies import _once_before_step, held_by

    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(2)
    waits: list[int] = []
    for save in range(3):
        _once_before_step(optimizer, lambda save=save: waits.append(save))
        optimizer.step()
        optimizer.step()
    assert waits == [0, 1, 2]
    assert len(optimizer._optimizer_step_pre_hooks) == 1
    assert weight.data_ptr() in held_by(optimizer)
    assert len(held_by(optimizer)) == 4


def test_a_gate_on_the_processor_changes_nothing(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.ones(2)
    save_checkpoint(tmp_path, 1, {"weight": weight}, block=False, gate=optimizer)
    optimizer.step()
    wait_for_save()
    assert load_checkpoint(tmp_path)["weight"].tolist() == [1.0, 1.0]


def _interrupted_start(monkeypatch: pytest.MonkeyPatch, *, is_launched: bool) -> list[threading.Thread]:
    """Ctrl-C comes while a thread starts: once it runs, or before it has begun at all. Returns whom it met."""
    begin, met = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        met.append(thread)
        if is_launched:
            begin(thread)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    return met


def test_save_interrupted_before_its_thread_starts_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, done = BackgroundSaver(), []
    met = _interrupted_start(monkeypatch, is_launched=False)
    with pytest.raises(KeyboardInterrupt):
        alone.start(lambda: {"done": done.append(1)})
    assert alone.wait() is None
    met[0].start()  # it was on its way
    met[0].join()
    assert done == []
    alone.start(lambda: {"step": 2})
    assert alone.wait() == {"step": 2}


def test_a_save_interrupted_as_its_thread_runs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, runs, may_go = BackgroundSaver(), threading.Event(), threading.Event()

    def work() -> dict[str, Any]:
        runs.set()
        may_go.wait()
        return {"step": 1}

    _interrupted_start(monkeypatch, is_launched=True)
    with pytest.raises(KeyboardInterrupt):
        alone.start(work)
    runs.wait()
    threading.Timer(0.01, may_go.set).start()
    assert alone.wait() == {"step": 1}
