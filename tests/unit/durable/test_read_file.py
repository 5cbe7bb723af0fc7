"""Files that somebody else made are read whole, or refused at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast import durable


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"x" * 3000)
    assert durable.read_file(place, max_bytes=3000) == b"x" * 3000
    with pytest.raises(OSError, match="larger than 2,999 bytes") as caught:
        durable.read_file(place, max_bytes=2999)
    assert caught.value.errno == errno.EFBIG


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it for reading waits for ever
    (tmp_path / "device").symlink_to("/dev/zero")  # and this one has no end
    for name in ("pipe", "device"):
        with pytest.raises(OSError, match="not a regular file"):
            durable.read_file(tmp_path / name, max_bytes=10)
    with pytest.raises(IsADirectoryError):
        durable.read_file(tmp_path, max_bytes=10)
    with pytest.raises(FileNotFoundError):
        durable.read_file(tmp_path / "nothing", max_bytes=10)
    with pytest.raises(OSError, match="null"):
        durable.read_file("nul\0name", max_bytes=10)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        durable.read_file(tmp_path / "huge", max_bytes=1 << 20)


def test_a_link_is_followed_only_if_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    assert durable.read_file(tmp_path / "link", max_bytes=9) == b"x"
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        assert durable.read_file("file", max_bytes=9, dir_fd=handle) == b"x"
        with pytest.raises(OSError):
            durable.read_file("link", max_bytes=9, dir_fd=handle, follow_links=False)
    finally:
        os.close(handle)
