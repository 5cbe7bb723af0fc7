"""Bytes of the store that are not what was written: found, named, and confined to the checkpoints that use them."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from holdfast import Damaged, HoldfastError, Unavailable, Workspace, durable
from holdfast.model import Problem
from holdfast.shadowgit import ObjectKind, ObjectStore, object_id
from holdfast.testing.disk_contract import EntryDescription, differences
from holdfast.testing.faulty_disks import CountingDisk, KillingDisk, die_in_child, every_point
from holdfast.workspace import store_paths

from . import workers
from .scene import Scene, settle_times

State = dict[str, EntryDescription]
_FLIPS, _CUTS = 7, 2
_CATALOG = "holdfast/catalog.db"


class Stored(NamedTuple):
    """A scene with checkpoints, and what each of them holds."""

    scene: Scene
    states: dict[str, State]
    """What the workspace is after each checkpoint is restored."""
    listed: list[tuple[str, str, str | None]]


class Harm(NamedTuple):
    """What is done to one file."""

    file: str
    at: int
    bit: int | None
    """Which bit of the byte is flipped; None: the file is cut there."""

    def do(self, store: Path) -> None:
        path = store / self.file
        data = bytearray(path.read_bytes())
        at = min(self.at, len(data) - 1)  # the catalog's size is not the same everywhere
        if self.bit is None:
            del data[at:]
        else:
            data[at] ^= 1 << self.bit
        path.write_bytes(data)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Stored]:
    """For each worker the same scene: three checkpoints in a pack each, one before a restore, and one deleted."""
    first = Scene(tmp_path_factory.mktemp("stored"))
    _store(first)
    scenes = [Scene(tmp_path_factory.mktemp("stored")) for _ in range(workers.COUNT)]
    for scene in scenes:
        scene.adopt(first)
    shutil.rmtree(first.live)
    found = []
    for scene in scenes:
        store_paths.write_owner(scene.store, scene.ws, {})  # as the first that writes does
        ids = [checkpoint.id for checkpoint in scene.open().list(None, safety=True)]
        scene.keep()
        states = {checkpoint: _restored(scene, checkpoint) for checkpoint in ids}
        scene.reset()
        found.append(Stored(scene, states, _listed(scene.open())))
    return found


def _store(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        (scene.ws / name).mkdir()
        (scene.ws / name / "file.txt").write_text(f"{name}\n" * 400)
    (scene.ws / "common.bin").write_bytes(Random(1).randbytes(3000))
    settle_times(scene.ws)
    ws = scene.open()
    ws.save("first", name="first")
    (scene.ws / "a" / "file.txt").write_text("second\n" * 300)
    (scene.ws / "link").symlink_to("a/file.txt")
    ws.save("second", state={"conversation": ["hello", "world"]}, session="s")
    (scene.ws / "b" / "file.txt").unlink()
    ws.save("third", metadata={"ticket": 7})
    ws.delete(ws.save("fourth", allow_empty=True).id)
    (scene.ws / "c" / "file.txt").write_text("saved nowhere but before the restore\n")
    ws.restore("first")


def _restored(scene: Scene, checkpoint: str) -> State:
    scene.reset()
    assert scene.open().restore(checkpoint).ok
    return scene.describe()


def _listed(ws: Workspace) -> list[tuple[str, str, str | None]]:
    return [(found.id, found.message, found.name) for found in ws.list(None, safety=True)]


def _harms(store: Path, files: list[str], *, flips: int = _FLIPS, cuts: int = _CUTS) -> Iterator[Harm]:
    """Flips and cuts all over some files: at their ends, and where a seeded chance says."""
    for file in files:
        size = (store / file).stat().st_size
        chance = Random(file.rpartition("/")[2][:3])
        places = {0, size - 1, *(chance.randrange(size) for _ in range(flips - 2))}
        yield from (Harm(file, at, chance.randrange(8)) for at in sorted(places))
        yield from (Harm(file, at, None) for at in sorted({0, *(chance.randrange(size) for _ in range(cuts))}))


def _files(store: Path, *, but: tuple[str, ...] = (_CATALOG,)) -> list[str]:
    found = [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file() and path.stat().st_size]
    return sorted(file for file in found if not file.startswith(but))


# anywhere


@pytest.mark.crash
def test_a_harmed_byte_anywhere_is_found_named_and_confined(stored: list[Stored]) -> None:
    def work(worker: int, harm: Harm) -> None:
        _check_harm(stored[worker], harm)

    workers.all_of(list(_harms(stored[0].scene.store, _files(stored[0].scene.store))), work)


@pytest.mark.crash
def test_damaged_byte_is_confined_within_one_pack(stored: list[Stored]) -> None:
    merged = _changed(stored, lambda scene: scene.open().merge())

    def work(worker: int, harm: Harm) -> None:
        _check_harm(stored[worker], harm, moment="changed")

    packs = [file for file in _files(merged) if file.startswith("objects/")]
    workers.all_of(list(_harms(merged, packs, flips=16, cuts=3)), work)


def test_damaged_packed_refs_hide_no_checkpoint(stored: list[Stored]) -> None:
    def pack_refs(scene: Scene) -> None:
        subprocess.run(["git", f"--git-dir={scene.store}", "pack-refs", "--all"], check=True)
        assert not list((scene.store / "refs" / "tags").iterdir())

    packed = _changed(stored, pack_refs)

    def work(worker: int, harm: Harm) -> None:
        scene, states, listed = stored[worker]
        scene.reset("changed")
        harm.do(scene.store)
        with durable.use_disk(CountingDisk()):
            ws = scene.open()
            problems = ws.verify().problems
            if not problems:
                assert _listed(ws) == listed, f"{len(_listed(ws))} of {len(listed)} are listed and verify finds nothing"
            _check_confined(scene, ws, states, problems)

    workers.all_of(list(_harms(packed, ["packed-refs"], flips=24, cuts=6)), work)


def _check_harm(stored: Stored, harm: Harm, *, moment: str = "before") -> None:
    scene, states, _ = stored
    scene.reset(moment)
    path = scene.store / harm.file
    sound = path.read_bytes()
    harm.do(scene.store)
    with durable.use_disk(CountingDisk()):
        try:
            ws = scene.open()
        except Unavailable as error:
            assert path.name in str(error), f"does not open, and does not say that it is because of {path.name}"
            path.unlink()
            assert not scene.open().verify().problems
            return
        problems = ws.verify().problems
        if not problems:
            if path.name == "store.json":  # which may now say that the folder was elsewhere: who writes next mends that
                ws.save("mended", allow_empty=True)
            assert path.read_bytes() == sound, "not found, and not mended"
        elif path.read_bytes() != sound:
            assert any(_names(problem, harm.file) for problem in problems), f"not named: {problems}"
        _check_confined(scene, ws, states, problems)


def _names(problem: Problem, file: str) -> bool:
    name = file.rpartition("/")[2].removesuffix(".idx").removesuffix(".pack").removesuffix(".rev")
    return name in f"{problem.what} {problem.detail} {' '.join(problem.checkpoints)}"


def _check_confined(scene: Scene, ws: Workspace, states: dict[str, State], problems: Sequence[Problem]) -> None:
    """Checkpoints that are not named are whole; those that are, are restored exactly or not at all."""
    named = " ".join(f"{problem.what} {problem.detail} {problem.checkpoints}" for problem in problems)
    for checkpoint, state in states.items():
        before = scene.describe()
        try:
            result = ws.restore(checkpoint)
        except HoldfastError as error:
            assert checkpoint in named, f"{checkpoint} is not named, and is not restored: {error}"
            changed = differences(before, scene.describe())
            assert not changed, f"a restore that failed ({error}) has changed {changed}"
        else:
            assert result.ok, result.failed
            assert not differences(state, scene.describe()), f"{checkpoint} came back as something else"


# one file of one checkpoint


def test_damaged_file_stops_a_restore_unless_skipped(stored: list[Stored]) -> None:
    scene, states, listed = stored[0]
    scene.reset()
    _harm_blob(scene, b"second\n" * 300)
    second = next(key for key, message, _ in listed if message == "second")
    ws = scene.open()
    before = scene.describe()
    with pytest.raises(Damaged, match=r"a/file\.txt"):
        ws.restore(second)
    assert not differences(before, scene.describe())
    assert not [path for path in scene.ws.iterdir() if path.name.startswith(".holdfast")]
    result = ws.restore(second, skip_damaged=True)
    assert list(result.failed) == ["a/file.txt"]
    left = [line for line in differences(states[second], scene.describe()) if not line.startswith("a/file.txt:")]
    assert not left
    assert ws.undo().ok
    assert not differences(before, scene.describe())


def test_verify_names_exactly_the_damaged_checkpoints(stored: list[Stored]) -> None:
    scene, states, _ = stored[0]
    scene.reset()
    _harm_blob(scene, b"second\n" * 300)
    named = {key for problem in scene.open().verify().problems for key in problem.checkpoints}
    assert named == {key for key, state in states.items() if state["a/file.txt"].content == b"second\n" * 300}


def test_damaged_state_is_refused_before_any_change(stored: list[Stored]) -> None:
    scene, _, listed = stored[0]
    scene.reset()
    second = next(key for key, message, _ in listed if message == "second")
    listing = subprocess.run(
        ["git", f"--git-dir={scene.store}", "ls-tree", "-r", f"{second}:state"], check=True, capture_output=True
    )
    for line in listing.stdout.splitlines():
        _harm_object(scene, bytes.fromhex(line.split()[2].decode()))
    before = scene.describe()
    with pytest.raises(Damaged):
        scene.open().restore(second)
    assert not differences(before, scene.describe())


def test_restore_keeps_the_only_good_copy(stored: list[Stored]) -> None:
    """What the workspace holds may be the last good copy of what the store holds damaged (P1)."""
    scene, _, _ = stored[0]
    scene.reset()
    _harm_blob(scene, b"a\n" * 400)
    assert (scene.ws / "a" / "file.txt").read_text() == "a\n" * 400
    before = scene.describe()
    ws = scene.open()
    try:
        ws.restore("latest")
    except HoldfastError:
        pass
    else:
        ws.undo()
    assert not differences(before, scene.describe())


def test_a_save_puts_a_good_copy_beside_a_damaged_one(stored: list[Stored]) -> None:
    """Asked to read every file again, a save does not rely on an object that cannot be read."""
    scene, _, _ = stored[0]
    scene.reset()
    _harm_blob(scene, b"a\n" * 400)
    ws = scene.open()
    checkpoint = ws.save("with good content", rehash=True, allow_empty=True)
    (scene.ws / "a" / "file.txt").write_text("overwritten\n")
    ws.restore(checkpoint.id, ["a/file.txt"])
    assert (scene.ws / "a" / "file.txt").read_text() == "a\n" * 400


def test_merge_keeps_the_sound_copy_of_a_duplicate(stored: list[Stored]) -> None:
    scene = _harmed_after_a_killed_merge(stored[0])
    assert _has_sound_copy(scene, b"a\n" * 400)
    try:
        scene.open().merge()
    except HoldfastError:
        pass
    assert _has_sound_copy(scene, b"a\n" * 400)


def test_duplicate_object_is_read_from_the_sound_copy(stored: list[Stored]) -> None:
    scene = _harmed_after_a_killed_merge(stored[0])
    for checkpoint, state in stored[0].states.items():
        assert scene.open().restore(checkpoint).ok
        assert not differences(state, scene.describe())


def _harmed_after_a_killed_merge(stored: Stored) -> Scene:
    """A merge was killed before it removed the first of the merged packs, and then one of those was harmed."""
    scene = stored.scene
    scene.reset()
    calls = every_point(lambda: scene.open().merge())
    placed = max(call.number for call in calls if call.name == "rename")
    unlink = next(call for call in calls if call.name == "unlink" and call.number > placed)
    scene.reset()
    assert die_in_child(KillingDisk(at=unlink.number), lambda: scene.open().merge())
    _harm_blob(scene, b"a\n" * 400)
    return scene


# what can be made again


_GARBAGE = [None, b"", b"garbage\n" * 500]


@pytest.mark.parametrize("content", _GARBAGE, ids=["gone", "empty", "garbage"])
@pytest.mark.parametrize("files", [[_CATALOG], ["holdfast/scan.cache"], [_CATALOG, "holdfast/scan.cache"]], ids=str)
def test_the_catalog_and_the_scan_cache_are_made_again(
    stored: list[Stored], files: list[str], content: bytes | None
) -> None:
    scene, states, listed = stored[0]
    scene.reset()
    for file in files:
        path = scene.store / file
        assert path.exists()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    ws = scene.open()
    assert _listed(ws) == listed
    assert ws.get("first").name == "first"
    (scene.ws / "new.txt").write_text("new\n")
    assert ws.save("after").files_changed == ["new.txt"]
    assert ws.verify().ok
    for checkpoint, state in states.items():
        assert ws.restore(checkpoint).ok
        assert not differences(state, scene.describe())
    assert all((scene.store / file).stat().st_size for file in files)


@pytest.mark.crash
def test_damaged_catalog_is_rebuilt_or_reported(stored: list[Stored]) -> None:
    def work(worker: int, harm: Harm) -> None:
        scene, _, listed = stored[worker]
        scene.reset()
        harm.do(scene.store)
        _check_catalog(scene, listed)

    store = stored[0].scene.store
    workers.all_of(list(_harms(store, [_CATALOG], flips=60, cuts=8)), work)


@pytest.mark.crash
def test_a_harmed_journal_of_the_catalog_is_made_again_or_named(stored: list[Stored]) -> None:
    """The journal is there while another process writes, and after a crash."""
    for here in stored:
        here.scene.reset()
        with closing(sqlite3.connect(here.scene.store / _CATALOG, isolation_level=None)) as writer:
            writer.execute("PRAGMA synchronous=OFF")
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE checkpoints SET message = message || ' changed'")
            here.scene.keep("changed")
            writer.execute("ROLLBACK")

    def work(worker: int, harm: Harm) -> None:
        scene, _, listed = stored[worker]
        scene.reset("changed")
        harm.do(scene.store)
        _check_catalog(scene, listed)

    moment = stored[0].scene.area / "changed" / "store"
    workers.all_of(list(_harms(moment, [f"{_CATALOG}-journal"], flips=24, cuts=6)), work)


def _check_catalog(scene: Scene, listed: list[tuple[str, str, str | None]]) -> None:
    with durable.use_disk(CountingDisk()):
        ws = scene.open()
        problems = ws.verify().problems
        if any("catalog" in problem.what for problem in problems):
            for path in scene.store.glob(f"{_CATALOG}*"):
                path.unlink()
            ws = scene.open()
        assert _listed(ws) == listed
        assert [ws.get(key).message for key, _, _ in listed] == [message for _, message, _ in listed]
        assert ws.get("first").name == "first"
        assert len(ws.list(session="s")) == 1
        (scene.ws / "new.txt").write_text("new\n")
        saved = ws.save("after")
        assert ws.get("latest").id == saved.id
        (scene.ws / "new.txt").unlink()
        assert ws.restore(saved.id).ok
        assert ws.undo().ok
        assert ws.verify().ok


# tools


def _changed(stored: list[Stored], change: Callable[[Scene], object]) -> Path:
    """Change every scene and keep it so; the first one's store."""
    for here in stored:
        here.scene.reset()
        change(here.scene)
        here.scene.keep("changed")
    return stored[0].scene.area / "changed" / "store"


def _harm_blob(scene: Scene, content: bytes) -> None:
    _harm_object(scene, object_id(ObjectKind.BLOB, content))


def _harm_object(scene: Scene, oid: bytes) -> None:
    """Flip a bit in the middle of a stored object, in the oldest pack that has it."""
    packs = [pack for pack in ObjectStore(scene.store).packs() if pack.find(oid) is not None]
    pack = min(packs, key=lambda pack: pack.path.stat().st_mtime_ns)
    start, end = next((start, end) for start, end, name, _ in pack.entries() if name == oid)
    Harm(str(pack.path.relative_to(scene.store)), (start + end) // 2, 2).do(scene.store)


def _has_sound_copy(scene: Scene, content: bytes) -> bool:
    oid = object_id(ObjectKind.BLOB, content)
    for pack in ObjectStore(scene.store).packs():
        offset = pack.find(oid)
        try:
            if offset is not None and pack.inflate(pack.header(offset)) == content:
                return True
        except Damaged:
            continue
    return False
