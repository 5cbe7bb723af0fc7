"""Setting metadata of files and folders: owner, extended attributes, mode, time."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import cached_property

from holdfast.durable import disk, platform
from holdfast.scan.attrs import Attr, is_kept_xattr
from holdfast.scan.dir_handles import SHORTAGES, Handles

ABORT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, *SHORTAGES)
"""Errors of the disk or the process rather than of one path; they end the restore."""


MODE_NOT_KEPT = "restored, but modes cannot be kept on this disk"
TIME_NOT_KEPT = "restored, but this disk keeps times less exactly"
LINK_NOT_KEPT = "restored as a separate file: hard links cannot be kept on this disk"
COARSEST_TIME_NS = 2 * 10**9
"""The resolution of times on FAT; no file system in use is coarser."""

_PROBE = "probe"


class Metadata:
    """Sets metadata, and notes by path what could not be set."""

    def __init__(self, owner: tuple[int, int]) -> None:
        """`owner`: of every entry that does not store one."""
        self._owner = owner
        self._stage_fd = -1
        self.notes: dict[str, str] = {}

    def use_stage(self, fd: int) -> None:
        """Take the folder in which a file may be made to learn what the disk keeps."""
        self._stage_fd = fd

    @cached_property
    def kept(self) -> tuple[bool, bool]:
        """Whether this disk keeps modes, and whether it keeps times to the nanosecond: tried with a file."""
        is_kept, mtime_ns = True, 10**18 + 123_456_789
        fd = disk().create(_PROBE, dir_fd=self._stage_fd)
        try:
            for mode in (0o600, 0o755):
                with contextlib.suppress(OSError):
                    disk().chmod(fd, mode)
                is_kept &= stat.S_IMODE(os.fstat(fd).st_mode) == mode
            with contextlib.suppress(OSError):
                disk().set_mtime(_PROBE, mtime_ns, dir_fd=self._stage_fd)
            return is_kept, os.fstat(fd).st_mtime_ns == mtime_ns
        finally:
            os.close(fd)
            disk().unlink(_PROBE, dir_fd=self._stage_fd)

    def set_mode(self, fd: int, path: str, mode: int) -> None:
        """Set the mode, or note that this disk keeps none."""
        try:
            disk().chmod(fd, mode)
        except OSError as error:
            if error.errno not in platform.NOT_KEPT or self.kept[0]:
                raise
            self.notes.setdefault(path, MODE_NOT_KEPT)

    def set_all(self, name: str, dir_fd: int, path: str, attr: Attr) -> None:
        """Set owner, extended attributes, mode and time, in this order, since each may change the ones before."""
        fd = platform.open_handle(name, dir_fd)
        try:
            self.set_owner(name, dir_fd, path, attr, fd)
            self._set_xattrs(fd, path, attr.xattrs)
            # After the owner: chown clears the set-user-id and set-group-id bits (P2)
            if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(attr.mode):
                self.set_mode(fd, path, stat.S_IMODE(attr.mode))
        finally:
            os.close(fd)
        disk().set_mtime(name, attr.mtime_ns, dir_fd=dir_fd)

    def set_owner(self, name: str, dir_fd: int, path: str, attr: Attr, fd: int | None = None) -> None:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        uid, gid = attr.owner or self._owner
        if (status.st_uid, status.st_gid) == (uid, gid):
            return
        try:
            if fd is None:
                disk().chown_link(name, uid, gid, dir_fd=dir_fd)
            else:
                disk().chown(fd, uid, gid)
        except OSError as error:
            if error.errno not in (errno.EACCES, *platform.NOT_KEPT):
                raise
            self.notes.setdefault(path, f"restored, but its owner {uid}:{gid} could not be set")

    def _set_xattrs(self, fd: int, path: str, wanted: dict[str, bytes]) -> None:
        try:
            present = {name for name in platform.list_xattrs(fd) if is_kept_xattr(name)}
        except OSError:
            present = set()
        try:
            for name in present - wanted.keys():
                disk().removexattr(fd, name)
            for name, value in wanted.items():
                if name not in present or platform.get_xattr(fd, name) != value:
                    disk().setxattr(fd, name, value)
        except OSError as error:
            if error.errno in ABORT:
                raise
            if error.errno == errno.EACCES and not os.fstat(fd).st_mode & 0o200:
                disk().chmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | 0o200)  # its mode is set after this
                self._set_xattrs(fd, path, wanted)
                return
            self.notes.setdefault(path, f"restored, but an extended attribute could not be set ({error.strerror})")


def make_writable(fd: int) -> None:
    """Make a folder writable; its own mode is set with all others at the end."""
    mode = os.fstat(fd).st_mode
    if mode & 0o300 != 0o300:
        disk().chmod(fd, stat.S_IMODE(mode) | 0o700)


def set_folder(handles: Handles, path: str, attr: Attr) -> None:
    """Reset the mode and the time of a folder."""
    fd = handles.open(path)
    if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(attr.mode):
        disk().chmod(fd, stat.S_IMODE(attr.mode))
    disk().set_mtime(".", attr.mtime_ns, dir_fd=fd)
