"""Every call that changes a disk, in one replaceable object."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

ASIDE = ".old"
"""The suffix for an old file that was moved aside while a new one took its name."""

_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


class Disk:
    """The real disk. Names are relative to `dir_fd` where one is given; links are never followed."""

    def create(self, name: str, *, mode: int = 0o600, dir_fd: int | None = None) -> int:
        """Make a new file and open it for writing; an existing one is an error."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # O_EXCL: nor is a link followed
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
            count = os.pwrite(fd, view, offset)
            view, offset = view[count:], offset + count

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        """Make the content of a file, or the names in a folder, durable."""
        os.fsync(fd)

    def syncfs(self, fd: int) -> None:
        """Make everything on the file system of `fd` durable: one call for many files."""
        if _libc().syncfs(fd):
            _raise_errno()

    def rename(self, src: str, dst: str, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        """Move, replacing what is at `dst`."""
        os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def place(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int, private: bool = False) -> None:
        """Move to a free name; FileExistsError if something is there.

        `private`: no other program writes to `dst`, but perhaps to `src`. Otherwise the other way round.
        """
        try:
            _renameat2(src, dst, src_dir_fd, dst_dir_fd, _RENAME_NOREPLACE)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            # P1: `rename` alone would replace a file that another program puts at `dst` meanwhile; `link` refuses to
            if private:
                os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
                return
            os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
            os.unlink(src, dir_fd=src_dir_fd)

    def exchange(self, src: str, dst: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Swap two names in one step, so that whatever stood at `dst` is at `src` afterwards and nothing is lost.

        Where the file system cannot, the old file is moved aside first, and for a moment nothing is at `dst`. If
        something comes there in that moment, it stays, and so does the old file, as `src` with ASIDE: FileExistsError.
        """
        try:
            _renameat2(src, dst, src_dir_fd, dst_dir_fd, _RENAME_EXCHANGE)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
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
        os.mknod(name, mode, device, dir_fd=dir_fd)

    def mkdir(self, name: str, *, mode: int = 0o700, dir_fd: int | None = None) -> None:
        os.mkdir(name, mode, dir_fd=dir_fd)
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if mode & 0o700 & ~status.st_mode:
            fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
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
        os.chmod(f"/proc/self/fd/{fd}", mode)

    def chown(self, fd: int, uid: int, gid: int) -> None:
        os.chown(f"/proc/self/fd/{fd}", uid, gid)

    def chown_link(self, name: str, uid: int, gid: int, *, dir_fd: int) -> None:
        os.chown(name, uid, gid, dir_fd=dir_fd, follow_symlinks=False)

    def set_mtime(self, name: str, mtime_ns: int, *, dir_fd: int) -> None:
        """Set the time of last change (and of last use) of a file, a folder (`.`) or a link itself."""
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=dir_fd, follow_symlinks=False)

    def setxattr(self, fd: int, name: str, value: bytes) -> None:
        os.setxattr(f"/proc/self/fd/{fd}", name, value)

    def removexattr(self, fd: int, name: str) -> None:
        os.removexattr(f"/proc/self/fd/{fd}", name)


def open_to_owner(fd: int, mode: int) -> None:
    """Give the owner the rights in `mode` if the umask removed them: nobody could use the file otherwise."""
    status = os.fstat(fd)
    lacking = mode & 0o700 & ~status.st_mode
    if lacking:
        with contextlib.suppress(PermissionError):  # it existed already, and belongs to another user
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(status.st_mode) | lacking)


_current = Disk()
_loaded: ctypes.CDLL | None = None


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


def _libc() -> ctypes.CDLL:
    global _loaded
    if _loaded is None:
        import ctypes  # start-up cost: only a restore needs it

        _loaded = ctypes.CDLL(None, use_errno=True)
    return _loaded


def _renameat2(src: str, dst: str, src_dir_fd: int, dst_dir_fd: int, flags: int) -> None:
    function = getattr(_libc(), "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(src_dir_fd, os.fsencode(src), dst_dir_fd, os.fsencode(dst), flags):
        _raise_errno(dst)


def _raise_errno(name: str | None = None) -> None:
    import ctypes

    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), name)
