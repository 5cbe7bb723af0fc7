"""Interrupts, neighbours, media that forget, and what a save costs in memory."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from holdfast.durable import Lock
from holdfast.errors import Conflict, Unavailable
from holdfast.training import CheckpointManager, checkpoints, folder, load_checkpoint, save_checkpoint, shard_reader
from holdfast.training.shard_writer import REREAD_EVERY
from holdfast.training.threads import each

pytestmark = pytest.mark.extras

SIDE = 300_000
"""Elements of a tensor that has a file of its own."""


def run(script: str, *words: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False)


def flip(path: Path) -> None:
    """Change a byte as a medium does: neither the size nor the time of the file tells."""
    status = path.stat()
    path.chmod(0o644)
    with open(path, "r+b") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 16]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


# interrupts


def test_an_interrupt_leaves_no_thread_at_work() -> None:
    begun, noted, never = threading.Event(), threading.Event(), threading.Event()

    def work(number: int) -> None:
        begun.set()
        noted.wait()
        if number > 1:
            never.wait(0.2)  # a worker that was not stopped needs seconds

    def note(*_: object) -> None:
        noted.set()
        raise KeyboardInterrupt

    def interrupt() -> None:
        begun.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, note)
    try:
        others = set(threading.enumerate())  # what another test left open may have some
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            each(work, range(50), threads=2)
        ours = (thread for thread in set(threading.enumerate()) - others if thread.name.startswith("holdfast"))
        assert not [thread for thread in ours if thread.is_alive()]  # one that has just ended may still be listed
    finally:
        signal.signal(signal.SIGINT, before)


TERMINATED = """
import os, signal, sys
import torch
from holdfast.training import CheckpointManager

with CheckpointManager(sys.argv[1], save_steps=10, block=sys.argv[2] == "block") as manager:
    for step in range(1, 100):
        state = {"x": torch.full((300_000,), float(step))}
        manager.maybe_save(step, state)
        if step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
            manager.maybe_save(step, state)
"""


@pytest.mark.parametrize("block", ["block", "beside"])
def test_sigterm_during_or_after_a_save_ends_the_process(block: str, tmp_path: Path) -> None:
    ran = run(TERMINATED, tmp_path, block)
    assert ran.returncode == -signal.SIGTERM, ran.stderr
    assert load_checkpoint(tmp_path)["x"].unique().tolist() == [10.0]


# neighbours


def test_load_of_the_newest_beside_prunes_gets_one(tmp_path: Path) -> None:
    def state(step: int) -> dict[str, Any]:
        return {f"t{at}": torch.full((SIDE,), float(step)) for at in range(4)}

    save_checkpoint(tmp_path, 0, state(0), keep_last_k=1)

    def go_on() -> None:
        for step in range(1, 60):
            save_checkpoint(tmp_path, step, state(step), keep_last_k=1, rng=False)

    saver = threading.Thread(target=go_on)
    saver.start()
    loads = 0
    try:
        while saver.is_alive():
            found = load_checkpoint(tmp_path)
            assert len({float(tensor[0]) for tensor in found.values()}) == 1
            assert CheckpointManager(tmp_path).latest() is not None
            loads += 1
    finally:
        saver.join()
    assert loads


def test_two_managers_of_one_folder_do_not_undo_each_other(tmp_path: Path) -> None:
    one, other = CheckpointManager(tmp_path, keep_last=2), CheckpointManager(tmp_path, keep_last=2)
    for step, manager in ((1, one), (2, other), (3, one)):
        manager.save(step, {"x": torch.full((3,), float(step))})
    with pytest.raises(Conflict):
        other.save(3, {"x": torch.zeros(3)})
    other.pin(2)
    one.save(4, {"x": torch.full((3,), 4.0)})
    assert [each.step for each in one.history()] == [each.step for each in other.history()] == [2, 3, 4]
    assert load_checkpoint(tmp_path, step=3)["x"].tolist() == [3, 3, 3]


def test_replacement_of_a_damaged_checkpoint_is_kept(tmp_path: Path) -> None:
    manager, other = CheckpointManager(tmp_path), CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": torch.full((SIDE,), float(step))})
    [shard] = (tmp_path / "step-00000002").glob("*00001-of*.safetensors")
    flip(shard)
    damaged = manager._store.scan()[0][-1:]
    other.save(2, {"x": torch.full((SIDE,), 2.5)}, rewind=True)
    manager._set_aside(damaged)
    assert load_checkpoint(tmp_path, step=2)["x"][0] == 2.5
    assert not list(tmp_path.glob("*.damaged-*"))


FEW_FILES = """
import os, resource, sys
import torch
from holdfast.errors import Unavailable
from holdfast.training import CheckpointManager

manager = CheckpointManager(sys.argv[1])
for step in (1, 2):
    manager.save(step, {f"t{at}": torch.full((300_000,), float(step)) for at in range(9)})
assert manager.resume().step == 2
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
used = len(os.listdir("/proc/self/fd"))
for room in range(4):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room - 1, most))
    try:
        assert CheckpointManager(sys.argv[1]).resume().step == 2
    except Unavailable as error:
        print(error.hint)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
assert CheckpointManager(sys.argv[1]).resume().step == 2
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files by /proc")
def test_too_many_open_files_are_no_damage(tmp_path: Path) -> None:
    ran = run(FEW_FILES, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Close some files" in ran.stdout
    assert not list(tmp_path.glob("*.damaged-*"))


def test_too_many_open_files_are_not_damage_or_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CheckpointManager(tmp_path).save(1, {})
    checkpoints._folder_store.cache_clear()  # as in another process, which has not written it itself

    def cannot(path: Path, **_: object) -> NoReturn:
        raise shard_reader.cannot_read(path, error) from error

    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    monkeypatch.setattr(folder, "read_manifest", cannot)
    for ask in (CheckpointManager(tmp_path).latest, CheckpointManager(tmp_path).resume):
        with pytest.raises(Unavailable, match="open files"):
            ask()


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ETIMEDOUT])
def test_a_server_of_files_that_does_not_answer_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    manager = CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": torch.full((SIDE,), float(step))})
    opened = os.open

    def away(path: str | Path, *args: int, **options: int) -> int:
        if str(path).endswith(".safetensors") and "step-00000002" in str(path):
            raise OSError(code, os.strerror(code))
        return opened(path, *args, **options)

    with monkeypatch.context() as patched, pytest.raises(Unavailable, match=os.strerror(code)):
        patched.setattr(shard_reader.os, "open", away)
        manager.resume()
    resumed = manager.resume()
    assert resumed is not None and resumed.step == 2


def test_a_folder_that_can_only_be_read_is_good_to_go_on_from(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for step in (1, 2):
        manager.save(step, {"x": torch.full((SIDE,), float(step))})
    [shard] = (tmp_path / "step-00000002").glob("*00001-of*.safetensors")
    flip(shard)
    (tmp_path / ".holdfast" / "lock").unlink()
    (tmp_path / ".holdfast" / "lock").mkdir()  # so that nobody can write there, not even the superuser
    resumed = manager.resume()
    assert resumed is not None
    assert (resumed.step, len(resumed.problems)) == (1, 1)


# media that forget


def test_file_lost_by_the_disk_is_rewritten_within_some_saves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"frozen": torch.arange(SIDE, dtype=torch.float32), "step": 0}
    save_checkpoint(tmp_path, 0, state)
    [shard] = (tmp_path / "step-00000000").glob("*00001-of*.safetensors")
    flip(shard)
    told = []
    with caplog.at_level(logging.WARNING, logger="holdfast"):
        for step in range(1, REREAD_EVERY + 1):
            told += save_checkpoint(tmp_path, step, state | {"step": step}, rng=False)["notes"]
    assert load_checkpoint(tmp_path)["frozen"].equal(state["frozen"])
    assert len(told) == 1
    assert "was written again" in told[0]
    assert "written again" in caplog.text
    damaged = [problem.checkpoints for problem in CheckpointManager(tmp_path).verify().problems]
    assert len(damaged) == 1  # the old ones still are, and verify names them all
    assert "step-00000000" in damaged[0]


# memory

MEASURED = """
import resource, sys
import torch
from holdfast.training import save_checkpoint, wait_for_save

MIB = 1 << 20
tensors = [torch.ones(16 * MIB // 4) for _ in range(12)] + [torch.ones(4 * MIB // 2, 2).t()]
block = sys.argv[2] == "block"
save_checkpoint(sys.argv[1] + "/warm", 1, {"x": torch.ones(MIB)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for step in range(3):
    save_checkpoint(sys.argv[1] + "/out", step, tensors, block=block, keep_last_k=1)
    for tensor in tensors:
        tensor += 1
    wait_for_save()
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the greatest size is counted otherwise")
@pytest.mark.parametrize(("block", "most"), [("block", 64), ("beside", 208 + 64)])
def test_memory_is_bounded_as_it_is_said_to_be(block: str, most: int, tmp_path: Path) -> None:
    """A state of 208 MiB: beside the loop it is held once; the rest is buffers, and copies of what lies in pieces."""
    ran = run(MEASURED, tmp_path, block)
    assert ran.returncode == 0, ran.stderr
    grown = [int(line) for line in ran.stdout.split()]
    assert max(grown) <= most, grown


def test_an_interrupt_right_after_the_lock_frees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire = Lock.acquire

    def interrupted(lock: Lock, *, wait: bool = True) -> bool:
        acquire(lock, wait=wait)
        raise KeyboardInterrupt

    monkeypatch.setattr(Lock, "acquire", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        save_checkpoint(tmp_path, 1, {})
    monkeypatch.undo()
    assert Lock(tmp_path / ".holdfast" / "lock").acquire(wait=False)
    del caught  # until here its frames have kept the lock alive


def test_an_interrupt_while_a_thread_starts_stays_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython turns Ctrl-C within Thread.start() into a RuntimeError now and then."""

    def interrupted(thread: threading.Thread) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        each(str, [1, 2, 3])
