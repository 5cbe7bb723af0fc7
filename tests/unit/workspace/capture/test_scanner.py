"""Snapshots of a workspace: what the memory of the last one saves, and that it is never believed too far."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, Unavailable, Workspace
from holdfast.scan import classify, sweep, walk
from holdfast.scan.cache import YOUNG
from holdfast.shadowgit import ObjectKind, ObjectStore
from holdfast.workspace.capture import scanner
from holdfast.workspace.capture.snapshot import Snapshot
from holdfast.workspace.stored.object_sink import ObjectSink
from waiting import settle


class Recording(ObjectSink):
    """Remembers which trees it was given."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.trees: list[bytes] = []

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        if kind is ObjectKind.TREE:
            self.trees.append(data)
        return super().add(kind, data)


def take(ws: Workspace, **options: Any) -> Snapshot:
    snapshot, _ = ws._engine.scanner.take(ObjectSink(ObjectStore(ws.store)), head=None, **options)
    return snapshot


def read_files(ws: Workspace, **options: Any) -> set[str]:
    """The paths that a snapshot has to read."""
    listing = take(ws, **options).listing
    return {f"{folder.path}/{folder.names[place]}".lstrip("/") for folder, place in listing.pending}


@pytest.fixture
def saved(project: Any, ws: Workspace) -> Workspace:
    """A workspace that was saved when its files had come to rest."""
    for name in ("a/one", "a/two", "b/three"):
        project.write(name, name.encode())
    settle(project.root)
    ws.save()
    return ws


def _counting(call: Any, calls: list[Any]) -> Any:
    """The same method; each call is noted."""
    return lambda self, *given, **named: (calls.append(self), call(self, *given, **named))[1]


class TestMemory:
    def test_a_new_process_reads_nothing_when_nothing_changed(self, project: Any, saved: Workspace) -> None:
        assert read_files(project.open()) == set()

    def test_only_what_changed_is_read(self, project: Any, saved: Workspace) -> None:
        project.write("a/one", b"changed")
        assert read_files(project.open()) == {"a/one"}

    @pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "cut short", "a bit", "a folder"])
    def test_without_a_cache_everything_is_read(self, project: Any, saved: Workspace, damage: str) -> None:
        cache = project.store / "holdfast" / "scan.cache"
        data = bytearray(cache.read_bytes())
        data[len(data) // 2] ^= 4
        before = saved.get("latest")
        cache.unlink()
        if damage == "a folder":
            cache.mkdir()
        elif damage != "gone":
            cache.write_bytes(
                {"empty": b"", "garbage": b"x" * 99, "cut short": bytes(data[:99]), "a bit": data}[damage]
            )
        assert read_files(project.open()) == {"a/one", "a/two", "b/three"}
        if damage != "a folder":
            assert project.open().save().id == before.id

    def test_everything_is_read_when_that_is_asked_for(self, project: Any, saved: Workspace) -> None:
        assert read_files(project.open(), rehash=True) == {"a/one", "a/two", "b/three"}

    def test_what_is_no_longer_in_the_store_is_read_again(self, project: Any, saved: Workspace) -> None:
        saved.delete("latest")
        saved.merge()
        again = project.open().save()
        shutil.rmtree(project.root / "a")
        assert project.open().restore(again.id).ok
        assert (project.root / "a/one").read_bytes() == b"a/one"
        assert project.open().verify().ok

    def test_store_is_compared_only_after_packs_went(
        self, project: Any, saved: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compared = []
        forget = scanner._forget_missing
        monkeypatch.setattr(scanner, "_forget_missing", lambda *given: (compared.append(1), forget(*given)))
        saved.save("another pack", allow_empty=True)
        project.open().save()
        assert compared == []
        saved.merge()
        project.open().save()
        assert compared == [1]
        project.open().save()
        assert compared == [1]

    def test_a_snapshot_is_the_same_with_and_without_memory(self, project: Any, saved: Workspace) -> None:
        with_memory = take(project.open()).root
        (project.store / "holdfast" / "scan.cache").unlink()
        assert take(project.open()).root == with_memory

    def test_other_limits_are_applied_though_nothing_changed(self, project: Any, ws: Workspace) -> None:
        project.write(".gitignore", b"*.db\n")
        project.write("large.db", b"x" * 100)
        settle(project.root)
        ws.save()
        narrow = project.open(ignored_file_max_bytes=10, exclude_patterns=["a"])
        ws.delete("latest")  # what the last checkpoint holds is held on
        assert [item.path for item in take(narrow).uncovered] == ["large.db"]
        assert [item.path for item in take(project.open()).uncovered] == []


class TestCacheAfterRestore:
    @pytest.fixture
    def changed(self, project: Any, saved: Workspace) -> Path:
        """The scan cache, older than two changed files."""
        saved.save("again", allow_empty=True)  # whatever was young when it was saved first
        for name in ("a/one", "b/three"):
            project.write(name, b"changed")
        settle(project.root)
        cache: Path = project.store / "holdfast" / "scan.cache"
        return cache

    def test_is_not_written_for_what_was_replaced(self, project: Any, changed: Path) -> None:
        before = changed.stat()
        assert project.open().restore("latest").ok
        assert changed.stat() == before
        assert read_files(project.open()) == {"a/one", "b/three"}

    @pytest.mark.parametrize("other", ["a/two", "c/four"])
    def test_knows_what_was_not_replaced(self, project: Any, changed: Path, other: str) -> None:
        project.write(other, b"changed, too")
        settle(project.root)
        assert project.open().restore("latest", ["a/one", "b"]).ok
        assert read_files(project.open()) == {"a/one", "b/three"}

    def test_knows_what_was_removed_elsewhere(self, project: Any, changed: Path) -> None:
        (project.root / "b/three").unlink()
        before = changed.stat()
        assert project.open().restore("latest", ["a/one"]).ok
        assert changed.stat() != before


@pytest.mark.skipif(sweep.native is None, reason="without the native module there is no sweep")
class TestEarlySweep:
    """A writing call begins its sweep before the code of the scan is loaded."""

    def test_is_the_sweep_of_that_call(self, project: Any, saved: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        begun = []
        begin = sweep.Sweep.__init__
        monkeypatch.setattr(sweep.Sweep, "__init__", lambda *given: (begun.append(len(loaded)), begin(*given))[1])
        loaded: list[Workspace] = []
        ws = project.open()
        monkeypatch.setattr(scanner.Scanner, "take", _counting(scanner.Scanner.take, loaded))
        project.write("a/one", b"changed")
        assert ws.save().files_changed == ["a/one"]
        assert begun == [0]
        project.write("a/two", b"changed")
        assert ws.restore("latest").written and begun == [0, 1]

    def test_a_system_that_starts_no_thread_is_walked(
        self, project: Any, saved: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        project.write("a/one", b"changed")
        assert project.open().save().files_changed == ["a/one"]

    def test_ends_with_the_call(self, saved: Workspace) -> None:
        with pytest.raises(NotFound):
            saved.restore("nowhere")
        assert saved._early_sweep is not None and saved._early_sweep.take() is None

    def test_is_of_no_use_after_a_recovery(
        self, project: Any, saved: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen = []
        monkeypatch.setattr(
            "holdfast.workspace.restore.recovery.Recoverer.recover",
            lambda _: seen.append(saved._early_sweep and saved._early_sweep.take()),
        )
        (project.store / "holdfast" / "journal.json").write_text("{}")
        saved.save()
        assert seen == [None]

    def test_is_not_for_other_threads(self, project: Any, saved: Workspace) -> None:
        early = sweep.EarlySweep(project.store / "holdfast" / "scan.cache", project.root, time.time_ns)
        early.begin()
        found: list[object] = []
        other = threading.Thread(target=lambda: found.append(early.take()))
        other.start()
        other.join()
        assert found == [None]
        assert early.take() is not None and early.take() is None


class TestMovedDuringScan:
    def test_second_walk_looks_again(self, project: Any, saved: Workspace) -> None:
        """A file that moves after the sweep, and long before the walk begins, is found where it went."""
        project.write("new")  # so that a folder is listed
        asked = count()

        def clock() -> int:
            if not (number := next(asked)):
                return time.time_ns()  # before the sweep
            if number == 1:
                (project.root / "a/one").rename(project.root / "b/one")
            return time.time_ns() + 10**10

        ws = project.open()
        ws._engine_options["file_clock"] = clock
        checkpoint = ws.save()
        assert checkpoint.quiet
        assert sorted(checkpoint.files_changed) == ["a/one", "b/one", "new"]


class TestHardLinks:
    """Names of one file stay one file, whatever becomes of the folders around them."""

    def group(self, project: Any, *names: str) -> None:
        first = project.write(names[0], b"shared")
        for name in names[1:]:
            (project.root / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(first, project.root / name)
        settle(project.root)

    def inodes(self, project: Any, *names: str) -> int:
        return len({(project.root / name).stat().st_ino for name in names})

    def bring_back(self, project: Any, checkpoint: str) -> None:
        for entry in os.listdir(project.root):
            path = project.root / entry
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert project.open().restore(checkpoint).ok

    def test_a_pair_in_two_folders(self, project: Any, ws: Workspace) -> None:
        self.group(project, "a/file", "b/file")
        saved = ws.save()
        self.bring_back(project, saved.id)
        assert self.inodes(project, "a/file", "b/file") == 1

    def test_hard_link_whose_folder_was_renamed(self, project: Any, ws: Workspace) -> None:
        self.group(project, "a/file", "z/file")
        ws.save()
        (project.root / "a").rename(project.root / "b")
        saved = ws.save()
        self.bring_back(project, saved.id)
        assert self.inodes(project, "b/file", "z/file") == 1

    def test_hard_link_of_a_file_that_was_left_out(self, project: Any, ws: Workspace) -> None:
        self.group(project, "a/file", "z/file")
        project.open(exclude_patterns=["a"]).save()
        saved = project.open().save()
        self.bring_back(project, saved.id)
        assert self.inodes(project, "a/file", "z/file") == 1

    def test_copied_file_is_no_hard_link_any_more(self, project: Any, ws: Workspace) -> None:
        self.group(project, "a/file", "z/file")
        ws.save()
        (project.root / "z/file").unlink()
        project.write("z/file", b"shared")
        saved = ws.save()
        self.bring_back(project, saved.id)
        assert self.inodes(project, "a/file", "z/file") == 2


class TestFrozenRules:
    def test_what_decided_is_written_down(self, project: Any) -> None:
        (project.home / ".config" / "git").mkdir(parents=True)
        (project.home / ".config" / "git" / "ignore").write_bytes(b"*.tmp\n\xff\n")
        (project.root / ".git" / "info").mkdir(parents=True)
        (project.root / ".git" / "HEAD").write_bytes(b"ref: refs/heads/main\n")
        (project.root / ".git" / "info" / "exclude").write_bytes(b"*.bak\n")
        ws = project.open(exclude_patterns=["*.log"], ignored_file_max_bytes=7)
        snapshot = take(ws)
        rules = json.loads(ws._engine.scanner.frozen_rules(snapshot))
        assert rules["exclude_patterns"] == ["*.log"]
        assert rules["excludes_file"].encode("utf-8", "surrogateescape") == b"*.tmp\n\xff\n"
        assert rules["ignored_file_max_bytes"] == 7


class TestGone:
    def test_missing_workspace_is_unavailable(self, project: Any, ws: Workspace) -> None:
        from holdfast import Unavailable

        project.write("file")
        ws.save()
        shutil.rmtree(project.root)
        with pytest.raises(Unavailable):
            ws.save()
        assert len(ws.list()) == 1

    def test_a_workspace_that_was_replaced_is_looked_at_anew(self, project: Any, saved: Workspace) -> None:
        shutil.rmtree(project.root)
        project.root.mkdir()
        Path(project.root / "other").write_bytes(b"other")
        assert read_files(project.open()) == {"other"}


def test_folder_replaced_during_the_scan_is_noticed(project: Any, ws: Workspace) -> None:
    project.write("a/one", b"of the old folder")

    def replace(*_: object) -> None:
        if not (project.area / "aside").exists():
            project.root.rename(project.area / "aside")
            project.write("b/two", b"of the new folder")

    with pytest.raises(Unavailable, match="was replaced while it was read"):
        ws.save(progress=replace)
    assert ws.list() == []
    assert ws.save().files_changed == ["b/two"]


def test_progress_is_told_before_each_large_file(project: Any, ws: Workspace) -> None:
    for name in "ab":
        project.write(name, bytes(1 << 20))
    heard: list[tuple[str, int, int]] = []
    ws.save(progress=lambda *told: heard.append(told))
    one, two = 1 << 20, 2 << 20
    of_all = [told for told in heard if told[0] == "reading"]
    assert of_all == [("reading", 0, two), ("reading", one, two), ("reading", two, two)]
    assert ("reading a", one, one) in heard


def test_progress_within_a_large_file(project: Any, ws: Workspace) -> None:
    size = 20 << 20
    project.write("folder/large", os.urandom(size))
    heard: list[tuple[str, int, int]] = []
    saved = ws.save(progress=lambda *told: heard.append(told))
    done = [told[1] for told in heard if told[0] == "reading folder/large"]
    assert len(done) > 5 and done == sorted(done) and done[-1] == size
    (project.root / "folder/large").unlink()
    heard.clear()
    ws.restore(saved.id, progress=lambda *told: heard.append(told))
    done = [told[1] for told in heard if told[0] == "writing folder/large"]
    assert len(done) > 5 and done == sorted(done) and done[-1] == size
    assert [told[1:] for told in heard if told[0] == "writing"][-1] == (size, size)


class TestWhatIsReadAgain:
    """What was saved is too young for the next look to trust, which reads it again."""

    @pytest.fixture(autouse=True)
    def always_young(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for room in (walk, classify):
            monkeypatch.setattr(room, "young", lambda status, now: YOUNG)

    def test_and_is_as_it_was_is_not_put_together_again(self, saved: Workspace) -> None:
        before = saved._repository.contents(saved.save("once more", allow_empty=True)).root
        assert read_files(saved) == {"a/one", "a/two", "b/three"}
        sink = Recording(ObjectStore(saved.store))
        snapshot, _ = saved._engine.scanner.take(sink, head=None)
        assert snapshot.root == before and not sink.trees
        saved._engine.scanner.take(sink, head=None, rehash=True)
        assert len(sink.trees) == 4  # those of the three folders, and the attributes of the upper one

    def test_and_differs_in_one_folder_leaves_the_others_as_they_are(self, project: Any, saved: Workspace) -> None:
        saved.save("once more", allow_empty=True)
        project.write("a/one", b"changed")
        sink = Recording(ObjectStore(saved.store))
        saved._engine.scanner.take(sink, head=None)
        assert len(sink.trees) == 3  # of `a`, and both of the upper one

    @pytest.mark.parametrize("change", ["content", "mode", "time", "folder", "name", "link", "apart"])
    def test_and_differs_is_held_as_it_is_now(self, project: Any, saved: Workspace, change: str) -> None:
        one, two = project.root / "a/one", project.root / "a/two"
        if change == "apart":
            two.unlink()
            two.hardlink_to(one)
        saved.save("once more", allow_empty=True)
        status, above = one.stat(), one.parent.stat()
        if change == "content":
            one.write_bytes(b"a/eno")
        elif change == "mode":
            one.chmod(0o600)
        elif change == "time":
            os.utime(one, ns=(1, 1))
        elif change == "folder":
            one.parent.chmod(0o700)
        elif change == "name":
            one.rename(one.with_name("eno"))
        elif change == "link":
            two.unlink()
            two.hardlink_to(one)
        else:  # one file under two names becomes two of the same content
            one.unlink()
            one.write_bytes(two.read_bytes())
        if change not in ("time", "name"):
            os.utime(one, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.utime(one.parent, ns=(above.st_atime_ns, above.st_mtime_ns))
        now = saved._repository.contents(saved.save("changed")).root
        other = project.open(store=project.area / "another")
        assert now == other._repository.contents(other.save()).root
