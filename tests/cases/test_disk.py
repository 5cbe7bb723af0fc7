"""Crash, disk, corruption, as far as it shows without a fault layer: real kills, full disks, flipped bytes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Checkpoint, Damaged, HoldfastError, NotFound, Refused, Unavailable, Workspace
from holdfast.retention import Policy

from .capture import differences
from .harness import Case
from .people import by_somebody, needs_root
from .test_concurrency import OPEN, RESTORE, SAVE_FOR_EVER, start, two_states


def leftovers(case: Case) -> list[str]:
    """Files in the store that no finished operation leaves."""
    return [
        path.name
        for path in case.ws.store.rglob("*")
        if path.is_file() and (path.name.startswith((".", "tmp")) or path.suffix in (".tmp", ".new", ".part"))
    ]


@pytest.mark.slow
def test_killed_save_leaves_a_sound_store(case: Case) -> None:
    """Case 107."""
    dice = random.Random(107)
    told: set[str] = set()
    for round_ in range(8):
        process = start(case, SAVE_FOR_EVER, round_)
        time.sleep(0.25 + dice.random() / 3)
        process.kill()
        out, _ = process.communicate()
        told |= {line for line in out.decode().split("\n")[:-1] if line}
        case.reopen()
        assert told <= {each.id for each in case.ws.list(limit=None)}
        checkpoint = case.save(f"after kill {round_}")
        assert checkpoint.complete
        assert case.ws.verify().ok
    assert leftovers(case) == []


@pytest.mark.slow
def test_a_restore_that_is_killed_ends_in_one_state_or_the_other(case: Case) -> None:
    """Case 108."""
    dice = random.Random(108)
    two_states(case)
    states = {name: case.saved[case.ws.get(name).id] for name in ("state-a", "state-b")}
    journal = case.ws.store / "holdfast" / "journal.json"
    recoveries = 0
    for round_ in range(12):
        process = start(case, RESTORE, 0, 1000)
        assert process.stdout
        process.stdout.readline()
        time.sleep(dice.random() / 5)
        while round_ % 2 and not journal.exists():  # in the middle of one
            assert process.poll() is None
        process.kill()
        process.communicate()
        case.reopen()
        recovered = case.ws.recovered
        recoveries += recovered is not None
        assert recovered is None or recovered.outcome in ("finished", "rolled back")
        now = case.capture()
        assert any(not differences(state, now) for state in states.values()), {
            name: dict(list(differences(state, now).items())[:5]) for name, state in states.items()
        }
        assert case.open().recovered is None
        case.restore("state-a")
    assert recoveries, "no restore was killed in the middle; nothing is shown"


MERGE_FOR_EVER = (
    OPEN
    + """
ws = open_it()
turn = 0
while True:
    turn += 1
    for each in range(3):
        with open(f"{root}/merge-{each}.bin", "wb") as file:
            file.write(os.urandom(20000))
        made = ws.save(f"{turn}")
    ws.delete(made.id)
    ws.merge()
    print(turn, flush=True)
"""
)


@pytest.mark.slow
def test_a_merge_that_is_killed_loses_nothing_and_leaves_nothing(case: Case) -> None:
    """Case 109."""
    dice = random.Random(109)
    case.write("precious", b"held by the first checkpoint")
    first = case.save("first")
    for _ in range(8):
        process = start(case, MERGE_FOR_EVER, 0)
        time.sleep(0.3 + dice.random() / 3)
        process.kill()
        process.communicate()
        case.reopen()
        case.write("note", os.urandom(10))
        case.save("after the kill")
        assert case.ws.verify().ok
    case.ws.merge()
    assert leftovers(case) == []
    assert case.restore(first).ok


def packs(case: Case) -> list[Path]:
    """The files that hold what was saved."""
    return sorted(path for path in (case.ws.store / "objects").rglob("*") if path.suffix in (".pack", ".idx"))


@pytest.mark.parametrize("length", ["nothing", "half", "all but the end"])
@pytest.mark.parametrize("suffix", [".pack", ".idx"])
def test_a_torn_file_of_the_store_is_found_and_confined(case: Case, length: str, suffix: str) -> None:
    """Case 110."""
    first = case.save("first")
    case.write("second.bin", os.urandom(5000))
    older = set(packs(case))
    second = case.save("second")
    [torn] = [path for path in packs(case) if path not in older and path.suffix == suffix]
    size = torn.stat().st_size  # the last 20 bytes of a pack are a checksum, and no object's
    os.truncate(torn, {"nothing": 0, "half": size // 2, "all but the end": size - 40}[length])
    case.damaged_on_purpose = "a file of the store was cut short"
    case.reopen()
    report = case.ws.verify()
    assert not report.ok
    touched = {name for problem in report.problems for name in problem.checkpoints}
    assert touched == {second.id}
    case.write("README.md", b"edited")
    case.path("second.bin").unlink()
    assert case.restore(first).ok
    _damage_is_said(case, second)


def _damage_is_said(case: Case, checkpoint: Checkpoint) -> None:
    """A restore of what is damaged is refused or says what it could not bring back; a save goes on."""
    with pytest.raises(Damaged):
        case.restore(checkpoint)
    case.write("later.txt", os.urandom(100))
    assert case.save("life goes on").complete


@needs_root
def test_full_disk_during_a_save_yields_no_id(case: Case) -> None:
    """Case 111."""
    case.mount(case.store_area, "-t", "tmpfs", "-o", "size=2m,mode=0700", "none")
    case.reopen(store=case.store_area / "store")
    first = case.save("fits")
    case.write("large.bin", os.urandom(4 << 20))
    with pytest.raises(Unavailable):
        case.save("does not fit")
    assert leftovers(case) == []
    assert [each.id for each in case.ws.list()] == [first.id]
    assert case.ws.verify().ok
    case.path("large.bin").unlink()
    case.write("README.md", b"edited")
    case.save("fits again")
    assert case.restore(first).ok


@needs_root
def test_restore_without_room_for_its_safety_is_not_begun(case: Case) -> None:
    """Case 111."""
    case.mount(case.store_area, "-t", "tmpfs", "-o", "size=2m,mode=0700", "none")
    case.reopen(store=case.store_area / "store")
    first = case.save("fits")
    case.write("README.md", b"edited")
    case.write("large.bin", os.urandom(4 << 20))
    with pytest.raises(Unavailable):
        case.restore(first)
    assert case.path("large.bin").stat().st_size == 4 << 20
    case.path("large.bin").unlink()
    assert case.restore(first).ok


@needs_root
@pytest.mark.parametrize("limit", ["size=6m", "nr_inodes=60"])
def test_a_restore_that_does_not_fit_leaves_everything_as_it_was(case: Case, limit: str) -> None:
    """Case 112."""
    place = case.area / "small"
    case.mount(place, "-t", "tmpfs", "-o", f"{limit},mode=0755", "none")
    case.root = place / "ws"
    case.root.mkdir()
    if limit.startswith("size"):
        case.write("large.bin", os.urandom(4 << 20))
    else:
        for number in range(40):
            case.write(f"{number}.txt", b"%d" % number)
    checkpoint = case.save()
    for path in list(case.root.iterdir()):
        path.unlink()
    if limit.startswith("size"):
        case.write("other.bin", os.urandom(4 << 20))
    else:
        for number in range(100, 140):
            case.write(f"{number}.txt", b"%d" % number)
    try:
        result = case.restore(checkpoint)
    except Unavailable:
        return  # nothing was changed: the harness has seen to it
    assert result.ok


LIMITED = (
    OPEN
    + """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ws = open_it()
ws.list()
what, value = sys.argv[5], int(sys.argv[6])
if what == "open files":
    value += len(os.listdir("/proc/self/fd"))
kind = {"open files": resource.RLIMIT_NOFILE, "file size": resource.RLIMIT_FSIZE}[what]
resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))
try:
    done = getattr(ws, sys.argv[7])(*sys.argv[8:])
except HoldfastError as error:
    print("error", type(error).__name__)
else:
    print("done", getattr(done, "id", ""), done.ok if hasattr(done, "ok") else done.complete)
"""
)


@pytest.mark.parametrize(
    ("what", "value"),
    [("open files", 2), ("open files", 5), ("open files", 12), ("file size", 100), ("file size", 30_000)],
)
def test_save_at_a_resource_limit_is_an_error_or_a_success(case: Case, what: str, value: int) -> None:
    """Case 113."""
    first = case.save("first")
    for number in range(30):
        case.write(f"deep/{number}/a/b/c/file", os.urandom(4000))
    with case.watched("save at a limit"):
        process = start(case, LIMITED, 0, what, value, "save")
        out, problems = process.communicate(timeout=60)
    words = out.decode().split()
    assert words, problems.decode()
    case.reopen()
    listed = [each.id for each in case.ws.list()]
    assert listed == ([first.id] if words[0] == "error" else [words[1], first.id])
    assert words[0] == "error" or words[2] == "True"  # a shortage of the process must not leave a file out
    assert leftovers(case) == []
    assert case.save("without the limit").complete


@pytest.mark.parametrize(
    ("what", "value"), [("open files", 2), ("open files", 12), ("file size", 100), ("file size", 3000)]
)
def test_a_restore_that_meets_a_limit_is_taken_back_or_done(case: Case, what: str, value: int) -> None:
    """Case 113."""
    for number in range(10):
        case.write(f"deep/{number}/a/b/c/file", os.urandom(2000 + 400 * number))
    checkpoint = case.save("first")
    wanted = case.saved[checkpoint.id]
    for number in range(10):
        case.write(f"deep/{number}/a/b/c/file", b"edited")
    case.save("edited")
    before = case.capture()
    with case.watched("restore at a limit"):
        process = start(case, LIMITED, 0, what, value, "restore", checkpoint.id)
        out, problems = process.communicate(timeout=60)
    words = out.decode().split()
    assert words, problems.decode()
    case.reopen()
    case.ws.list()
    now = case.capture()
    if words[0] == "error":
        assert differences(before, now) == {} or differences(wanted, now) == {}
    else:
        assert words[-1] == "False" or differences(wanted, now) == {}
    assert case.restore(checkpoint).ok


@needs_root
def test_read_only_store_can_be_read_and_yields_no_id(case: Case) -> None:
    """Case 113. Case 114."""
    case.mount(case.store_area, "-t", "tmpfs", "-o", "size=20m,mode=0700", "none")
    case.reopen(store=case.store_area / "store")
    checkpoint = case.save("first")
    subprocess.run(["mount", "-o", "remount,ro", case.store_area], check=True)
    case.reopen()
    case.write("README.md", b"edited")
    assert [each.id for each in case.ws.list()] == [checkpoint.id]
    assert case.ws.get("latest").complete
    with pytest.raises(Unavailable):
        case.save("cannot be written")
    with pytest.raises(Unavailable):
        case.restore(checkpoint)
    subprocess.run(["mount", "-o", "remount,rw", case.store_area], check=True)
    case.reopen()
    case.save("can be written again")
    assert case.restore(checkpoint).ok


@by_somebody
@pytest.mark.parametrize("mode", [0o500, 0o000])
def test_a_store_whose_permissions_are_lost_yields_no_id(case: Case, mode: int) -> None:
    """Case 114."""
    first = case.save("first")
    store = case.ws.store
    folders = [path for path in store.rglob("*") if path.is_dir()]
    for folder in [*reversed(folders), store]:
        folder.chmod(mode)
    case.reopen()
    case.write("README.md", b"edited")
    with pytest.raises(Unavailable):
        case.open().save("not protected")
    for folder in [store, *folders]:
        folder.chmod(0o700)
    assert [each.id for each in case.ws.list()] == [first.id]
    case.save("protected again")


@pytest.mark.parametrize("then", ["save", "restore", "list"])
def test_vanished_store_yields_no_id(case: Case, then: str) -> None:
    """Case 114."""
    checkpoint = case.save("first")
    engine = case.ws
    shutil.rmtree(case.store_area)
    case.write("README.md", b"edited")
    try:
        if then == "save":
            saved = engine.save("into nothing")
            assert case.open().get(saved.id).id == saved.id
            assert case.open().restore(saved.id).ok
        elif then == "restore":
            engine.restore(checkpoint.id)
            raise AssertionError("a restore from nothing succeeded")
        else:
            assert engine.list() == []
    except HoldfastError:
        pass
    assert case.read("README.md") == b"edited"
    case.reopen()
    case.saved.clear()
    case.save("begin again")


def test_missing_store_is_not_found_if_none_may_be_created(case: Case) -> None:
    """Case 114."""
    with pytest.raises(NotFound):
        case.open(create=False)
    assert not case.store_area.exists()


def object_place(case: Case, oid: str) -> tuple[Path, int]:
    """The pack that holds an object, and where in it."""
    for index in packs(case):
        if index.suffix == ".idx":
            with index.open("rb") as source:
                table = subprocess.run(["git", "show-index"], stdin=source, capture_output=True, check=True).stdout
            for line in table.decode().splitlines():
                offset, name, *_ = line.split()
                if name == oid:
                    return index.with_suffix(".pack"), int(offset)
    raise LookupError(oid)


def flip(path: Path, offset: int) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_is_found_named_and_confined(case: Case) -> None:
    """Case 115."""
    case.write("sound.bin", os.urandom(4000))
    other = case.save("without the file")
    case.write("hurt.bin", os.urandom(4000))
    checkpoint = case.save("with the file")
    oid = case.git_store("rev-parse", f"{checkpoint.id}:files/hurt.bin").decode().strip()
    pack, offset = object_place(case, oid)
    flip(pack, offset + 2000)
    case.damaged_on_purpose = "a bit was flipped"
    case.reopen()
    report = case.ws.verify()
    assert not report.ok
    assert {name for problem in report.problems for name in problem.checkpoints} == {checkpoint.id}
    assert "hurt.bin" in " ".join(f"{problem.what} {problem.detail}" for problem in report.problems)
    case.path("hurt.bin").unlink()
    case.path("sound.bin").unlink()
    with pytest.raises(Damaged) as told:
        case.restore(checkpoint)
    assert "hurt.bin" in str(told.value)
    assert not case.path("sound.bin").exists()
    result = case.restore(checkpoint, skip_damaged=True)
    assert list(result.failed) == ["hurt.bin"]
    assert not result.ok
    assert case.path("sound.bin").exists()
    assert case.restore(other).ok


def test_a_flipped_bit_anywhere_in_the_store_is_found(case: Case) -> None:
    """Case 115."""
    dice = random.Random(115)
    case.write("data.bin", os.urandom(3000))
    case.save("first", state={"conversation": [{"role": "user", "content": "hello"}]})
    whole = {path: path.read_bytes() for path in packs(case)}
    refs = [path for path in (case.ws.store / "refs").rglob("*") if path.is_file()]
    whole |= {path: path.read_bytes() for path in [*refs, case.ws.store / "packed-refs"] if path.is_file()}
    missed = []
    for path, data in whole.items():
        for offset in {0, len(data) - 1, *(dice.randrange(len(data)) for _ in range(25))}:
            flip(path, offset)
            case.reopen()
            try:
                if case.ws.verify().ok:
                    missed.append((path.name, offset, len(data)))
            except HoldfastError:
                pass
            path.write_bytes(data)
    assert missed == []
    case.reopen()


@pytest.mark.parametrize("what", ["catalog", "cache", "everything but the objects and refs"])
@pytest.mark.parametrize("how", ["deleted", "garbage", "emptied"])
def test_what_can_be_rebuilt_is_rebuilt(case: Case, what: str, how: str) -> None:
    """Case 115."""
    first = case.save("first", name="named", state={"step": 1}, metadata={"ticket": 42}, session="s")
    case.write("README.md", b"edited")
    second = case.save("second", pinned=True)
    own = case.ws.store / "holdfast"
    case.reopen()
    for path in [path for path in own.rglob("*") if path.is_file()]:
        if what not in path.name and not what.startswith("everything"):
            continue
        if what.startswith("everything") and path.name == "store.json" and how != "deleted":
            continue  # says whose store it is; spoiled, it is reported
        if how == "deleted":
            path.unlink()
        else:
            path.write_bytes(os.urandom(500) if how == "garbage" else b"")
    assert case.ws.list() == [second, first]
    assert case.ws.get("named").metadata == {"ticket": 42}
    assert case.ws.get("named").state == {"step": 1}
    assert case.save("nothing changed").id == second.id
    case.write("README.md", b"again")
    assert case.save("third").sequence > second.sequence
    assert case.restore(first).ok


def test_a_store_of_a_newer_format_is_not_written(case: Case) -> None:
    """Case 118."""
    checkpoint = case.save("first")
    marker = case.ws.store / "holdfast" / "store.json"
    told = json.loads(marker.read_text())
    marker.write_text(json.dumps(told | {"format": 2, "this": told["this"].replace("1", "2")}))
    case.reopen()
    store = {path: path.read_bytes() for path in case.store_area.rglob("*") if path.is_file()}
    case.write("README.md", b"edited")
    with pytest.raises(Refused) as refused:
        case.open().save("by an older program")
    assert refused.value.hint
    assert {path: path.read_bytes() for path in case.store_area.rglob("*") if path.is_file()} == store
    marker.write_text(json.dumps(told))
    assert case.restore(checkpoint).ok


@pytest.mark.slow
def test_copy_of_a_store_in_use_is_sound_or_visibly_partial(case: Case) -> None:
    """Case 119."""
    case.save("first")
    for attempt in range(5):
        process = start(case, SAVE_FOR_EVER, attempt)
        assert process.stdout
        for _ in range(2 + attempt):  # it is at work
            process.stdout.readline()
        copy = case.outside / f"copy-{attempt}"
        subprocess.run(["cp", "-a", case.store_area, copy], check=False)
        process.kill()
        process.communicate()
        try:
            workspace = case.open(store=copy)
            report = workspace.verify()
            hurt = {name for problem in report.problems for name in problem.checkpoints}
            for each in workspace.list(limit=None):
                if each.id not in hurt:
                    workspace.preview(each.id)
                    assert each.files_changed is not None
        except HoldfastError:
            pass  # recognisably partial
        shutil.rmtree(copy)


class TestFullDisk:
    """Case 111: a store whose disk is full to the last block. Each operation frees room, or changes nothing."""

    @pytest.fixture
    def full(self, case: Case) -> Callable[[], Path]:
        """Checkpoints on a disk of their own; a call fills it."""
        case.mount(case.store_area, "-t", "tmpfs", "-o", "size=8m,mode=0700", "none")
        case.reopen(store=case.store_area / "store")

        def fill() -> Path:
            filler = case.store_area / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
            case.reopen()
            return filler

        return fill

    @staticmethod
    def state(case: Case) -> tuple[list[str], bool]:
        ws = case.open()
        return [each.id for each in ws.list(None, safety=True)], ws.verify().ok

    @needs_root
    def test_prune_frees_whole_packs_then_rewrites(self, case: Case, full: Callable[[], Path]) -> None:
        """A removed pack gives room once nobody holds it open, so nothing here does."""
        case.write("kept.bin", os.urandom(300_000))
        case.write("other.bin", os.urandom(100_000))
        case.open().save("both in one pack")
        for _ in range(4):
            case.write("large.bin", os.urandom(800_000))
            case.open().save("a pack of its own")
        case.path("other.bin").unlink()
        case.path("large.bin").unlink()
        case.open().save("last")
        full()
        done = case.open().prune(Policy(keep_last=1), dry_run=False)
        assert len(done.removed) == 5
        assert done.bytes_freed > 3_300_000 and done.unfreed_bytes == 0
        assert self.state(case)[1]
        assert len(case.ws.list()) == 1

    @needs_root
    def test_prune_that_could_free_nothing_deletes_nothing(self, case: Case, full: Callable[[], Path]) -> None:
        case.write("kept.bin", os.urandom(2_000_000))
        case.write("gone.bin", os.urandom(500_000))
        case.save("one")
        case.path("gone.bin").unlink()
        case.save("two")
        case.ws.merge()
        filler = full()
        before = self.state(case)
        with pytest.raises(Unavailable, match=r"no checkpoint was deleted: .* needs .* free bytes"):
            case.ws.prune(Policy(keep_last=1), dry_run=False)
        assert self.state(case) == before
        filler.unlink()
        assert case.ws.prune(Policy(keep_last=1), dry_run=False).bytes_freed > 400_000

    @needs_root
    def test_prune_says_what_it_could_not_free(self, case: Case, full: Callable[[], Path]) -> None:
        case.write("kept.bin", os.urandom(2_000_000))
        case.write("gone.bin", os.urandom(500_000))
        case.save("one")
        case.path("gone.bin").unlink()
        case.write("small.bin", os.urandom(100_000))
        case.save("two")
        case.path("small.bin").unlink()
        case.save("three")
        full()
        done = case.ws.prune(Policy(keep_last=1), dry_run=False)
        assert len(done.removed) == 2
        assert done.unfreed_bytes > 400_000
        assert self.state(case)[1]

    @needs_root
    def test_purge_begins_only_if_it_can_end(self, case: Case, full: Callable[[], Path]) -> None:
        case.write("kept.bin", os.urandom(1_500_000))
        case.write("secret", b"API_KEY=sk-0123456789abcdef\n")
        case.save("one")
        filler = full()
        os.truncate(filler, filler.stat().st_size - 200_000)
        packs = sorted(os.listdir(case.ws.store / "objects" / "pack"))
        with pytest.raises(Unavailable, match=r"nothing was purged: .* needs .* free bytes"):
            case.ws.purge("secret")
        assert sorted(os.listdir(case.ws.store / "objects" / "pack")) == packs
        assert not case.ws.get("latest").purged and self.state(case)[1]
        filler.unlink()
        assert case.ws.purge("secret").plan.paths == ["secret"]

    @needs_root
    @pytest.mark.parametrize("work", ["compact", "purge", "delete", "pin", "merge"])
    def test_old_or_new_never_between(self, case: Case, full: Callable[[], Path], work: str) -> None:
        case.write("kept.bin", os.urandom(1_500_000))
        case.write("secret", b"API_KEY=sk-0123456789abcdef\n")
        first = case.save("one")
        case.write("kept.txt", b"text\n")
        case.save("two")
        filler = full()
        before = self.state(case)
        ways: dict[str, Callable[[Workspace], object]] = {
            "compact": lambda ws: ws.compact(),
            "purge": lambda ws: ws.purge("secret"),
            "delete": lambda ws: ws.delete(first.id),
            "pin": lambda ws: ws.pin(first.id),
            "merge": lambda ws: ws.merge(),
        }
        is_done = True
        try:
            ways[work](case.ws)
        except Unavailable as error:
            is_done = False
            assert "space" in f"{error.message} {error.hint}", error
        ids, is_sound = self.state(case)
        assert is_sound
        assert ids == (before[0][:-1] if work == "delete" and is_done else before[0])
        if work == "delete":
            assert is_done, "deleting all but the newest needs no room"
        else:
            filler.unlink()
            ways[work](case.ws)
            assert self.state(case)[1]
        assert leftovers(case) == []
