"""Carrying out a plan: everything of P2 comes back, whatever has to make way."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Unavailable, Workspace, durable
from leaks import open_below


def inodes(project: Any, *names: str) -> list[int]:
    return [(project.root / name).stat().st_ino for name in names]


class TestHardLinks:
    @pytest.fixture
    def three(self, project: Any, ws: Workspace) -> str:
        """A file with three names."""
        first = project.write("a", b"shared")
        (project.root / "folder").mkdir()
        for name in ("b", "folder/c"):
            os.link(first, project.root / name)
        return ws.save().id

    @pytest.mark.parametrize("lost", ["a", "b", "folder/c"])
    def test_removed_hard_link_is_linked_again(self, project: Any, ws: Workspace, three: str, lost: str) -> None:
        (project.root / lost).unlink()
        assert ws.restore(three).ok
        assert len(set(inodes(project, "a", "b", "folder/c"))) == 1

    @pytest.mark.parametrize("lost", ["a", "b", "folder/c"])
    def test_hard_link_that_became_a_copy_is_linked_again(
        self, project: Any, ws: Workspace, three: str, lost: str
    ) -> None:
        (project.root / lost).unlink()
        project.write(lost, b"shared")
        assert ws.restore(three).ok
        assert len(set(inodes(project, "a", "b", "folder/c"))) == 1

    def test_all_three_names_that_were_edited_are_one_file_again(self, project: Any, ws: Workspace, three: str) -> None:
        project.write("a", b"edited")
        assert ws.restore(three).ok
        assert len(set(inodes(project, "a", "b", "folder/c"))) == 1
        assert (project.root / "folder/c").read_bytes() == b"shared"

    def test_new_hard_link_goes_and_the_others_stay_linked(self, project: Any, ws: Workspace, three: str) -> None:
        os.link(project.root / "a", project.root / "d")
        assert ws.restore(three).removed == ["d"]
        assert len(set(inodes(project, "a", "b", "folder/c"))) == 1

    @pytest.mark.parametrize("name", ["a", "b", "folder/c"])
    @pytest.mark.parametrize("was_there", [True, False])
    def test_undo_of_one_path_links_again(self, project: Any, ws: Workspace, name: str, was_there: bool) -> None:
        if was_there:
            project.write(name, b"old")
        target = ws.save(allow_empty=True)
        (project.root / name).unlink(missing_ok=True)
        first, *others = {"a", "b", "folder/c"} - {name}
        project.write(first, b"shared")
        for other in (*others, name):
            (project.root / other).parent.mkdir(exist_ok=True)
            os.link(project.root / first, project.root / other)
        ws.restore(target.id, [name])
        assert ws.undo().ok
        assert len(set(inodes(project, "a", "b", "folder/c"))) == 1
        assert ws.redo().ok
        assert len(set(inodes(project, first, *others))) == 1
        assert (project.root / name).exists() == was_there

    def test_undo_of_one_path_leaves_an_edited_link_alone(self, project: Any, ws: Workspace) -> None:
        project.write("a", b"old")
        target = ws.save()
        (project.root / "a").unlink()
        os.link(project.write("b", b"shared"), project.root / "a")
        ws.restore(target.id, ["a"])
        project.write("b", b"edited")
        assert ws.undo().ok
        assert [(project.root / name).read_bytes() for name in ("a", "b")] == [b"shared", b"edited"]

    def test_two_groups_of_the_same_content_stay_two(self, project: Any, ws: Workspace) -> None:
        for first, second in (("a", "b"), ("c", "d")):
            os.link(project.write(first, b"same"), project.root / second)
        saved = ws.save()
        for name in "abcd":
            (project.root / name).unlink()
        ws.restore(saved.id)
        assert len(set(inodes(project, "a", "b"))) == len(set(inodes(project, "c", "d"))) == 1
        assert len(set(inodes(project, "a", "c"))) == 2


class TestFolders:
    def test_a_folder_made_since_goes_with_all_that_is_in_it(self, project: Any, ws: Workspace) -> None:
        saved = ws.save()
        project.write("new/deep/file")
        done = ws.restore(saved.id)
        assert done.ok
        assert done.removed == ["new", "new/deep", "new/deep/file"]
        assert os.listdir(project.root) == []

    def test_parents_of_a_restored_path_get_their_attributes(self, project: Any, ws: Workspace) -> None:
        project.write("a/b/file", b"old")
        project.write("a/b/other", b"old")
        for folder, mode in (("a/b", 0o750), ("a", 0o711)):
            (project.root / folder).chmod(mode)
            os.utime(project.root / folder, ns=(10**18, 10**18))
        saved = ws.save()
        shutil.rmtree(project.root / "a")
        done = ws.restore(saved.id, ["a/b/file"])
        assert done.ok, done.failed
        assert (project.root / "a/b/file").read_bytes() == b"old"
        assert not (project.root / "a/b/other").exists()
        assert [(project.root / folder).stat().st_mode & 0o777 for folder in ("a", "a/b")] == [0o711, 0o750]
        ws.undo()
        assert os.listdir(project.root) == []

    def test_file_in_place_of_a_parent_makes_way_or_is_reported(self, project: Any, ws: Workspace) -> None:
        project.write("a/file", b"old")
        saved = ws.save()
        shutil.rmtree(project.root / "a")
        project.write("a", b"in the way")
        done = ws.restore(saved.id, ["a/file"])
        if done.ok:
            assert (project.root / "a/file").read_bytes() == b"old"
        else:
            assert list(done.failed) == ["a/file"]
        ws.undo()
        assert (project.root / "a").read_bytes() == b"in the way"

    def test_secret_is_restored_into_a_closed_folder(self, project: Any, ws: Workspace) -> None:
        secret = project.write("folder/secret")
        secret.parent.chmod(0o700)
        saved = ws.save()
        secret.unlink()
        secret.parent.chmod(0o755)
        modes = []

        class Watched(durable.Disk):
            def place(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
                modes.append(os.fstat(dst_dir_fd).st_mode & 0o777)
                super().place(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        with durable.use_disk(Watched()):
            assert ws.restore(saved.id).ok
        assert modes == [0o700]

    def test_mode_that_is_not_set_is_reported(self, project: Any, ws: Workspace) -> None:
        """This disk keeps modes, so it is not to blame: somebody changed it again."""
        project.write("script").chmod(0o755)
        saved = ws.save()
        (project.root / "script").chmod(0o644)

        class Meddled(durable.Disk):
            def set_mtime(self, name: str, mtime_ns: int, *, dir_fd: int) -> None:
                if name == "script":
                    os.chmod(name, 0o600, dir_fd=dir_fd)
                super().set_mtime(name, mtime_ns, dir_fd=dir_fd)

        with durable.use_disk(Meddled()):
            assert ws.restore(saved.id).failed == {"script": "its mode could not be restored"}

    def test_failing_disk_is_not_one_without_links(self, project: Any, ws: Workspace) -> None:
        """The restore ends, and everything is as it was (P3)."""
        project.write("one", b"linked")
        os.link(project.root / "one", project.root / "two")
        saved = ws.save()
        for name in ("one", "two"):
            (project.root / name).unlink()

        class Failing(durable.Disk):
            def link(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        with durable.use_disk(Failing()), pytest.raises(Unavailable):
            ws.restore(saved.id)
        assert not list(project.root.iterdir())

    @pytest.mark.linux
    def test_extended_attributes_of_a_folder_come_back(self, project: Any, ws: Workspace) -> None:
        (project.root / "folder").mkdir()
        os.setxattr(project.root / "folder", "user.sparse.kind", b"sparse")
        saved = ws.save()
        (project.root / "folder").rmdir()
        assert ws.restore(saved.id).ok
        assert os.getxattr(project.root / "folder", "user.sparse.kind") == b"sparse"

    def test_the_time_of_the_workspace_itself_comes_back(self, project: Any, ws: Workspace) -> None:
        project.write("file")
        os.utime(project.root, ns=(10**18, 10**18 + 7))
        saved = ws.save()
        project.write("more")
        ws.restore(saved.id)
        assert project.root.stat().st_mtime_ns == 10**18 + 7

    def test_folder_moved_since_the_plan_is_not_written_to(self, project: Any, ws: Workspace) -> None:
        project.write("folder/file", b"old")
        saved = ws.save()
        project.write("folder/file", b"new")

        def move_away(what: str, done: int, total: int) -> None:
            if what == "writing" and (project.root / "folder").exists():
                (project.root / "folder").rename(project.area / "elsewhere")

        done = ws.restore(saved.id, ["folder/file"], progress=move_away)
        assert list(done.failed) == ["folder/file"]
        assert (project.area / "elsewhere" / "file").read_bytes() == b"new"


class TestWithoutExchange:
    """File systems that cannot rename with flags, such as NFS."""

    @pytest.fixture(autouse=True)
    def refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(sys.modules["holdfast.durable.platform"], "rename_with_flags", refuse)

    @pytest.mark.parametrize("name", ["edited", "new"])
    def test_editor_write_between_any_two_steps_is_not_lost(
        self, project: Any, ws: Workspace, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        project.write("edited", b"one")
        first = ws.save().id
        real = {call: getattr(os, call) for call in ("rename", "link", "unlink")}
        at = count = 0

        def step(call: str, *given: Any, **named: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                real["rename"](project.area / "by-the-editor", project.root / name)
            real[call](*given, **named)

        while count >= at:
            at, count = at + 1, 0
            project.write("edited", two := b"two %03d" % at)
            project.write("new", b"made since")
            (project.area / "by-the-editor").write_bytes(edit := b"edit %03d" % at)
            with monkeypatch.context() as patch:
                for call in real:
                    patch.setattr(os, call, partial(step, call))
                ws.restore(first)
            if count >= at:
                there = [path.read_bytes() for path in project.root.iterdir()]
                assert edit in there or self.is_saved(ws, name, edit), f"before step {at}"
            there = [path.read_bytes() for path in project.root.iterdir()]
            assert two in there or self.is_saved(ws, "edited", two)
        assert at > 8

    def is_saved(self, ws: Workspace, name: str, content: bytes) -> bool:
        return any(match.path == name for match in ws.search(content.decode()))


def test_gits_index_is_read_once_by_several_restores(
    project: Any, ws: Workspace, git: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["holdfast.scan.git_refs"], "RACY_NS", -(10**18))  # as if git had rested since
    git("init", "-q", project.root)
    project.write("file", b"one")
    first = ws.save().id
    git("-C", project.root, "add", "-A")
    reads: list[Path] = []
    module = sys.modules["holdfast.scan.git_refs"]
    real = module.read_index
    monkeypatch.setattr(module, "read_index", lambda git, **named: (reads.append(git), real(git, **named))[1])
    for content in (b"two", b"three"):
        project.write("file", content)
        ws.restore(first)
    assert len(reads) == 1


class TestNothingIsLeft:
    def test_neither_stage_nor_journal(self, project: Any, ws: Workspace) -> None:
        project.write("file", b"old")
        saved = ws.save()
        project.write("file", b"new")
        ws.restore(saved.id)
        assert os.listdir(project.root) == ["file"]
        assert not (project.store / "holdfast" / "journal.json").exists()

    def test_no_descriptor_stays_open(self, project: Any, ws: Workspace) -> None:
        project.write("folder/file", b"old")
        saved = ws.save()
        project.write("folder/file", b"new")
        ws.restore(saved.id)
        ws.undo()  # all packs that will be open are open now
        ws.merge()
        before = open_below(project.area)
        ws.redo()
        ws.undo()
        ws.merge()
        assert open_below(project.area) <= before
