"""Files that are there whole or not at all, and folders that go without following a link."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast.durable import Disk, make_folder, parse_json, remove_tree, use_disk, write_atomically
from leaks import open_below


class Watched(Disk):
    """The real disk, which notes what is asked of it and can be told to fail at one kind of call."""

    def __init__(self, fail_at: str = "") -> None:
        self.calls: list[str] = []
        self._fail_at = fail_at

    def _note(self, verb: str, subject: str) -> None:
        self.calls.append(f"{verb} {subject}")
        if verb == self._fail_at:
            raise OSError(5, "Input/output error")

    def write(self, fd: int, data: Any) -> None:
        self._note("write", _name(fd))
        super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._note("fsync", _name(fd))
        super().fsync(fd)

    def rename(self, src: str, dst: str, **options: Any) -> None:
        self._note("rename", f"{os.path.basename(src)} {os.path.basename(dst)}")
        super().rename(src, dst, **options)


def _name(fd: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))


class TestWriteAtomically:
    def test_a_file_is_made_closed_to_others(self, tmp_path: Path) -> None:
        write_atomically(tmp_path / "file", b"content")
        assert (tmp_path / "file").read_bytes() == b"content"
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
        assert os.listdir(tmp_path) == ["file"]

    def test_content_is_synced_before_the_name_and_the_name_too(self, tmp_path: Path) -> None:
        watched = Watched()
        with use_disk(watched):
            write_atomically(tmp_path / "file", b"content")
        assert watched.calls == [
            "write file.new",
            "fsync file.new",
            "rename file.new file",
            f"fsync {tmp_path.name}",
        ]

    def test_nothing_waits_for_the_medium_when_that_is_not_asked_for(self, tmp_path: Path) -> None:
        watched = Watched()
        with use_disk(watched):
            write_atomically(tmp_path / "file", b"content", sync=False)
        assert watched.calls == ["write file.new", "rename file.new file"]

    @pytest.mark.parametrize("step", ["write", "fsync", "rename"])
    def test_failure_at_any_step_leaves_the_old_content(self, tmp_path: Path, step: str) -> None:
        write_atomically(tmp_path / "file", b"old")
        with use_disk(Watched(fail_at=step)), pytest.raises(OSError, match="Input/output error"):
            write_atomically(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"old"
        write_atomically(tmp_path / "file", b"newer")
        assert (tmp_path / "file").read_bytes() == b"newer"
        assert os.listdir(tmp_path) == ["file"]

    def test_a_failure_leaves_no_descriptor_open(self, tmp_path: Path) -> None:
        before = open_below(tmp_path)
        for step in ("write", "fsync", "rename"):
            with use_disk(Watched(fail_at=step)), pytest.raises(OSError, match="Input/output error"):
                write_atomically(tmp_path / "file", b"new")
        assert open_below(tmp_path) == before

    def test_a_link_that_was_left_in_the_way_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "victim").write_bytes(b"precious")
        (tmp_path / "file.new").symlink_to("victim")
        write_atomically(tmp_path / "file", b"content")
        assert (tmp_path / "victim").read_bytes() == b"precious"
        assert (tmp_path / "file").read_bytes() == b"content"


class TestMakeFolder:
    def test_every_folder_that_is_made_is_closed_to_others(self, tmp_path: Path) -> None:
        make_folder(tmp_path / "a" / "b" / "c")
        for folder in ("a", "a/b", "a/b/c"):
            assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700

    def test_a_folder_that_is_there_stays_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir(mode=0o755)
        (tmp_path / "a" / "file").touch()
        make_folder(tmp_path / "a")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
        assert (tmp_path / "a" / "file").exists()

    def test_its_name_is_on_the_medium(self, tmp_path: Path) -> None:
        watched = Watched()
        with use_disk(watched):
            make_folder(tmp_path / "a" / "b")
        assert watched.calls == [f"fsync {tmp_path.name}", "fsync a"]

    def test_a_file_in_the_way_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(FileExistsError):
            make_folder(tmp_path / "a")


class TestRemoveTree:
    def test_a_folder_goes_with_everything_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
        (tmp_path / "tree" / "a" / "file").write_bytes(b"")
        os.mkfifo(tmp_path / "tree" / "pipe")
        remove_tree(str(tmp_path / "tree"))
        assert os.listdir(tmp_path) == []

    def test_what_a_link_in_it_leads_to_stays(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "file").write_bytes(b"precious")
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
        remove_tree(str(tmp_path / "tree"))
        assert (tmp_path / "outside" / "file").read_bytes() == b"precious"
        assert not (tmp_path / "tree").exists()

    def test_link_in_place_of_the_folder_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "file").write_bytes(b"precious")
        (tmp_path / "tree").symlink_to("outside")
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            remove_tree(str(tmp_path / "tree"))
        assert (tmp_path / "outside" / "file").read_bytes() == b"precious"

    def test_what_is_gone_already_is_no_error(self, tmp_path: Path) -> None:
        remove_tree(str(tmp_path / "tree"))
        assert os.listdir(tmp_path) == []

    def test_a_folder_that_may_not_be_written_to_goes_too(self, tmp_path: Path) -> None:
        (tmp_path / "tree" / "closed").mkdir(parents=True)
        (tmp_path / "tree" / "closed" / "file").touch()
        (tmp_path / "tree" / "closed").chmod(0o500)
        remove_tree(str(tmp_path / "tree"))
        assert os.listdir(tmp_path) == []

    def test_a_name_is_relative_to_the_folder_that_is_given(self, tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        remove_tree("tree", dir_fd=fd)
        os.close(fd)
        assert os.listdir(tmp_path) == []


def test_a_file_is_private_unless_a_mode_is_given(tmp_path: Path) -> None:
    write_atomically(tmp_path / "private", b"x")
    write_atomically(tmp_path / "shared", b"x", mode=0o664)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("private", "shared")]
    assert modes == [0o600, 0o664]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "", b"\xff", "[1"])
def test_text_that_is_no_json_is_a_value_error(text: str | bytes) -> None:
    """Also one that is nested too deeply, for which Python has an error of another kind."""
    with pytest.raises(ValueError):
        parse_json(text)
