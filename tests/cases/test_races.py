"""Races and change detection: no change is missed, none is torn, nothing that moves meanwhile is overwritten."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Checkpoint, HoldfastError
from holdfast.model import Reason
from waiting import settle

from . import repository
from .harness import Case, every_step, require
from .people import needs_root


@contextmanager
def meanwhile(case: Case, work: Callable[[], None]) -> Iterator[None]:
    """Do `work` over and over, in a thread, while the body runs."""
    assert case.ws is not None  # opened while nothing moves: the harness takes pictures of the workspace around it
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures


def flagged(checkpoint: Checkpoint, name: str) -> bool:
    """Whether a checkpoint says that a file was not quiet."""
    return name in [each.path for each in checkpoint.uncovered if each.reason.is_failure]


@pytest.mark.parametrize("how", ["in place", "renamed over", "shifted", "copied with its time"])
def test_an_edit_that_keeps_size_and_time_is_seen(case: Case, how: str) -> None:
    """Case 93."""
    case.write("file", b"aaaa")
    os.utime(case.path("file"), ns=(10**18, 10**18))
    settle(case.root)
    first = case.save()
    if how == "in place":
        case.write("file", b"bbbb")
    elif how == "renamed over":
        case.write("other", b"bbbb")
        case.path("other").rename(case.path("file"))
    elif how == "shifted":
        with case.path("file").open("r+b") as file:
            file.write(b"ab")
    else:
        (case.outside / "copy").write_bytes(b"bbbb")
        shutil.copy2(case.outside / "copy", case.path("file"))
    os.utime(case.path("file"), ns=(10**18, 10**18))
    now = case.read("file")
    second = case.save()
    assert second.id != first.id
    assert case.held(second, "file") == now
    assert case.restore(first).ok
    assert case.read("file") == b"aaaa"


def test_edits_right_after_a_save_are_seen_however_quick(case: Case) -> None:
    """Case 94."""
    seen = []
    for number in range(60):
        case.write("file", b"%04d" % number)
        seen.append(case.ws.save(f"edit {number}"))
    assert len({each.id for each in seen}) == 60
    assert [case.held(each, "file") for each in seen] == [b"%04d" % number for number in range(60)]


def test_files_made_and_renamed_right_after_a_save_are_seen(case: Case) -> None:
    """Case 94."""
    for number in range(30):
        case.write(f"folder/{number}", b"x")
        made = case.ws.save("made")
        case.path(f"folder/{number}").rename(case.path(f"folder/r{number}"))
        renamed = case.ws.save("renamed")
        assert made.id != renamed.id
        assert f"folder/r{number}" in renamed.files_changed


@needs_root
def test_a_file_system_with_coarse_times_hides_no_edit(case: Case) -> None:
    """Case 95."""
    image, place = case.outside / "image", case.area / "coarse"
    subprocess.run(["truncate", "-s", "16M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-I", "128", image], check=True)  # small inodes keep whole seconds
    case.mount(place, "-o", "loop", str(image))
    image.unlink()  # the kernel writes it while it is mounted, and that is not the engine reaching outside
    shutil.copytree(case.root, place / "ws", symlinks=True)
    case.root = place / "ws"
    case.write("probe", b"")
    assert case.path("probe").stat().st_mtime_ns % 10**9 == 0
    for number in range(20):
        case.write("file", b"%04d" % number)
        checkpoint = case.ws.save(f"edit {number}")
        assert case.held(checkpoint, "file") == b"%04d" % number
    first = case.save()
    case.write("file", b"last")
    assert case.restore(first).ok


def test_a_clock_that_jumps_changes_no_order(case: Case) -> None:
    """Case 96."""
    now = datetime(2024, 10, 27, 2, 30, tzinfo=UTC)
    jumps = [0, 3600, -7200, 86400, -86400 * 365, 1]
    saved = []
    for number, jump in enumerate(jumps):
        now += timedelta(seconds=jump)
        case.reopen(clock=lambda now=now: now)
        case.write("file", b"%d" % number)
        saved.append(case.save(f"number {number}"))
    assert [each.id for each in case.ws.list()] == [each.id for each in reversed(saved)]
    assert case.ws.get("latest").id == saved[-1].id
    assert case.ws.get("latest~2").id == saved[-3].id
    assert sorted(each.id for each in saved) == [each.id for each in saved]
    assert case.restore(saved[0]).ok


@pytest.mark.parametrize("jump_s", [3600, -3600, 86400 * 3650])
def test_files_from_the_future_or_the_past_hide_no_edit(case: Case, jump_s: int) -> None:
    """Case 96."""
    stamp = time.time_ns() + jump_s * 10**9
    case.write("file", b"aaaa")
    os.utime(case.path("file"), ns=(stamp, stamp))
    os.utime(case.root, ns=(stamp, stamp))
    first = case.save()
    case.write("file", b"bbbb")
    os.utime(case.path("file"), ns=(stamp, stamp))
    case.write("new", b"1")
    os.utime(case.root, ns=(stamp, stamp))
    second = case.save()
    assert case.held(second, "file") == b"bbbb"
    assert "new" in second.files_changed
    assert case.restore(first).ok


@pytest.mark.slow
def test_a_file_written_while_it_is_read_is_whole_or_flagged(case: Case) -> None:
    """Case 97."""
    path, size = case.write("busy.bin", bytes(24 << 20)), 24 << 20
    generation = 0

    def write() -> None:
        nonlocal generation
        generation += 1
        mark = generation.to_bytes(8)
        with path.open("r+b") as file:
            file.write(mark)
            file.seek(size - 8)
            file.write(mark)

    case.ws.save("quiet")
    with meanwhile(case, write):
        checkpoints = [case.ws.save(f"busy {number}") for number in range(5)]
    for checkpoint in checkpoints:
        if not flagged(checkpoint, "busy.bin"):
            data = case.held(checkpoint, "busy.bin")
            begin, end = int.from_bytes(data[:8]), int.from_bytes(data[-8:])
            assert begin - end in (0, 1), f"{begin} at the beginning and {end} at the end, and nothing says so"
        else:
            assert not checkpoint.complete


def test_a_file_that_only_grows_is_held_up_to_some_point(case: Case) -> None:
    """Case 97."""
    path = case.write("app.log", b"")
    number = 0

    def log() -> None:
        nonlocal number
        number += 1
        with path.open("ab") as file:
            file.write(b"line %08d\n" % number)

    with meanwhile(case, log):
        checkpoints = [case.ws.save(f"busy {turn}") for turn in range(10)]
    whole = path.read_bytes()
    for checkpoint in checkpoints:
        assert flagged(checkpoint, "app.log") or whole.startswith(case.held(checkpoint, "app.log"))


def test_file_replaced_during_the_scan_is_one_of_its_versions(case: Case) -> None:
    """Case 99."""
    versions = {0o600: b"a" * 1000, 0o644: b"b" * 70_000}

    def replace() -> None:
        for mode, data in versions.items():
            case.write("spare", data, mode=mode)
            case.path("spare").rename(case.path("file"))

    replace()
    with meanwhile(case, replace):
        checkpoints = [case.ws.save(f"turn {number}") for number in range(25)]
    for checkpoint in {each.id: each for each in checkpoints}.values():
        if not flagged(checkpoint, "file"):
            with case.watched("restore"):
                assert case.ws.restore(checkpoint.id).ok
            assert versions.get(case.path("file").stat().st_mode & 0o777) == case.read("file")


def test_file_removed_during_the_walk_is_absent(case: Case) -> None:
    """Case 100."""
    for number in range(300):
        case.write(f"stable/{number % 10}/{number}", b"x")

    def churn() -> None:
        for number in range(10):
            case.write(f"churn/{number}/a/b/file", b"x")
        shutil.rmtree(case.path("churn"))

    case.path("churn").mkdir()
    with meanwhile(case, churn):
        checkpoints = [case.ws.save(f"turn {number}", allow_empty=True) for number in range(12)]
    for checkpoint in checkpoints:
        listed = case.git_store("ls-tree", "-r", "--name-only", f"{checkpoint.id}:files").decode().split()
        assert sum(name.startswith("stable/") for name in listed) == 300


def test_folder_moved_during_the_walk_is_whole_or_flagged(case: Case) -> None:
    """Case 100."""
    for number in range(200):
        case.write(f"here/{number % 5}/{number}", b"x")

    def move() -> None:
        case.path("here").rename(case.path("there"))
        case.path("there").rename(case.path("here"))

    with meanwhile(case, move):
        checkpoints = [case.ws.save(f"turn {number}", rehash=True, allow_empty=True) for number in range(12)]
    for checkpoint in checkpoints:
        listed = case.git_store("ls-tree", "-r", "--name-only", f"{checkpoint.id}:files").decode().split()
        held = sum(name.startswith(("here/", "there/")) for name in listed)
        assert held >= 200 or not (checkpoint.complete and checkpoint.quiet)


def steps_of_a_restore(case: Case, checkpoint: Checkpoint) -> int:
    """How many system calls a restore makes; it is done and undone to find out."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with every_step(count):
        case.ws.restore(checkpoint.id)
    case.undo()
    return steps


@pytest.mark.slow
def test_an_editor_that_saves_during_a_restore_loses_nothing(case: Case) -> None:
    """Case 101."""
    case.write("file", b"original")
    case.write("other", b"original")
    checkpoint = case.save()
    case.write("file", b"edited before")
    steps = steps_of_a_restore(case, checkpoint)
    assert steps > 50
    for moment in range(0, steps, max(1, steps // 80)):
        text, seen = b"saved in the editor at step %d" % moment, 0

        def save_in_editor(moment: int = moment, text: bytes = text) -> None:
            nonlocal seen
            seen += 1
            if seen == moment + 1:
                case.write(".file.swp", text)
                case.path(".file.swp").rename(case.path("file"))

        case.write("file", b"edited before")
        case.write("other", b"edited before %d" % moment)
        outcome = "done"
        try:
            with case.watched(f"restore disturbed at step {moment}"), every_step(save_in_editor):
                result = case.ws.restore(checkpoint.id)
            outcome = f"failed {result.failed}, kept {result.kept}"
        except HoldfastError as error:
            outcome = repr(error)
            case.reopen()
        if seen > moment and case.read("file") != text:
            blob = repository.git(case.area, case.home, "hash-object", "--stdin", stdin=text).decode().strip()
            stored = case.git_store("cat-file", "-t", blob, check=False) == b"blob\n"
            require(stored, "I2", f"what was saved at step {moment} of {steps} is neither there nor stored: {outcome}")


def test_open_file_is_replaced_and_its_old_bytes_kept(case: Case) -> None:
    """Case 102."""
    case.write("app.log", b"first\n")
    checkpoint = case.save()
    with case.path("app.log").open("ab") as logger:
        logger.write(b"second\n")
        logger.flush()
        assert case.restore(checkpoint).ok
        logger.write(b"third\n")
        logger.flush()
        assert case.read("app.log") == b"first\n"
    case.undo()
    assert case.read("app.log") == b"first\nsecond\n"
    case.redo()


def open_database(case: Case) -> sqlite3.Connection:
    """A database in write-ahead mode, whose log is not folded in by itself."""
    connection = sqlite3.connect(case.path("app.db"), isolation_level=None, check_same_thread=False)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma wal_autocheckpoint=0")
    return connection


def sums(case: Case) -> tuple[str, list[int]]:
    """Whether the database is sound, and what its two accounts hold."""
    with closing(sqlite3.connect(case.path("app.db"))) as connection:
        [[check]] = connection.execute("pragma integrity_check").fetchall()
        return check, [row[0] for row in connection.execute("select value from account order by id")]


def test_a_database_with_an_open_log_is_held_with_its_log(case: Case) -> None:
    """Case 103."""
    with closing(open_database(case)) as connection:
        connection.execute("create table account (id integer, value integer)")
        connection.execute("insert into account values (1, 100), (2, 0)")
        checkpoint = case.save()
        connection.execute("update account set value = value - 1 where id = 1")
    for name in ("app.db", "app.db-wal", "app.db-shm"):
        case.path(name).unlink(missing_ok=True)
    assert case.restore(checkpoint).ok
    assert case.path("app.db-wal").stat().st_size > 0
    assert sums(case) == ("ok", [100, 0])


@pytest.mark.slow
def test_database_being_written_is_consistent_or_flagged(case: Case) -> None:
    """Case 103."""
    connection = open_database(case)
    connection.execute("create table account (id integer, value integer, filler text)")
    connection.execute("insert into account values (1, 100000, ''), (2, 0, '')")
    turn = 0

    def transfer() -> None:
        nonlocal turn
        turn += 1
        connection.execute("begin immediate")
        connection.execute("update account set value = value - 1, filler = ? where id = 1", ("x" * 3000,))
        connection.execute("update account set value = value + 1, filler = ? where id = 2", ("y" * 3000,))
        connection.execute("commit")
        if turn % 50 == 0:
            connection.execute("pragma wal_checkpoint(truncate)")

    with closing(connection), meanwhile(case, transfer):
        checkpoints = [case.ws.save(f"turn {number}") for number in range(12)]
    for name in ("app.db", "app.db-wal", "app.db-shm"):
        case.path(name).unlink(missing_ok=True)
    for checkpoint in checkpoints:
        parts = ("app.db", "app.db-wal", "app.db-shm")
        if any(flagged(checkpoint, name) for name in parts):
            assert Reason.LIVE_DATABASE in [each.reason for each in checkpoint.uncovered] or not checkpoint.complete
            continue
        with case.watched("restore"):
            case.ws.restore(checkpoint.id)
        check, values = sums(case)
        assert check == "ok"
        assert sum(values) == 100000


def test_a_restore_onto_a_database_in_use_loses_no_row(case: Case) -> None:
    """Case 103."""
    with closing(open_database(case)) as connection:
        connection.execute("create table account (id integer, value integer)")
        connection.execute("insert into account values (1, 1)")
        checkpoint = case.save()
        connection.execute("insert into account values (2, 2)")
        connection.execute("begin immediate")
        try:
            with case.watched("restore"):
                case.ws.restore(checkpoint.id)
        except HoldfastError:
            return  # refused while another process has it locked
        connection.execute("rollback")
    case.undo()
    assert sums(case) == ("ok", [1, 2])


def test_formatter_rewriting_restored_files_is_reported(case: Case) -> None:
    """Case 104."""
    case.write("file", b"original")
    checkpoint = case.save()
    case.write("file", b"edited")
    rewritten = 0

    def format_again() -> None:
        nonlocal rewritten
        path = case.path("file")
        if path.exists() and path.read_bytes() == b"original":
            rewritten += 1
            path.write_bytes(b"formatted %d" % rewritten)

    with case.watched("restore"), every_step(format_again):
        result = case.ws.restore(checkpoint.id)
    assert rewritten
    assert "file" in result.failed
    assert not result.ok


def test_write_through_mmap_is_found_by_rehashing(case: Case) -> None:
    """Case 105."""
    path = case.write("mapped.bin", bytes(mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        for number in range(1, 50):  # until the kernel does not tell: it does if it wrote the page out meanwhile
            mapping[0] = number
            settle(case.root)
            first = case.save()
            stamp = path.stat().st_mtime_ns
            mapping[0] = 200
            if path.stat().st_mtime_ns == stamp:
                break
        else:
            raise AssertionError("the kernel told; nothing is shown")
        second = case.save(rehash=True)
    assert second.id != first.id
    assert case.held(second, "mapped.bin")[0] == 200


@pytest.mark.slow
def test_a_workspace_that_is_not_quiet_is_flagged(case: Case) -> None:
    """Case 106."""
    path = case.write("server.log", os.urandom(32 << 20))

    def log() -> None:
        with path.open("ab") as file:
            file.write(b"a line\n")

    with meanwhile(case, log):
        busy = [case.ws.save(f"busy {number}") for number in range(3)]
    assert not all(each.quiet for each in busy)
    assert case.save("quiet again").quiet
