"""A watching workspace looks only where something changed; where that is in doubt, it looks everywhere."""

from __future__ import annotations

import errno
import gc
import hashlib
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.durable.platform import inotify
from holdfast.model import Reason
from holdfast.scan.partial_walk import InDoubt, Narrowed
from holdfast.scan.watch import Watch
from holdfast.workspace.capture import file_reader
from holdfast.workspace.capture import watch_state as module
from waiting import settle

MANY_EVENTS = 20_000


class Looks:
    """What the looks with a hint looked at; None for one that was not enough."""

    def __init__(self) -> None:
        self.all: list[set[str] | None] = []

    @property
    def last(self) -> set[str] | None:
        return self.all[-1] if self.all else None


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found, run = Looks(), Narrowed.run

    def recorded(self: Narrowed) -> object:
        try:
            listing = run(self)
        except InDoubt:
            found.all.append(None)
            raise
        found.all.append(set(self._done))
        return listing

    monkeypatch.setattr(Narrowed, "run", recorded)
    return found


@pytest.fixture
def ws(project) -> Iterator[Workspace]:
    """A workspace with some folders that has been saved, watches, and has nothing young in it."""
    for folder in ("a", "b", "c/d"):
        project.write(f"{folder}/file", b"old")
    settle(project.root)
    ws = project.open(watch=True)
    ws.save()
    yield ws
    ws.close()


def content(ws: Workspace, ref: str, path: str, area: Path) -> bytes | None:
    """What a checkpoint holds of a path."""
    folder = area / f"out-{time.monotonic_ns()}"
    ws.export(ref, folder)
    file = folder / path
    return file.read_bytes() if file.is_file() else None


def held(ws: Workspace, path: str) -> bool:
    """Whether a save made now holds a path."""
    return not any(entry.path == path for entry in ws.save(allow_empty=True).uncovered)


def open_queues() -> int:
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += "inotify" in os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return found


class TestLooking:
    @pytest.mark.linux
    def test_only_the_folder_of_a_changed_file_is_looked_at(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("a/file", b"new")
        saved = ws.save()
        assert looks.last == {"a"}
        assert saved.files_changed == ["a/file"]
        assert content(ws, saved.id, "a/file", project.area) == b"new"

    @pytest.mark.linux
    def test_nothing_is_looked_at_when_nothing_changed(self, ws: Workspace, looks: Looks) -> None:
        first = ws.save()
        assert looks.last == set()
        assert first == ws.get("latest")

    @pytest.mark.linux
    def test_of_a_folder_only_the_changed_files_are_looked_at(
        self, project, ws: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(50):
            project.write(f"many/{number}")
        settle(project.root)
        ws.save()
        ws.save()
        project.write("many/7", b"new")
        asked: list[object] = []
        real = os.stat
        monkeypatch.setattr(os, "stat", lambda path, **how: (asked.append(path), real(path, **how))[1])
        ws.save()
        monkeypatch.undo()
        assert [path for path in asked if path in {str(number) for number in range(50)}] == ["7"]

    @pytest.mark.linux
    def test_new_folders_are_watched_as_they_appear(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("new/deep/file", b"1")
        ws.save()
        settle(project.root)
        ws.save()
        project.write("new/deep/file", b"2")
        assert ws.save().files_changed == ["new/deep/file"]
        assert looks.last == {"new/deep"}

    @pytest.mark.linux
    def test_a_diff_and_a_preview_look_only_there_too(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("b/file", b"new")
        assert ws.diff("latest").modified_files == ["b/file"]
        assert looks.last == {"b"}
        assert ws.preview("latest").replaced == ["b/file"]
        assert looks.last == {"b"}
        assert ws.save().files_changed == ["b/file"]  # a look that stores nothing takes nothing away

    @pytest.mark.linux
    def test_folders_that_are_left_out_are_not_watched(self, project) -> None:
        project.write("node_modules/package/file")
        with project.open().watch() as watching:
            assert watching.folders == 0
        ws = project.open(watch=True)
        ws.save()
        assert ws.watch().folders == 1

    def test_a_folder_that_is_moved_and_then_written_to(self, project, ws: Workspace) -> None:
        (project.root / "c").rename(project.root / "e")
        project.write("e/d/file", b"new")
        saved = ws.save()
        assert content(ws, saved.id, "e/d/file", project.area) == b"new"
        assert content(ws, saved.id, "c/d/file", project.area) is None

    @pytest.mark.linux
    def test_a_folder_that_is_moved_out_is_watched_no_more(self, project, ws: Workspace, looks: Looks) -> None:
        (project.root / "c").rename(project.area / "elsewhere")
        ws.save()
        settle(project.root)
        ws.save()
        (project.area / "elsewhere" / "d" / "file").write_bytes(b"not ours")
        ws.save()
        assert looks.last == set()
        assert ws.watch().folders == 3

    def test_a_failed_save_takes_nothing_away(self, project, ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        project.write("a/file", b"new")
        with monkeypatch.context() as patch:
            patch.setattr(ws._repository, "publish", _fail)
            with pytest.raises(ZeroDivisionError):
                ws.save()
        assert ws.save().files_changed == ["a/file"]


class TestLooksThatAreNotRemembered:
    """P2: a look of `status` or `diff` takes no watch from a folder that the next scan may take as it was seen."""

    @pytest.mark.parametrize("look", ["status", "diff"])
    def test_a_folder_that_is_left_out_for_a_while(self, project, ws: Workspace, look: str) -> None:
        ignore = project.write(".holdfastignore", b"c\n")
        ws.status() if look == "status" else ws.diff("latest")
        ignore.unlink()
        ws.status() if look == "status" else ws.diff("latest")
        project.write("c/d/file", b"new content")
        assert content(ws, ws.save().id, "c/d/file", project.area) == b"new content"

    @pytest.mark.linux  # which folders are watched
    def test_what_a_save_left_out_is_watched_no_more(self, project, ws: Workspace) -> None:
        watched = ws.watch().folders
        project.write(".holdfastignore", b"c\n")
        ws.save()
        assert ws.watch().folders == watched - 2


class TestRulesElsewhere:
    def test_the_exclude_file_of_the_repository(self, project, ws: Workspace, git: Callable[..., bytes]) -> None:
        git("init", "-q", project.root)
        project.write("a/big.log", bytes(2 << 20))
        assert held(ws, "a/big.log")
        _forget_what_was_held(ws)
        (project.root / ".git/info/exclude").write_text("*.txt\n")
        project.write("b/big.txt", bytes(2 << 20))
        assert not held(ws, "b/big.txt")

    def test_the_users_own_exclude_file(self, project, ws: Workspace) -> None:
        rules = project.home / ".config/git/ignore"
        rules.parent.mkdir(parents=True)
        project.write("a/big.txt", bytes(2 << 20))
        rules.write_text("*.txt\n")
        assert not held(ws, "a/big.txt")
        rules.write_text("")
        assert held(ws, "a/big.txt")

    def test_what_the_users_git_begins_to_track(self, project, ws: Workspace, git: Callable[..., bytes]) -> None:
        git("init", "-q", project.root)
        project.write(".gitignore", b"*.bin\n")
        project.write("a/big.bin", bytes(2 << 20))
        settle(project.root)
        assert not held(ws, "a/big.bin")
        git("-C", project.root, "add", "-f", "a/big.bin")
        assert held(ws, "a/big.bin")


class TestWhatIsNotTold:
    def test_a_file_with_a_second_name_elsewhere_is_always_looked_at(self, project, ws: Workspace) -> None:
        os.link(project.root / "a/file", project.area / "other-name")
        project.write("a/beside")
        ws.save()
        settle(project.root)
        ws.save()
        (project.area / "other-name").write_bytes(b"new")
        assert ws.save().files_changed == ["a/file"]

    def test_new_hard_link_marks_both_names(self, project, ws: Workspace) -> None:
        os.link(project.root / "a/file", project.root / "b/link")
        ws.save()
        shutil.rmtree(project.root / "a")
        shutil.rmtree(project.root / "b")
        ws.restore("latest")
        assert (project.root / "a/file").stat().st_nlink == 2

    def test_write_through_mmap_is_seen_when_it_is_closed(self, project, ws: Workspace) -> None:
        with (project.root / "a/file").open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
        mapped[:3] = b"new"
        mapped.close()
        assert content(ws, ws.save().id, "a/file", project.area) == b"new"

    def test_write_through_open_mmap_is_seen_by_a_full_scan(
        self, project, ws: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
            ws.save()
            monkeypatch.setattr(module, "FULL_LOOK_EVERY_S", -1.0)
            assert content(ws, ws.save().id, "a/file", project.area) == b"new"

    @pytest.mark.linux
    def test_after_so_many_saves_everything_is_looked_at(
        self, project, ws: Workspace, looks: Looks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "FULL_LOOK_EVERY_SAVES", 3)
        for number in range(6):
            project.write("a/file", b"%d" % number)
            ws.save()
        assert len(looks.all) == 4  # saves 1 (before) to 3, then a full one and 2 more

    def test_what_another_one_saved_is_not_taken_back(self, project, ws: Workspace) -> None:
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
            assert project.open().save(rehash=True).files_changed == ["a/file"]
            project.write("b/file", b"new")
            assert ws.save().files_changed == ["b/file"]

    def test_what_a_rehash_found_is_not_taken_back(self, project, ws: Workspace) -> None:
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"mid"
            os.utime(project.root / "a/file")
            settle(project.root)
            assert content(ws, ws.save().id, "a/file", project.area) == b"mid"
            mapped[:3] = b"new"  # a second write to a mapped page leaves the times as they are
            ws.save(rehash=True)
            project.write("b/file", b"new")
            assert content(ws, ws.save().id, "a/file", project.area) == b"new"


class TestAfterARestore:
    @pytest.mark.linux
    def test_only_what_it_wrote_is_looked_at(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("a/file", b"new")
        ws.restore("latest")
        looks.all.clear()
        settle(project.root)
        assert not ws.save().is_new
        assert looks.all == [{"", "a"}]  # its stage was in the workspace
        project.write("b/file", b"new")
        assert ws.save().files_changed == ["b/file"]
        ws.undo()
        looks.all.clear()
        assert content(ws, ws.save().id, "a/file", project.area) == b"new"
        assert looks.all == [{"", "a", "b"}]

    @pytest.mark.linux
    def test_folders_with_something_left_out_are_looked_at(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("c/.gitignore", b"*.bin\n")
        project.write("c/big.bin", bytes(6_000_000))
        settle(project.root)
        assert not held(ws, "c/big.bin")
        ws.save()
        project.write("a/file", b"new")
        ws.restore("latest")  # its target may contain what the rules leave out
        ws.save()
        assert looks.last == {"", "a", "c"}
        ws.save()
        assert "c" not in (looks.last or set())

    def test_what_another_one_saved_before_it_is_not_taken_back(self, project, ws: Workspace) -> None:
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
            theirs = project.open().save(rehash=True)
            ws.restore(theirs.id)
            project.write("b/file", b"new")
            assert ws.save().files_changed == ["b/file"]

    def test_a_scan_without_the_watch_is_not_forgotten(self, project, ws: Workspace) -> None:
        project.write("c/.gitignore", b"*.bin\n")
        project.write("c/big.bin", b"0" * 6_000_000)
        ws.save()
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
            other = project.open()
            target = other.save(include=["c/big.bin"])
            (project.root / "c/big.bin").unlink()
            other.save()
            project.write("c/big.bin", b"1" * 6_000_000)  # left out, but saved before it is replaced
            assert ws.restore(target.id).written == ["c/big.bin"]
            project.write("b/file", b"new")
            assert ws.save().files_changed == ["b/file"]

    def test_what_another_one_saves_after_it_is_not_taken_back(self, project, ws: Workspace) -> None:
        project.write("b/file", b"mid")
        ws.restore("latest")
        with (project.root / "a/file").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[:3] = b"new"
            assert project.open().save(rehash=True).files_changed == ["a/file"]
            project.write("b/file", b"new")
            assert ws.save().files_changed == ["b/file"]


class TestDoubt:
    @pytest.mark.linux
    def test_ctrl_c_while_reading_events_causes_a_full_scan(
        self, project, ws: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def strike(self: Watch, event: inotify.Event) -> bool:
            raise KeyboardInterrupt

        project.write("a/file", b"new")
        with monkeypatch.context() as patch:
            patch.setattr(Watch, "_take", strike)
            with pytest.raises(KeyboardInterrupt):
                ws.save()
        assert ws.save().files_changed == ["a/file"]

    @pytest.mark.linux
    def test_more_than_the_queue_holds(self, project, ws: Workspace, looks: Looks) -> None:
        for _ in range(MANY_EVENTS // 2):
            os.utime(project.root / "a/file")
            os.utime(project.root / "b/file")
        project.write("c/d/file", b"new")  # there was no more room to tell of this
        assert "c/d/file" in ws.save().files_changed
        assert looks.all == []
        settle(project.root)
        ws.save()
        project.write("a/file", b"new")
        ws.save()
        assert looks.last == {"a"}  # and it goes on as before

    @pytest.mark.linux
    def test_no_more_watches(self, project, monkeypatch: pytest.MonkeyPatch) -> None:
        project.write("a/file", b"old")
        monkeypatch.setattr(inotify.Inotify, "add", _no_more)
        ws = project.open(watch=True)
        ws.save()
        assert "max_user_watches" in ws.watch().doubt
        assert not ws.watch().is_active
        project.write("a/file", b"new")
        assert ws.save().files_changed == ["a/file"]

    @pytest.mark.linux
    def test_after_the_limit_was_met_it_is_not_tried_at_every_save(
        self, project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tries: list[int] = []
        monkeypatch.setattr(inotify.Inotify, "add", lambda self, folder: (tries.append(folder), _no_more())[0])
        ws = project.open(watch=True)
        for number in range(3):
            project.write("file", b"%d" % number)
            ws.save()
        assert len(tries) == 1

    def test_a_file_system_that_does_not_tell(self, project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inotify, "_LOCAL_FILE_SYSTEMS", {})
        ws = project.open(watch=True)
        project.write("file", b"1")
        ws.save()
        assert "file system" in ws.watch().doubt
        project.write("file", b"2")
        assert ws.save().files_changed == ["file"]

    def test_another_folder_in_place_of_the_workspace(self, project, ws: Workspace, looks: Looks) -> None:
        project.root.rename(project.area / "old")
        project.write("other", b"new")
        saved = ws.save()
        assert content(ws, saved.id, "other", project.area) == b"new"
        assert content(ws, saved.id, "a/file", project.area) is None
        assert looks.last is None

    def test_the_folder_above_is_moved(self, project) -> None:
        root = project.area / "above/inner"
        root.mkdir(parents=True)
        (root / "file").write_bytes(b"old")
        ws = Workspace(root, store=project.store, home=project.home, environ={}, watch=True)
        settle(root)
        ws.save()
        (project.area / "above").rename(project.area / "away")
        root.mkdir(parents=True)
        (root / "other").write_bytes(b"new")
        assert ws.save().files_changed == ["file", "other"]

    def test_objects_that_left_the_store_are_stored_again(self, project, ws: Workspace) -> None:
        for pack in (project.store / "objects/pack").iterdir():
            pack.unlink()
        project.write("b/file", b"new")
        saved = ws.save()
        assert content(ws, saved.id, "a/file", project.area) == b"old"

    def test_a_file_that_could_not_be_read_is_tried_again(
        self, project, ws: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.open

        def refuse(path: str, *given: int, **named: int) -> int:
            if path == "file-to-be":
                raise PermissionError(errno.EACCES, "no")
            return real(path, *given, **named)

        project.write("a/file-to-be", b"here")
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            patch.setattr(file_reader, "_read_files", None)  # it would not call `os.open`
            assert [entry.reason for entry in ws.save().uncovered] == [Reason.UNREADABLE]
        settle(project.root)
        assert ws.save().complete


class TestEnding:
    @pytest.mark.linux
    def test_a_child_takes_no_events_from_its_parent(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("a/file", b"new")
        child = os.fork()
        if not child:
            status = 1
            try:
                status = 0 if ws.save().files_changed == ["a/file"] and not looks.all else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        project.write("b/file", b"new")
        assert ws.watch()._watch is not None
        ws.watch()._watch.drain()
        assert set(ws.watch()._watch.dirt().folders) == {"a", "b"}

    @pytest.mark.linux
    def test_a_child_watches_for_itself(self, project, ws: Workspace, looks: Looks) -> None:
        child = os.fork()
        if not child:
            status = 1
            try:
                ws.save()
                project.write("b/file", b"from the child")
                ws.save()
                status = 0 if looks.last == {"b"} else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @pytest.mark.slow
    def test_after_close_saves_go_on_and_nothing_is_open(self, project) -> None:
        before = open_queues()
        ws = project.open(watch=True)
        ws.save()
        assert open_queues() == before + 1
        ws.close()
        ws.close()
        assert open_queues() == before
        assert ws.watch().doubt == ""
        project.write("file", b"new")
        assert ws.save().files_changed == ["file"]
        ws.close()

    def test_close_does_not_restore_purged_names_to_the_cache(self, project, ws: Workspace) -> None:
        project.write("secret", b"a secret to be purged\n")
        ws.watch()
        ws.save()
        for number in range(2):
            project.write("file", b"%d" % number)
            ws.save()
        project.open().purge("secret")
        name = hashlib.sha1(b"blob 22\0a secret to be purged\n").digest()
        ws.close()
        cache = project.store / "holdfast" / "scan.cache"
        assert not cache.exists() or name not in cache.read_bytes()

    @pytest.mark.linux
    def test_close_leaves_a_scan_cache_for_the_next_process(self, project, ws: Workspace) -> None:
        project.write("a/file", b"new")
        settle(project.root)
        ws.save()
        before = (project.store / "holdfast/scan.cache").read_bytes()
        ws.close()
        assert (project.store / "holdfast/scan.cache").read_bytes() != before
        other = project.open()
        listing = other._engine.scanner.judge(other._repository.head()).listing
        assert not listing.pending

    @pytest.mark.slow
    def test_a_workspace_that_is_forgotten_leaves_nothing_open(self, project) -> None:
        before = open_queues()
        ws = project.open(watch=True)
        ws.save()
        assert open_queues() == before + 1
        del ws
        assert open_queues() == before

    @pytest.mark.linux
    def test_a_second_thread_does_without_the_hint(self, project, ws: Workspace, looks: Looks) -> None:
        project.write("a/file", b"new")
        with ws.watch().turn() as turn:
            assert turn is not None
            found: list[str] = []
            thread = threading.Thread(target=lambda: found.extend(ws.diff("latest").modified_files))
            thread.start()
            thread.join()
        assert found == ["a/file"]
        assert looks.all == []


class TestWaiting:
    @pytest.mark.linux
    def test_it_waits_until_something_changes(self, project, ws: Workspace) -> None:
        watching = ws.watch()
        assert not watching.wait(0.01)
        project.write("a/file", b"new")
        assert watching.wait(10)
        assert watching.wait(10)
        ws.save()
        assert not watching.wait(0.01)

    def test_where_nothing_tells_something_may_have_changed(self, project) -> None:
        assert project.open().watch().wait(0.01)


def test_a_link_to_a_file_that_is_now_left_out_is_forgotten(project) -> None:
    project.write("a/file", b"one file")
    (project.root / "b").mkdir()
    os.link(project.root / "a/file", project.root / "b/link")
    ws = project.open()
    ws.save()
    (project.root / "b").rename(project.root / "node_modules")
    saved = ws._repository.contents(ws.save()).root
    fresh = project.open(store=project.area / "fresh")
    assert saved == fresh._repository.contents(fresh.save()).root


def _forget_what_was_held(ws: Workspace) -> None:
    ws.delete("latest")


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def _no_more(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")
