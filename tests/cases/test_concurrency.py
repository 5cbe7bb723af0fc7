"""Concurrency: many processes on one store lose nothing, see nothing half-made, and wait for nobody who is dead."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from holdfast import Unavailable, durable

from .capture import differences
from .harness import Case, run_python

OPEN = """
import os, sys, time
from holdfast import Workspace, HoldfastError, NotFound
root, store, home, number = sys.argv[1:5]
def open_it():
    return Workspace(root, store=store, home=home, environ={})
"""

SAVE = (
    OPEN
    + """
ws = open_it()
for turn in range(int(sys.argv[5])):
    with open(f"{root}/writer-{number}.txt", "w") as file:
        file.write(f"{number}:{turn}")
    print(ws.save(f"{number}:{turn}", session=number, allow_empty=True).id, flush=True)
"""
)

READ = (
    OPEN
    + """
ws = open_it()
count = 0
until = time.monotonic() + float(sys.argv[5])
while time.monotonic() < until or count < 10:
    listed = ws.list(limit=None)
    for each in listed[:2]:
        each.uncovered, each.files_changed, each.state
    if listed:
        assert ws.get(listed[0].id).id == listed[0].id
        assert ws.get("latest").sequence >= listed[0].sequence
    assert [each.sequence for each in listed] == sorted((each.sequence for each in listed), reverse=True)
    count += 1
print(count)
"""
)


def start(case: Case, script: str, number: object, *words: object) -> subprocess.Popen[bytes]:
    """Start a process on this case's workspace and store; it is gone when the case is."""
    texts = (str(case.root), str(case.store_area), str(case.home), str(number), *map(str, words))
    process = run_python(script, *texts, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def stop() -> None:
        if process.poll() is None:
            process.kill()
        process.communicate()

    case.later(stop)
    return process


def said(process: subprocess.Popen[bytes]) -> list[str]:
    """What a process printed; it must have ended well."""
    out, problems = process.communicate(timeout=120)
    assert process.returncode == 0, problems.decode(errors="replace")
    return out.decode().split()


def test_eight_processes_saving_at_once_lose_nothing(case: Case) -> None:
    """Case 120."""
    with case.watched("eight writers"):
        processes = [start(case, SAVE, number, 6) for number in range(8)]
        told = [line for process in processes for line in said(process)]
    assert len(set(told)) == 48
    listed = case.ws.list(limit=None)
    assert {each.id for each in listed} == set(told)
    assert len({each.sequence for each in listed}) == 48
    for each in listed:
        number, turn = each.message.split(":")
        assert case.held(each, f"writer-{number}.txt") == f"{number}:{turn}".encode()
    for number in range(8):
        mine = [each.message for each in case.ws.list(limit=None, session=str(number))]
        assert mine == [f"{number}:{turn}" for turn in reversed(range(6))]


def test_processes_that_create_the_store_at_once_share_it(case: Case) -> None:
    """Case 120."""
    for attempt in range(3):
        case.reopen(store=case.store_area / str(attempt))
        case.store_area.mkdir(mode=0o700, exist_ok=True)
        script = SAVE.replace("store=store", f"store=store + '/{attempt}'")
        told = [line for process in [start(case, script, n, 1) for n in range(6)] for line in said(process)]
        assert {each.id for each in case.ws.list()} == set(told)


@pytest.mark.slow
def test_readers_beside_writers_see_no_half_made_checkpoint(case: Case) -> None:
    """Case 120."""
    for number in range(400):
        case.write(f"files/{number}", os.urandom(2000))
    case.save("first")
    writers = [start(case, SAVE, number, 8) for number in range(2)]
    readers = [start(case, READ, number, 2.0) for number in range(2)]
    with case.path("writer-0.txt").open("w"):
        for process in writers:
            said(process)
    for process in readers:
        assert int(said(process)[-1]) >= 10


def test_a_reader_works_while_a_writer_holds_the_lock(case: Case) -> None:
    """Case 120."""
    checkpoint = case.save("first")
    case.write("README.md", b"edited")
    with durable.Lock(case.ws.store / "holdfast" / "lock"):
        begin = time.monotonic()
        other = case.open()
        assert [each.id for each in other.list()] == [checkpoint.id]
        assert other.get("latest").state == {}
        assert other.diff(checkpoint.id).modified_files == ["README.md"]
        assert other.preview(checkpoint.id).replaced == ["README.md"]
        assert time.monotonic() - begin < 60  # of 600 that a lock is waited for


RESTORE = (
    OPEN
    + """
ws = open_it()
for turn in range(int(sys.argv[5])):
    for ref in ("state-a", "state-b"):
        assert ws.restore(ref).ok
        print(ref, flush=True)
"""
)


def two_states(case: Case) -> None:
    """Save two states under names, each of many files that all say which one it is."""
    for state in ("state-a", "state-b"):
        for number in range(150):
            case.write(f"many/{number % 7}/{number}", f"{state} {number}")
        case.write(f"only-{state}", state)
        (case.path("only-state-a").unlink() if state == "state-b" else None)
        case.save(state, name=state)


@pytest.mark.slow
def test_save_during_a_restore_has_no_half_restored_tree(case: Case) -> None:
    """Case 121."""
    two_states(case)
    restoring = start(case, RESTORE, 0, 5)
    assert restoring.stdout
    saved = []
    while restoring.poll() is None:
        saved.append(case.ws.save("during the restores", allow_empty=True))
    assert restoring.wait() == 0
    assert len(saved) > 1
    for checkpoint in {each.id: each for each in saved}.values():
        archive = case.git_store("archive", "--format=tar", f"{checkpoint.id}:files", "many")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            texts = [source.read() for member in tar if (source := tar.extractfile(member))]
        states = {text.split()[0] for text in texts}
        assert len(texts) == 150
        assert len(states) == 1, f"{checkpoint.id} holds files of {states}"


@pytest.mark.slow
def test_two_restores_at_once_end_in_one_of_the_two_states(case: Case) -> None:
    """Case 121."""
    two_states(case)
    a, b = case.saved[case.ws.get("state-a").id], case.saved[case.ws.get("state-b").id]
    with case.watched("restores at once"):
        for process in [start(case, RESTORE, number, 3) for number in range(3)]:
            said(process)
    now = case.capture()
    assert not differences(a, now) or not differences(b, now)


PRUNE = (
    OPEN
    + """
ws = open_it()
for turn in range(int(sys.argv[5])):
    with open(f"{root}/../scratch", "w") as file:
        file.write("")
    for each in ws.list(limit=None):
        if each.name is None:
            try:
                ws.delete(each.id)
            except NotFound:
                pass
    ws.merge()
"""
)


@pytest.mark.slow
def test_restore_beside_deletes_and_merges_gets_all_it_needs(case: Case) -> None:
    """Case 122."""
    two_states(case)
    for number in range(12):
        case.write("filler", os.urandom(3000))
        case.save(f"filler {number}")
    (case.area / "scratch").write_bytes(b"")
    pruning = start(case, PRUNE, 0, 4)
    restoring = start(case, RESTORE, 1, 4)
    said(pruning)
    said(restoring)
    assert case.restore("state-a").ok
    assert case.restore("state-b").ok
    assert [each.name for each in case.ws.list() if each.name] == ["state-b", "state-a"]


HOLD = (
    OPEN
    + """
from pathlib import Path
from holdfast import durable
lock = durable.Lock(Path(store) / "holdfast" / "lock")
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""
)


def test_a_lock_whose_owner_was_killed_is_free(case: Case) -> None:
    """Case 117."""
    case.save("first")
    owner = start(case, HOLD, 0)
    assert owner.stdout
    assert owner.stdout.readline() == b"held\n"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    case.write("README.md", b"edited")
    begin = time.monotonic()
    case.save("after its death")
    assert time.monotonic() - begin < 60  # of 600 that a lock is waited for


@pytest.mark.linux
def test_held_lock_times_out_and_names_its_owner(case: Case) -> None:
    """Case 117."""
    case.save("first")
    owner = start(case, HOLD, 0)
    assert owner.stdout
    owner.stdout.readline()
    with pytest.raises(Unavailable) as told:
        durable.Lock(case.ws.store / "holdfast" / "lock", timeout_s=0.2).acquire()
    assert str(owner.pid) in told.value.message
    owner.kill()
    owner.wait()


def test_whatever_a_lock_file_holds_it_is_not_believed(case: Case) -> None:
    """Case 117."""
    case.save("first")
    lock: Path = case.ws.store / "holdfast" / "lock"
    for text in (b"1\n", b"%d\n" % os.getpid(), b"another-host:4242\n", os.urandom(100)):
        lock.write_bytes(text)
        case.write("file", text)
        case.reopen()
        case.save("all the same")
    lock.unlink()
    case.write("file", b"without a lock file")
    case.save("without one")
    lock.chmod(0o600)


SAVE_FOR_EVER = (
    OPEN
    + """
ws = open_it()
turn = 0
while True:
    turn += 1
    for each in range(5):
        with open(f"{root}/busy-{number}-{each}.bin", "wb") as file:
            file.write(os.urandom(20000))
    print(ws.save(f"{number}:{turn}").id, flush=True)
"""
)


@pytest.mark.slow
def test_killed_writers_leave_what_they_reported(case: Case) -> None:
    """Case 120."""
    told: set[str] = set()
    for round_ in range(3):
        processes = [start(case, SAVE_FOR_EVER, f"{round_}{number}") for number in range(3)]
        for process in processes:  # until all are at work
            assert process.stdout
            told.add(process.stdout.readline().decode().strip())
        for process in processes:
            process.kill()
            out, _ = process.communicate()
            told |= {line for line in out.decode().split("\n")[:-1] if line}
        case.reopen()
        assert told <= {each.id for each in case.ws.list(limit=None)}
        case.save(f"after round {round_}")
    assert len(told) >= 3
