"""Contracts: what an implementation must do, and what a folder must be, in a form that any test can use."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from holdfast.durable import Disk

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


@dataclass(frozen=True, slots=True)
class EntryDescription:
    """Everything that P2 promises of one path."""

    kind: str
    content: bytes
    """The bytes of a file, the target of a link, the number of a device."""
    mode: int
    mtime_ns: int
    owner: tuple[int, int]
    xattrs: tuple[tuple[str, bytes], ...]
    same_as: str
    """The first name of the same file, where it has several."""


def describe(folder: Path) -> dict[str, EntryDescription]:
    """Everything that P2 promises of a folder, path by path; its own path is "." """
    first: dict[tuple[int, int], str] = {}
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        name = str(path.relative_to(folder))
        status = path.lstat()
        same_as = name if path.is_dir() else first.setdefault((status.st_dev, status.st_ino), name)
        found[name] = EntryDescription(
            kind=_KINDS[stat.S_IFMT(status.st_mode)],
            content=_content(path, status),
            mode=stat.S_IMODE(status.st_mode),
            mtime_ns=status.st_mtime_ns,
            owner=(status.st_uid, status.st_gid),
            xattrs=_xattrs(path),
            same_as=same_as if status.st_nlink > 1 else name,
        )
    return found


def differences(before: dict[str, EntryDescription], after: dict[str, EntryDescription]) -> list[str]:
    """Say of every path that is not the same in both what differs."""
    found = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            found.append(f"{path}: {'not there before' if old is None else 'gone'}")
        elif old != new:
            changed = [each.name for each in fields(old) if getattr(old, each.name) != getattr(new, each.name)]
            found.append(f"{path}: {', '.join(_change(old, new, name) for name in changed)}")
    return found


def _xattrs(path: Path) -> tuple[tuple[str, bytes], ...]:
    if sys.platform != "linux":
        return ()
    names = sorted(os.listxattr(path, follow_symlinks=False))
    return tuple((each, os.getxattr(path, each, follow_symlinks=False)) for each in names)


def _content(path: Path, status: os.stat_result) -> bytes:
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(os.readlink(path))
    if stat.S_ISREG(status.st_mode):
        return path.read_bytes()
    return b"%d" % status.st_rdev


def _change(old: EntryDescription, new: EntryDescription, name: str) -> str:
    shown = [repr(getattr(each, name)) for each in (old, new)]
    return f"{name} {' -> '.join(text if len(text) < 60 else text[:57] + '…' for text in shown)}"


class DiskContract:
    """What every `Disk` does while nothing is wrong; the suite gives the fixture `disk`."""

    def test_a_new_file_holds_all_that_was_written(self, disk: Disk, tmp_path: Path) -> None:
        fd = disk.create(str(tmp_path / "new"))
        disk.write(fd, b"one two")
        disk.pwrite(fd, b"ONE", 0)
        disk.truncate(fd, 5)
        disk.fsync(fd)
        os.close(fd)
        assert (tmp_path / "new").read_bytes() == b"ONE t"
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600

    def test_a_file_that_is_there_is_not_made_again(self, disk: Disk, tmp_path: Path) -> None:
        (tmp_path / "old").write_bytes(b"old")
        assert _refuses(FileExistsError, lambda: disk.create(str(tmp_path / "old")))
        assert (tmp_path / "old").read_bytes() == b"old"

    def test_a_rename_replaces(self, disk: Disk, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a")
        (tmp_path / "b").write_bytes(b"b")
        disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b": b"a"}

    def test_a_place_that_is_taken_is_left_alone(self, disk: Disk, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a")
        (tmp_path / "b").write_bytes(b"b")
        with _Folder(tmp_path) as fd:
            assert _refuses(FileExistsError, lambda: disk.place("a", "b", src_dir_fd=fd, dst_dir_fd=fd))
            disk.place("a", "c", src_dir_fd=fd, dst_dir_fd=fd)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"b": b"b", "c": b"a"}

    def test_an_exchange_loses_neither(self, disk: Disk, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a")
        (tmp_path / "b").write_bytes(b"b")
        with _Folder(tmp_path) as fd:
            disk.exchange("a", "b", src_dir_fd=fd, dst_dir_fd=fd)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"b", "b": b"a"}

    def test_folders_links_and_names_come_and_go(self, disk: Disk, tmp_path: Path) -> None:
        with _Folder(tmp_path) as fd:
            disk.mkdir("folder", dir_fd=fd)
            disk.symlink("nowhere", "link", dir_fd=fd)
            disk.mknod("fifo", stat.S_IFIFO | 0o600, 0, dir_fd=fd)
            disk.link("link", "other", src_dir_fd=fd, dst_dir_fd=fd)
            disk.syncfs(fd)
            kinds = {name: entry.kind for name, entry in describe(tmp_path).items()}
            disk.rmdir("folder", dir_fd=fd)
            disk.unlink("link", dir_fd=fd)
        assert kinds == {".": "folder", "folder": "folder", "link": "link", "fifo": "fifo", "other": "link"}
        assert {path.name for path in tmp_path.iterdir()} == {"fifo", "other"}

    def test_metadata_is_set_on_the_thing_itself(self, disk: Disk, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        (tmp_path / "link").symlink_to("file")
        with _Folder(tmp_path) as folder, _Folder(tmp_path / "file") as fd:
            disk.chmod(fd, 0o640)
            disk.setxattr(fd, "user.a", b"1")
            disk.setxattr(fd, "user.b", b"2")
            disk.removexattr(fd, "user.a")
            disk.chown(fd, os.geteuid(), os.getegid())
            disk.set_mtime("file", 5, dir_fd=folder)
            disk.set_mtime("link", 6, dir_fd=folder)
        found = describe(tmp_path)
        assert (found["file"].mode, found["file"].mtime_ns, found["file"].xattrs) == (0o640, 5, (("user.b", b"2"),))
        assert found["link"].mtime_ns == 6


class _Folder:
    """A handle of a file or folder, for a while."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _refuses(error: type[OSError], act: object) -> bool:
    assert callable(act)
    try:
        act()
    except error:
        return True
    return False
