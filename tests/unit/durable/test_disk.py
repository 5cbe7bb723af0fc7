"""The real disk: what each call promises, also where the system cannot exchange two names in one step."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from holdfast.durable import Disk, disk, use_disk

UNSUPPORTED = [errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture(
    params=["one step", *UNSUPPORTED], ids=lambda code: code if code == "one step" else errno.errorcode[code]
)
def any_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This system as it is, and as if it could not rename with flags."""
    if request.param != "one step":
        _refuse_renameat2(monkeypatch, request.param)


def _refuse_renameat2(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(_src: str, dst: str, _src_dir_fd: int, _dst_dir_fd: int, _flags: int) -> None:
        raise OSError(code, os.strerror(code), dst)

    module = importlib.import_module("holdfast.durable.platform")
    monkeypatch.setattr(module, "rename_with_flags", refuse)


class TestCreate:
    def test_a_new_file_is_closed_to_others(self, tmp_path: Path, folder: int) -> None:
        os.close(Disk().create("new", dir_fd=folder))
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600

    @pytest.mark.parametrize("umask", [0o777, 0o277, 0o177])
    def test_a_umask_does_not_take_it_from_its_owner(self, tmp_path: Path, folder: int, umask: int) -> None:
        before = os.umask(umask)
        try:
            os.close(Disk().create("new", dir_fd=folder))
            Disk().mkdir("folder", dir_fd=folder)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700

    def test_an_existing_file_is_an_error_and_stays(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "old").write_bytes(b"old")
        with pytest.raises(FileExistsError):
            Disk().create("old", dir_fd=folder)
        assert (tmp_path / "old").read_bytes() == b"old"

    def test_a_link_that_leads_nowhere_is_not_followed(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "link").symlink_to("elsewhere")
        with pytest.raises(FileExistsError):
            Disk().create("link", dir_fd=folder)
        assert not (tmp_path / "elsewhere").exists()


class TestWriting:
    def test_partial_writes_are_continued(self, tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
        whole_write, whole_pwrite = os.write, os.pwrite
        monkeypatch.setattr(os, "write", lambda fd, data: whole_write(fd, data[:1]))
        monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole_pwrite(fd, data[:1], offset))
        fd = Disk().create("file", dir_fd=folder)
        Disk().write(fd, b"0123456789")
        Disk().pwrite(fd, b"abc", 4)
        os.close(fd)
        assert (tmp_path / "file").read_bytes() == b"0123abc789"


@pytest.mark.usefixtures("any_system")
class TestPlace:
    def test_a_file_is_moved_to_where_nothing_is(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        Disk().place("new", "place", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "place").read_bytes() == b"new"
        assert not (tmp_path / "new").exists()

    def test_what_came_there_first_stays_and_so_does_the_file(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "place").write_bytes(b"came first")
        with pytest.raises(FileExistsError):
            Disk().place("new", "place", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "place").read_bytes() == b"came first"
        assert (tmp_path / "new").read_bytes() == b"new"

    def test_symlinks_are_moved_and_not_followed(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        Disk().place("link", "place", src_dir_fd=folder, dst_dir_fd=folder)
        (tmp_path / "new").write_bytes(b"new")
        with pytest.raises(FileExistsError):
            Disk().place("new", "place", src_dir_fd=folder, dst_dir_fd=folder)
        assert os.readlink(tmp_path / "place") == "nowhere"
        assert not (tmp_path / "nowhere").exists()


@pytest.mark.usefixtures("any_system")
class TestExchange:
    def test_two_files_swap_names(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "old").write_bytes(b"old")
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "old").read_bytes() == b"new"
        assert (tmp_path / "new").read_bytes() == b"old"
        assert sorted(os.listdir(tmp_path)) == ["new", "old"]

    def test_a_link_and_a_file_swap_names(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "old").symlink_to("nowhere")
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "old").read_bytes() == b"new"
        assert os.readlink(tmp_path / "new") == "nowhere"

    def test_the_old_file_keeps_its_identity(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "old").write_bytes(b"old")
        identity = (tmp_path / "old").stat().st_ino
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "new").stat().st_ino == identity

    def test_nothing_moves_when_there_is_nothing_to_swap_with(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "new").write_bytes(b"new")
        with pytest.raises(FileNotFoundError):
            Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        assert os.listdir(tmp_path) == ["new"]
        assert (tmp_path / "new").read_bytes() == b"new"

    def test_names_in_two_folders_swap(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "stage").mkdir()
        (tmp_path / "stage" / "new").write_bytes(b"new")
        (tmp_path / "old").write_bytes(b"old")
        stage = os.open(tmp_path / "stage", os.O_RDONLY | os.O_DIRECTORY)
        Disk().exchange("new", "old", src_dir_fd=stage, dst_dir_fd=folder)
        os.close(stage)
        assert (tmp_path / "old").read_bytes() == b"new"
        assert (tmp_path / "stage" / "new").read_bytes() == b"old"
        assert os.listdir(tmp_path / "stage") == ["new"]


@pytest.mark.parametrize("at", range(1, 6))
def test_editor_write_between_exchange_steps_is_not_lost(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Editors write a new file and rename it over the old one. `at` is the step before which that happens."""
    _refuse_renameat2(monkeypatch, errno.EINVAL)
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "edited").write_bytes(b"edited")
    steps: list[str] = []
    real = {name: getattr(os, name) for name in ("rename", "link", "unlink")}

    def step(name: str, *given: object, **named: object) -> None:
        steps.append(name)
        if len(steps) == at:
            real["rename"](tmp_path / "edited", tmp_path / "old")
        real[name](*given, **named)

    with monkeypatch.context() as patch, contextlib.suppress(FileExistsError):
        for name in real:
            patch.setattr(os, name, partial(step, name))
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert b"edited" in left.values()
    assert b"new" in left.values() or left["old"] == b"edited"
    assert b"old" in left.values() or at == 1  # then the editor itself had replaced it


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC])
def test_an_exchange_that_fails_between_its_steps_is_taken_back(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    _refuse_renameat2(monkeypatch, errno.EINVAL)
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(code)):
        patch.setattr(os, "link", refuse)
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new": b"new", "old": b"old"}


class TestWithoutLinks:
    """exFAT, for example, has neither flags of renames nor links."""

    @pytest.fixture(autouse=True, params=[errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
    def refused(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(request.param, os.strerror(request.param))

        _refuse_renameat2(monkeypatch, errno.EINVAL)
        monkeypatch.setattr(os, "link", refuse)

    def test_a_free_name_is_taken(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "a").write_bytes(b"a")
        Disk().place("a", "b", src_dir_fd=folder, dst_dir_fd=folder)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b": b"a"}

    @pytest.mark.parametrize("kind", ["file", "folder", "link"])
    def test_a_name_that_is_taken_is_left(self, tmp_path: Path, folder: int, kind: str) -> None:
        (tmp_path / "a").mkdir()
        taken = {"file": Path.touch, "folder": Path.mkdir, "link": lambda path: path.symlink_to("nowhere")}
        taken[kind](tmp_path / "b")
        before = (tmp_path / "b").lstat()
        with pytest.raises(FileExistsError):
            Disk().place("a", "b", src_dir_fd=folder, dst_dir_fd=folder)
        assert (tmp_path / "b").lstat() == before

    def test_names_are_exchanged(self, tmp_path: Path, folder: int) -> None:
        for name in ("new", "old"):
            (tmp_path / name).write_text(name)
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "old", "old": "new"}


def test_folders_are_exchanged_in_one_step_or_not_at_all(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    _refuse_renameat2(monkeypatch, errno.EINVAL)
    with pytest.raises(PermissionError):
        Disk().exchange("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
    assert sorted(path.name for path in tmp_path.rglob("*/*")) == ["new", "old"]
    assert (tmp_path / "old" / "old").exists()


def test_a_refusal_that_is_not_for_want_of_support_is_an_error(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_renameat2(monkeypatch, errno.EPERM)
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    for step in (Disk().exchange, Disk().place):
        with pytest.raises(PermissionError):
            step("new", "old", src_dir_fd=folder, dst_dir_fd=folder)
    assert (tmp_path / "old").read_bytes() == b"old"


class TestMetadata:
    @pytest.mark.linux
    def test_a_mode_is_set_on_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        (tmp_path / "closed").touch(mode=0o000)
        fd = os.open(tmp_path / "closed", os.O_PATH)
        Disk().chmod(fd, 0o4711)
        os.close(fd)
        assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o4711

    def test_the_time_of_a_link_is_its_own(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "file").touch()
        before = (tmp_path / "file").stat().st_mtime_ns
        (tmp_path / "link").symlink_to("file")
        Disk().set_mtime("link", 1_234_567_890_123_456_789, dir_fd=folder)
        assert (tmp_path / "link").lstat().st_mtime_ns == 1_234_567_890_123_456_789
        assert (tmp_path / "file").stat().st_mtime_ns == before

    def test_a_time_before_1970_is_a_time(self, tmp_path: Path, folder: int) -> None:
        (tmp_path / "file").touch()
        Disk().set_mtime("file", -1, dir_fd=folder)
        assert (tmp_path / "file").stat().st_mtime_ns == -1


def test_use_disk_lasts_until_its_block_ends() -> None:
    real, other = disk(), Disk()
    with pytest.raises(KeyError), use_disk(other):
        assert disk() is other
        raise KeyError
    assert disk() is real
