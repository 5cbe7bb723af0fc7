"""Every call that changes a disk, in one replaceable object."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from holdfast.durable import platform

ASIDE = ".old"
"""The suffix for an old file that was moved aside while a new one took its name."""


class Disk:
    """The real disk. Names are relative to `dir_fd` where one is given; links are never followed."""

    def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
        """Make a new file and open it for writing; an existing one is an error."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | platform.O_CLOEXEC  # O_EXCL: nor is a link followed
        fd = os.open(name, flags, mode, dir_fd=dir_fd)
        open_to_owner(fd, mode)
        return fd

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of it at an offset."""
        view = memoryview(data)
        while view:
            count = platform.pwrite(fd, view, offset)
            view, offset = view[count:], offset + count

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make the content of a file, or the names in a folder, durable."""
        platform.fsync(fd)

    def syncfs(self, fd: int) -> None:
        """Make everything on the file system of `fd` durable: one call for many files."""
        platform.sync_file_system(fd)

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        """Move, replacing what is at `dst`."""
        os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def place(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int, private: bool = False) -> None:
        """Move to a free name; FileExistsError if something is there.

        `private`: no other program writes to `dst`, but perhaps to `src`. Otherwise the other way round.

        Where the file system can neither rename to a free name nor link (exFAT, for example), this looks whether the
        name is free and then renames. What another program puts there between these two calls is lost: such a file
        system has no call that would prevent it.
        """
        try:
            platform.rename_with_flags(src, dst, src_dir_fd, dst_dir_fd, platform.NO_REPLACE)
        except OSError as error:
            if error.errno not in platform.NOT_SUPPORTED:
                raise
            # P1: `rename` alone would replace a file that another program puts at `dst` meanwhile; `link` refuses to
            if private:
                os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return
            try:
                os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
            except OSError as refusal:
                if refusal.errno not in platform.NOT_KEPT:
                    raise
                if _is_there(dst, dst_dir_fd):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), dst) from None
                os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return
            os.unlink(src, dir_fd=src_dir_fd)

    def exchange(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Swap two names in one step, so that whatever stood at `dst` is at `src` afterwards and nothing is lost.

        Where the file system cannot, the old file is moved aside first, and for a moment nothing is at `dst`. If
        something comes there in that moment, it stays, and so does the old file, as `src` with ASIDE: FileExistsError.
        """
        try:
            platform.rename_with_flags(src, dst, src_dir_fd, dst_dir_fd, platform.EXCHANGE)
        except OSError as error:
            if error.errno not in platform.NOT_SUPPORTED:
                raise
            if stat.S_ISDIR(os.stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False).st_mode):
                raise PermissionError(
                    errno.EPERM, os.strerror(errno.EPERM), dst
                ) from None  # as `link` answers for a folder
            self._exchange_in_steps(src, dst, src_dir_fd, dst_dir_fd)

    def _exchange_in_steps(self, src: str, dst: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        aside = src + ASIDE
        os.rename(dst, aside, src_dir_fd=dst_dir_fd, dst_dir_fd=src_dir_fd)
        try:
            Disk.place(self, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        except FileExistsError:
            raise
        except OSError:
            os.rename(aside, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            raise
        os.rename(aside, src, src_dir_fd=src_dir_fd, dst_dir_fd=src_dir_fd)

    def link(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)

    def symlink(self, target: str, name: str, *, dir_fd: int) -> None:
        os.symlink(target, name, dir_fd=dir_fd)

    def mknod(self, name: str, mode: int, device: int, *, dir_fd: int) -> None:
        platform.mknod(name, mode, device, dir_fd)

    def mkdir(self, name: str, *, mode: int = 0o700, dir_fd: int | None = None) -> None:
        os.mkdir(name, mode, dir_fd=dir_fd)
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if mode & 0o700 & ~status.st_mode:
            fd = platform.open_handle(name, dir_fd)
            try:
                open_to_owner(fd, mode)
            finally:
                os.close(fd)

    def rmdir(self, name: str, *, dir_fd: int | None = None) -> None:
        os.rmdir(name, dir_fd=dir_fd)

    def unlink(self, name: str, *, dir_fd: int | None = None) -> None:
        os.unlink(name, dir_fd=dir_fd)

    def chmod(self, fd: int, mode: int) -> None:
        """Set the mode of what `fd` names; `fd` may be an O_PATH handle of a file that cannot be opened."""
        platform.chmod(fd, mode)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        platform.chown(fd, uid, gid)

    def chown_link(self, name: str, uid: int, gid: int, *, dir_fd: int) -> None:
        platform.chown_link(name, uid, gid, dir_fd)

    def set_mtime(self, name: str, mtime_ns: int, *, dir_fd: int) -> None:
        """Set the time of last change (and of last use) of a file, a folder (`.`) or a link itself."""
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=dir_fd, follow_symlinks=False)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        platform.set_xattr(fd, name, value)

    def removexattr(self, fd: int, name: str) -> None:
        platform.remove_xattr(fd, name)


def _is_there(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def open_to_owner(fd: int, mode: int) -> None:
    """Give the owner the rights in `mode` if the umask removed them: nobody could use the file otherwise."""
    status = os.fstat(fd)
    lacking = mode & 0o700 & ~status.st_mode
    if lacking:
        with contextlib.suppress(PermissionError):  # it existed already, and belongs to another user
            platform.chmod(fd, stat.S_IMODE(status.st_mode) | lacking)


_current = Disk()


def disk() -> Disk:
    """The disk in use."""
    return _current


@contextlib.contextmanager
def use_disk(other: Disk) -> Iterator[None]:
    """Use another disk instead of the real one, in a test."""
    global _current
    before, _current = _current, other
    try:
        yield
    finally:
        _current = before
