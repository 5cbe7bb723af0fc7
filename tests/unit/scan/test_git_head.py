"""The files of git may be anything, and are read without waiting."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.scan.git_head import read_head


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _device(place: Path) -> None:
    place.symlink_to("/dev/zero")


def _huge(place: Path) -> None:
    with open(place, "wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [_pipe, _device, _huge])
def test_a_head_that_is_anything_holds_up_nobody(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "HEAD")
    assert read_head(tmp_path).problem


@pytest.mark.parametrize("make", [_pipe, _device, _huge])
def test_packed_refs_that_are_anything_hold_up_nobody(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    make(tmp_path / "packed-refs")
    found = read_head(tmp_path)
    assert (found.branch, found.commit) == ("main", "")
