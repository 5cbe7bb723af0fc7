"""One writer at a time (P9), whatever becomes of the owner."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.durable import Lock
from holdfast.errors import Unavailable
from leaks import open_below

HOLD = """
import sys, time
from pathlib import Path
from holdfast.durable import Lock
lock = Lock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""

HOLD_AND_FORK = """
import os, sys, time
from pathlib import Path
from holdfast.durable import Lock
lock = Lock(Path(sys.argv[1]))
lock.acquire()
if not os.fork():  # the child says so itself: once it runs, it has let go
    print(os.getpid(), flush=True)
time.sleep(60)
"""

Start = Callable[[str, Path], subprocess.Popen[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that prints a line once it has done its part."""
    running: list[subprocess.Popen[str]] = []

    def begin(script: str, path: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_free(path: Path) -> bool:
    lock = Lock(path)
    got_it = lock.acquire(wait=False)
    lock.release()
    return got_it


def test_a_lock_that_is_held_is_not_free_until_it_is_given_back(path: Path) -> None:
    with Lock(path):
        assert not is_free(path)
    assert is_free(path)


def test_a_lock_is_given_back_when_its_block_fails(path: Path) -> None:
    with pytest.raises(KeyError), Lock(path):
        raise KeyError
    with Lock(path, timeout_s=0.05):
        pass


@pytest.mark.parametrize("is_shared", [True, False], ids=["one lock", "a lock each"])
def test_threads_exclude_each_other(path: Path, is_shared: bool) -> None:
    shared = Lock(path)
    inside, most_inside = 0, 0

    def work() -> None:
        nonlocal inside, most_inside
        for _ in range(5):
            with shared if is_shared else Lock(path):
                inside += 1
                most_inside = max(most_inside, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_inside == 1


def test_release_does_not_take_the_lock_of_another_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the kernel's freeing the lock and the last line of `release`, another thread may have it."""
    shared, flock = Lock(path), fcntl.flock

    def give_and_take(fd: int, operation: int) -> None:
        flock(fd, operation)
        if operation == fcntl.LOCK_UN:
            monkeypatch.setattr(fcntl, "flock", flock)
            taking = threading.Thread(target=shared.acquire)
            taking.start()
            taking.join()

    before = open_below(path.parent)
    shared.acquire()
    monkeypatch.setattr(fcntl, "flock", give_and_take)
    shared.release()
    assert not is_free(path)
    shared.release()
    assert is_free(path)
    assert open_below(path.parent) == before


def test_lock_excludes_processes_and_is_freed_by_a_kill(path: Path, start: Start) -> None:
    owner = start(HOLD, path)
    assert first_line(owner) == "held"
    assert not is_free(path)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert is_free(path)


def test_a_waiting_writer_gets_the_lock_when_its_owner_is_killed(path: Path, start: Start) -> None:
    owner = start(HOLD, path)
    assert first_line(owner) == "held"
    killer = threading.Timer(0.1, owner.kill)
    killer.start()
    with Lock(path, timeout_s=30):
        assert owner.wait(30) == -signal.SIGKILL
    killer.join()


def test_forked_child_does_not_keep_the_parents_lock(path: Path, start: Start) -> None:
    owner = start(HOLD_AND_FORK, path)
    child = int(first_line(owner))
    try:
        assert not is_free(path)
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert is_free(path)
    finally:
        os.kill(child, signal.SIGKILL)  # fails if it was not alive all the while


def test_a_child_that_ends_does_not_free_the_lock_of_its_parent(path: Path) -> None:
    script = f"""if True:
        import os
        from pathlib import Path
        from holdfast.durable import Lock
        with Lock(Path({str(path)!r})):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            print(Lock(Path({str(path)!r})).acquire(wait=False))
    """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_child_forked_during_a_wait_does_not_keep_the_lock(path: Path) -> None:
    """The child has a copy of the file that the thread waited with, and nothing closes it there."""
    script = f"""if True:
        import os, threading, time
        from pathlib import Path
        from holdfast.durable import Lock
        first, second = Lock(Path({str(path)!r})), Lock(Path({str(path)!r}))
        first.acquire()
        waiting = threading.Thread(target=second.acquire)
        waiting.start()
        while [os.path.realpath("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd")].count({str(path)!r}) < 2:
            time.sleep(0.001)
        child = os.fork()
        if not child:
            time.sleep(60)
        first.release()
        waiting.join()
        second.release()
        print(Lock(Path({str(path)!r})).acquire(wait=False))
        os.kill(child, 9)
        os.waitpid(child, 0)
    """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "True\n"


@pytest.mark.linux
def test_timeout_names_the_owner_and_what_to_do(path: Path, start: Start) -> None:
    owner = start(HOLD, path)
    first_line(owner)
    with pytest.raises(Unavailable, match=rf"\({owner.pid}\) has been writing to this store for 0 seconds") as caught:
        Lock(path, timeout_s=0.05).acquire()
    assert "end it" in caught.value.hint


def test_waiting_in_vain_leaves_no_descriptor_open(path: Path) -> None:
    with Lock(path):
        before = open_below(path.parent)
        assert not Lock(path).acquire(wait=False)
        with pytest.raises(Unavailable):
            Lock(path, timeout_s=0.01).acquire()
        assert open_below(path.parent) == before


@pytest.mark.parametrize(
    ("call", "error"),
    [("fcntl.flock", OSError(errno.ENOLCK, "No locks available")), ("time.sleep", KeyboardInterrupt())],
)
def test_interrupted_wait_leaves_no_descriptor_open(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    with Lock(path):
        before = open_below(path.parent)
        with monkeypatch.context() as patch, pytest.raises(type(error)):
            patch.setattr(call, fail)
            Lock(path).acquire()
        assert open_below(path.parent) == before


def test_the_file_stays_empty_and_closed_to_others(path: Path) -> None:
    with Lock(path):
        assert path.stat().st_size == 0
        assert path.stat().st_mode & 0o777 == 0o600


def test_what_the_file_holds_is_not_believed(path: Path) -> None:
    path.write_bytes(b"held by 1\n")
    assert is_free(path)
