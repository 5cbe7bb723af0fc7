"""Folders opened one component at a time: never through a link, however deep, with few of them open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.scan.dir_handles import Handles, join, split, upwards
from leaks import open_below


@pytest.fixture
def handles(tmp_path: Path) -> Iterator[Handles]:
    with Handles(str(tmp_path)) as handles:
        yield handles


def names(fd: int) -> list[str]:
    return sorted(os.listdir(fd))


def test_a_folder_is_opened_by_its_path(tmp_path: Path, handles: Handles) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    assert names(handles.open("a/b")) == ["file"]
    assert names(handles.open("a")) == ["b"]
    assert names(handles.open("")) == ["a"]


def test_a_folder_stays_open(tmp_path: Path, handles: Handles) -> None:
    (tmp_path / "a").mkdir()
    assert handles.open("a") == handles.open("a")


@pytest.mark.parametrize("path", ["link", "link/inner", "folder/link", "folder/link/inner"])
def test_a_link_is_never_followed(tmp_path: Path, handles: Handles, path: str) -> None:
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    for link in ("link", "folder/link"):
        (tmp_path / link).symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        handles.open(path)


@pytest.mark.parametrize("path", ["file", "file/inner", "nowhere", "nowhere/inner"])
def test_what_is_no_folder_is_an_error(tmp_path: Path, handles: Handles, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((NotADirectoryError, FileNotFoundError)):
        handles.open(path)


def test_only_so_many_are_open_at_once_and_each_can_be_had_again(tmp_path: Path, handles: Handles) -> None:
    before = open_below(tmp_path)
    for number in range(300):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / f"file-{number}").touch()
    for number in [*range(300), *range(300)]:
        assert names(handles.open(f"{number}")) == [f"file-{number}"]
    assert open_below(tmp_path) - before <= 128


def test_a_path_longer_than_the_system_can_name_is_opened(tmp_path: Path, handles: Handles) -> None:
    step, depth = "d" * 200, 40
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(step, dir_fd=fd)
        inner = os.open(step, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    deep = "/".join([step] * depth)
    assert names(handles.open(deep)) == ["bottom"]
    for number in range(150):  # so that everything on the way is closed again
        (tmp_path / f"{number}").mkdir()
        handles.open(f"{number}")
    assert names(handles.open(deep)) == ["bottom"]


def test_a_folder_that_was_forgotten_is_looked_for_anew(tmp_path: Path, handles: Handles) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    handles.open("a/b")
    beside = handles.open("ab")
    (tmp_path / "a").rename(tmp_path / "moved")
    assert names(handles.open("a")) == ["b"], "it is still the folder that was opened"
    handles.forget("a")
    for path in ("a", "a/b"):
        with pytest.raises(FileNotFoundError):
            handles.open(path)
    assert handles.open("ab") == beside


def test_everything_but_the_root_can_be_forgotten_at_once(tmp_path: Path, handles: Handles) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        handles.open(name)
    before = open_below(tmp_path)
    handles.forget("")
    assert before - open_below(tmp_path) == 2
    assert names(handles.open("")) == ["a", "b"]


def test_nothing_stays_open_at_the_end(tmp_path: Path) -> None:
    before = open_below(tmp_path)
    with Handles(str(tmp_path)) as handles:
        (tmp_path / "a" / "b").mkdir(parents=True)
        handles.open("a/b")
    assert open_below(tmp_path) == before
    handles.close()


def test_paths_are_taken_apart_and_put_together() -> None:
    assert split("a/b/c") == ("a/b", "c")
    assert split("c") == ("", "c")
    assert join("a/b", "c") == "a/b/c"
    assert join("", "c") == "c"
    assert list(upwards("a/b/c")) == ["a/b/c", "a/b", "a"]
    assert list(upwards("")) == []
