"""Disks that fail on purpose, used instead of the real one with `durable.use_disk`.

CountingDisk
├── KillingDisk     the process dies at the n-th changing call
├── FailingDisk     the n-th changing call, or every one from it on, is refused by the system
└── ForgetfulDisk   the power fails at the n-th changing call, and what was not synced is lost (see `power_loss`)

Every call that changes a disk is counted from 1, so that a test can interrupt an operation at each in turn with
`every_point`. None of these disks waits for the real medium: no test needs its files after the machine stops.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Container
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from holdfast.durable import Disk, use_disk
from holdfast.testing.power_loss import Medium, Survives

When = Literal["before", "after", "halfway"]
Foreign = Literal["kept", "dropped", "garbled"]
Data = bytes | bytearray | memoryview

WRITES = frozenset({"write", "pwrite"})
SYNCS = frozenset({"fsync", "syncfs"})
TAKES_SPACE = frozenset({"create", "write", "pwrite", "link", "symlink", "mknod", "mkdir", "setxattr"})
CATALOG = frozenset({"catalog.db", "catalog.db-journal", "catalog.db-agreed"})
_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskCall(NamedTuple):
    """A call that changes a disk."""

    number: int
    name: str
    about: str

    def __str__(self) -> str:
        return f"{self.number} {self.name}({self.about})"


class CountingDisk(Disk):
    """The real disk, with every changing call counted and recorded. Its syncs return at once."""

    def __init__(self) -> None:
        self.calls: list[DiskCall] = []

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        """Make a call, or fail it; `half` makes one half of a write."""
        return act()

    def _count(
        self, name: str, about: str, act: Callable[[], int | None], half: Callable[[], None] | None = None
    ) -> int | None:
        call = DiskCall(len(self.calls) + 1, name, about)
        self.calls.append(call)
        return self._pass(call, act, half)

    # files

    def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
        fd = self._count("create", _short(name), lambda: Disk.create(self, name, mode=mode, dir_fd=dir_fd))
        return -1 if fd is None else fd

    def write(self, fd: int, data: Data) -> None:
        def half() -> None:
            Disk.write(self, fd, memoryview(data)[: len(data) // 2])

        self._count("write", _named(fd), lambda: Disk.write(self, fd, data), half)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        def half() -> None:
            Disk.pwrite(self, fd, data[: len(data) // 2], offset)

        self._count("pwrite", _named(fd), lambda: Disk.pwrite(self, fd, data, offset), half)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate", _named(fd), lambda: Disk.truncate(self, fd, size))

    def fsync(self, fd: int) -> None:
        self._count("fsync", _named(fd), lambda: None)

    def syncfs(self, fd: int) -> None:
        self._count("syncfs", _named(fd), lambda: None)

    # names

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        def act() -> None:
            Disk.rename(self, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        self._count("rename", f"{_short(src)} to {_short(dst)}", act)

    def place(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int, private: bool = False) -> None:
        def act() -> None:
            Disk.place(self, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, private=private)

        self._count("place", f"{_short(src)} to {_short(dst)}", act)

    def exchange(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        def act() -> None:
            Disk.exchange(self, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        self._count("exchange", f"{_short(src)} with {_short(dst)}", act)

    def link(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        def act() -> None:
            Disk.link(self, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        self._count("link", f"{_short(src)} as {_short(dst)}", act)

    def symlink(self, target: str, name: str, *, dir_fd: int) -> None:
        self._count("symlink", _short(name), lambda: Disk.symlink(self, target, name, dir_fd=dir_fd))

    def mknod(self, name: str, mode: int, device: int, *, dir_fd: int) -> None:
        self._count("mknod", _short(name), lambda: Disk.mknod(self, name, mode, device, dir_fd=dir_fd))

    def mkdir(self, name: str, *, mode: int = 0o700, dir_fd: int | None = None) -> None:
        self._count("mkdir", _short(name), lambda: Disk.mkdir(self, name, mode=mode, dir_fd=dir_fd))

    def rmdir(self, name: str, *, dir_fd: int | None = None) -> None:
        self._count("rmdir", _short(name), lambda: Disk.rmdir(self, name, dir_fd=dir_fd))

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        self._count("unlink", _short(name), lambda: Disk.unlink(self, name, dir_fd=dir_fd))

    # metadata

    def chmod(self, fd: int, mode: int) -> None:
        self._count("chmod", _named(fd), lambda: Disk.chmod(self, fd, mode))

    def chown(self, fd: int, uid: int, gid: int) -> None:
        self._count("chown", _named(fd), lambda: Disk.chown(self, fd, uid, gid))

    def chown_link(self, name: str, uid: int, gid: int, *, dir_fd: int) -> None:
        self._count("chown_link", _short(name), lambda: Disk.chown_link(self, name, uid, gid, dir_fd=dir_fd))

    def set_mtime(self, name: str, mtime_ns: int, *, dir_fd: int) -> None:
        self._count("set_mtime", _short(name), lambda: Disk.set_mtime(self, name, mtime_ns, dir_fd=dir_fd))

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        self._count("setxattr", _named(fd), lambda: Disk.setxattr(self, fd, name, value))

    def removexattr(self, fd: int, name: str) -> None:
        self._count("removexattr", _named(fd), lambda: Disk.removexattr(self, fd, name))


class KillingDisk(CountingDisk):
    """Kills its own process, as `kill -9` does, at the n-th changing call; for a child that `die_in_child` makes.

    `halfway` lets one half of a write through first; a call that writes nothing is then killed before it is made.
    """

    def __init__(self, *, at: int, when: When = "before") -> None:
        super().__init__()
        self._at = at
        self._when = when

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if call.number == self._at:
            if self._when == "after":
                act()
            elif self._when == "halfway" and half is not None:
                half()
            os.kill(os.getpid(), signal.SIGKILL)
        return act()


class FailingDisk(CountingDisk):
    """Refuses the n-th changing call; or, without `once`, every call from it on, until another disk is put in place.

    A full disk (ENOSPC, EDQUOT) takes one half of a write first, and stays full only for calls that need space.
    """

    def __init__(self, *, at: int, error: int = errno.EIO, once: bool = True) -> None:
        super().__init__()
        self._at = at
        self._error = error
        self._once = once
        self.failed: DiskCall | None = None
        """The first call that was refused."""

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if not self._refuses(call):
            return act()
        self.failed = self.failed or call
        if half is not None and self._error in _FULL:
            half()
        raise OSError(self._error, os.strerror(self._error), call.about)

    def _refuses(self, call: DiskCall) -> bool:
        if self._once or call.number <= self._at:
            return call.number == self._at
        return self._error not in _FULL or call.name in TAKES_SPACE


class PowerLoss(BaseException):
    """The machine went off. No `except Exception` sees it."""


class ForgetfulDisk(CountingDisk):
    """Goes off at the n-th changing call, and then knows only what was synced; until `lose_power` it looks real.

    Nothing works any more once it is off, so that no clean-up code can do what a machine without power cannot.
    """

    def __init__(self, *roots: Path, at: int | None = None, foreign: frozenset[str] = CATALOG) -> None:
        """Watch some folders. `foreign` files, which SQLite writes by itself, are not watched."""
        super().__init__()
        self._at = at
        self._roots = roots
        self._foreign = foreign
        self._medium = Medium(roots, foreign=foreign)
        self.is_off = False

    def lose_power(
        self, *, survives: Survives = lambda path: False, foreign: Foreign = "dropped", random: Random | None = None
    ) -> None:
        """Make the folders what they are after a power loss: of what was not synced only names that `survives` names.

        Foreign files are kept, dropped, or cut and garbled at `random`.
        """
        self._medium.settle(survives)
        if foreign != "kept":
            for path in [path for root in self._roots for path in root.rglob("*") if path.name in self._foreign]:
                if foreign == "garbled":
                    _garble(path, random or Random(0))
                else:
                    path.unlink()

    def go_on(self) -> None:
        """Take the interruption for the death of a process alone: the machine goes on, with what is not synced yet."""
        self._at = None
        self.is_off = False

    def _pass(self, call: DiskCall, act: Callable[[], int | None], half: Callable[[], None] | None) -> int | None:
        if self.is_off or call.number == self._at:
            self.is_off = True
            raise PowerLoss(str(call))
        return act()

    def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
        fd = super().create(name, mode=mode, dir_fd=dir_fd)
        self._medium.make(_at(name, dir_fd))
        return fd

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self._medium.sync(f"/proc/self/fd/{fd}")

    def syncfs(self, fd: int) -> None:
        super().syncfs(fd)
        self._medium.sync_all()

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        replaced = _status(_at(dst, dst_dir_fd))
        super().rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if replaced:
            self._medium.drop(replaced)

    def symlink(self, target: str, name: str, *, dir_fd: int) -> None:
        super().symlink(target, name, dir_fd=dir_fd)
        self._medium.make(_at(name, dir_fd))

    def mknod(self, name: str, mode: int, device: int, *, dir_fd: int) -> None:
        super().mknod(name, mode, device, dir_fd=dir_fd)
        self._medium.make(_at(name, dir_fd))

    def mkdir(self, name: str, *, mode: int = 0o700, dir_fd: int | None = None) -> None:
        super().mkdir(name, mode=mode, dir_fd=dir_fd)
        self._medium.make(_at(name, dir_fd))

    def rmdir(self, name: str, *, dir_fd: int | None = None) -> None:
        gone = _status(_at(name, dir_fd))
        super().rmdir(name, dir_fd=dir_fd)
        if gone:
            self._medium.drop(gone)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        gone = _status(_at(name, dir_fd))
        super().unlink(name, dir_fd=dir_fd)
        if gone:
            self._medium.drop(gone)


def every_point(act: Callable[[], object], *, among: Container[str] | None = None) -> list[DiskCall]:
    """The changing calls that an operation makes, found by doing it once: interrupt it anew at the number of each.

    `among` leaves only the calls of these names.
    """
    disk = CountingDisk()
    with use_disk(disk):
        act()
    return [call for call in disk.calls if among is None or call.name in among]


def die_in_child(disk: KillingDisk, act: Callable[[], object]) -> bool:
    """Do something in a forked child on a disk that kills it; False if it ended alive.

    AssertionError if the child ended in another way; what it raised is on stderr.
    """
    child = os.fork()
    if not child:
        try:
            with use_disk(disk):
                act()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status:
        raise AssertionError(f"the child was to be killed or to succeed, and ended with status {status:#x}")
    return False


def _short(name: str) -> str:
    """The end of a path: enough to know what a call was about."""
    return "/".join(name.split("/")[-2:])


def _named(fd: int) -> str:
    return _short(os.readlink(f"/proc/self/fd/{fd}"))


def _at(name: str, dir_fd: int | None) -> str:
    return name if dir_fd is None else f"/proc/self/fd/{dir_fd}/{name}"


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _garble(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    if data and random.random() < 0.5:
        del data[random.randrange(len(data)) :]
    for _ in range(8 if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
