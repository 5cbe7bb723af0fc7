"""Reading entries that hold still, change, grow, vanish or become something else."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path

import pytest

from holdfast.errors import Conflict
from holdfast.model import Reason
from holdfast.scan.attrs import Attr
from holdfast.scan.cache import CTIME, FAILED, INO, MODE, MTIME, SIZE, UNKNOWN, WIDTH, YOUNG, Folder
from holdfast.scan.read import LARGE_BYTES, Outcome, mark_failed, read_entry


class Keeper:
    """Keeps what it is given; can be told to do something each time, as another process would meanwhile."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda _: None) -> None:
        self.kept: list[bytes] = []
        self._meanwhile = meanwhile

    def whole(self, data: bytes) -> bytes:
        self.kept.append(data)
        self._meanwhile(len(self.kept))
        return sha1(data).digest()

    def pieces(self, size: int, pieces: Iterator[bytes]) -> bytes:
        data = b"".join(pieces)
        self.kept.append(data)
        self._meanwhile(len(self.kept))
        if len(data) != size:
            raise Conflict("another size")
        return sha1(data).digest()


class Read:
    """One entry, as a walk saw it, and what reading it gave."""

    def __init__(self, root: Path, name: str) -> None:
        self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        self.owner = (root.stat().st_uid, root.stat().st_gid)
        status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        self.folder = Folder("", (0, 0, 0, 0, 0))
        self.folder.names = [name]
        self.folder.contents = bytearray(UNKNOWN)
        self.folder.rows = array(
            "q",
            [status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_nlink, 0],
        )

    def now(self, keeper: Keeper, *, clock: Callable[[], int] = time.time_ns) -> Outcome:
        try:
            return read_entry(self.folder, 0, self._fd, self.owner, keeper, clock=clock)
        finally:
            os.close(self._fd)

    @property
    def attr(self) -> Attr:
        return Attr(self.folder.rows[MODE], self.folder.rows[MTIME], self.folder.extras.get(self.folder.names[0], b"-"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def test_a_file_that_holds_still_is_read_once(tmp_path: Path, file: Path) -> None:
    keeper = Keeper()
    outcome = Read(tmp_path, "file").now(keeper)
    assert outcome == Outcome(sha1(b"content").digest())
    assert keeper.kept == [b"content"]


@pytest.mark.parametrize("data", [b"", b"x", bytes(LARGE_BYTES), bytes(LARGE_BYTES) + b"x"], ids=len)
def test_a_file_of_any_size_is_read_whole(tmp_path: Path, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    reading, keeper = Read(tmp_path, "file"), Keeper()
    assert reading.now(keeper).content == sha1(data).digest()
    assert reading.attr.parts_bytes == (len(data) if len(data) > LARGE_BYTES else None)


@pytest.mark.linux
def test_extended_attributes_and_holes_are_told(tmp_path: Path, file: Path) -> None:
    os.truncate(file, 1 << 20)
    os.setxattr(file, "user.tag", b"blue")
    reading = Read(tmp_path, "file")
    reading.now(Keeper())
    assert reading.attr.xattrs == {"user.tag": b"blue"}
    assert reading.attr.is_sparse


def test_the_holes_of_a_large_file_are_read_as_zeros(tmp_path: Path, file: Path) -> None:
    with open(file, "wb") as opened:
        opened.write(b"begin")
        opened.seek(5 << 20)
        opened.write(b"middle")
        opened.truncate(LARGE_BYTES + 4096)
    keeper = Keeper()
    Read(tmp_path, "file").now(keeper)
    assert keeper.kept == [file.read_bytes()]


def test_the_target_of_a_link_is_its_content(tmp_path: Path) -> None:
    os.symlink(b"to \xff nowhere", tmp_path / "link")
    keeper = Keeper()
    assert Read(tmp_path, "link").now(keeper).content == sha1(b"to \xff nowhere").digest()


def test_a_pipe_is_not_opened_and_is_no_longer_unknown(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    outcome = Read(tmp_path, "pipe").now(Keeper())
    assert outcome.content not in (b"", UNKNOWN)
    assert outcome.reason is None


def test_a_database_is_told_from_other_files(tmp_path: Path, file: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "base.db")) as base, base:
        base.execute("CREATE TABLE t (x)")
    base.close()
    assert Read(tmp_path, "base.db").now(Keeper()).is_database
    assert not Read(tmp_path, "file").now(Keeper()).is_database


class TestMeanwhile:
    def test_file_changed_once_is_read_again(self, tmp_path: Path, file: Path) -> None:
        keeper = Keeper(lambda times: file.write_bytes(b"changed!") and None if times == 1 else None)
        reading = Read(tmp_path, "file")
        outcome = reading.now(keeper)
        assert outcome.content == sha1(b"changed!").digest()
        assert not outcome.steady
        status = file.stat()
        assert [reading.folder.rows[column] for column in (SIZE, MTIME, CTIME)] == [
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        ]

    def test_file_changed_since_the_walk_is_rescanned_next_time(self, tmp_path: Path, file: Path) -> None:
        reading = Read(tmp_path, "file")
        file.write_bytes(b"changed!")
        assert reading.now(Keeper()).content == sha1(b"changed!").digest()
        assert reading.folder.flags(0) & YOUNG

    def test_file_replaced_since_the_walk_is_recorded(self, tmp_path: Path, file: Path) -> None:
        reading = Read(tmp_path, "file")
        (tmp_path / "new").write_bytes(b"CONTENT")
        os.utime(tmp_path / "new", ns=(0, file.stat().st_mtime_ns))
        (tmp_path / "new").rename(file)
        assert reading.now(Keeper()).content == sha1(b"CONTENT").digest()
        assert reading.folder.rows[INO] == file.stat().st_ino
        assert reading.folder.flags(0) & YOUNG

    def test_constantly_changing_file_is_reported_as_changed(self, tmp_path: Path, file: Path) -> None:
        def grow(_: int) -> None:
            with open(file, "ab") as opened:
                opened.write(b"more")

        outcome = Read(tmp_path, "file").now(Keeper(grow))
        assert outcome.reason is Reason.CHANGED
        assert outcome.content == b""
        assert not outcome.steady

    def test_a_large_file_that_shrinks_is_read_again(self, tmp_path: Path, file: Path) -> None:
        file.write_bytes(bytes(LARGE_BYTES + 10))
        reading = Read(tmp_path, "file")
        os.truncate(file, 5)
        assert reading.now(Keeper()).content == sha1(bytes(5)).digest()
        assert reading.attr.parts_bytes is None

    def test_a_file_that_is_gone_is_gone(self, tmp_path: Path, file: Path) -> None:
        reading = Read(tmp_path, "file")
        file.unlink()
        outcome = reading.now(Keeper())
        assert outcome.vanished
        assert outcome.reason is None

    @pytest.mark.parametrize("swap", ["pipe", "link", "folder"])
    def test_file_that_changed_its_type_is_not_followed(self, tmp_path: Path, file: Path, swap: str) -> None:
        reading = Read(tmp_path, "file")
        file.unlink()
        (tmp_path / "secret").write_bytes(b"secret")
        make = {"pipe": os.mkfifo, "link": lambda path: os.symlink("secret", path), "folder": os.mkdir}
        make[swap](file)
        keeper = Keeper()
        outcome = reading.now(keeper)
        assert outcome.reason in (Reason.CHANGED, Reason.UNREADABLE)
        assert outcome.content == b""
        assert keeper.kept == []

    def test_a_link_that_became_a_file_is_said_to_have_changed(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        reading = Read(tmp_path, "link")
        (tmp_path / "link").unlink()
        (tmp_path / "link").write_bytes(b"x")
        assert reading.now(Keeper()).reason is Reason.CHANGED


def test_failed_entry_is_named_with_its_reason(tmp_path: Path, file: Path) -> None:
    reading = Read(tmp_path, "file")
    mark_failed(reading.folder, 0, Outcome(reason=Reason.UNREADABLE, detail="Input/output error"))
    assert reading.folder.flags(0) & FAILED
    assert not reading.folder.holds(0)
    assert reading.folder.skipped == {"file": (Reason.UNREADABLE, "Input/output error")}
    assert len(reading.folder.rows) == WIDTH


def test_a_large_file_that_became_a_pipe_is_not_read_as_one(tmp_path: Path, file: Path) -> None:
    os.truncate(file, LARGE_BYTES + 1)
    read, keeper = Read(tmp_path, "file"), Keeper()
    file.unlink()
    os.mkfifo(file)
    assert read.now(keeper).reason is Reason.CHANGED
    assert stat.S_ISREG(read.attr.mode) and not keeper.kept


def test_recently_written_file_is_read_until_two_reads_agree(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes just after the first look; as long as the clock does not move on, the times do not show it."""
    read, keeper, real = Read(tmp_path, "file"), Keeper(), os.pread
    looks = [b"conTENT"]  # what was there before, of the same size
    monkeypatch.setattr("os.pread", lambda *given: looks.pop() if looks else real(*given))
    assert read.now(keeper, clock=lambda: file.stat().st_ctime_ns).content == sha1(b"content").digest()
    assert keeper.kept == [b"content"]
