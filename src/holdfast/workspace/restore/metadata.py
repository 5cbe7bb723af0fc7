"""Setting metadata of files and folders: owner, extended attributes, mode, time."""

from __future__ import annotations

import errno
import os
import stat

from holdfast.durable import disk, platform
from holdfast.scan.attrs import Attr, is_kept_xattr
from holdfast.scan.dir_handles import SHORTAGES, Handles

ABORT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, *SHORTAGES)
"""Errors of the disk or the process rather than of one path; they end the restore."""


class Metadata:
    """Sets metadata, and notes by path what could not be set."""

    def __init__(self, owner: tuple[int, int]) -> None:
        """`owner`: of every entry that does not store one."""
        self._owner = owner
        self.notes: dict[str, str] = {}

    def set_all(self, name: str, dir_fd: int, path: str, attr: Attr) -> None:
        """Set owner, extended attributes, mode and time, in this order, since each may change the ones before."""
        fd = platform.open_handle(name, dir_fd)
        try:
            self.set_owner(name, dir_fd, path, attr, fd)
            self._set_xattrs(fd, path, attr.xattrs)
            # After the owner: chown clears the set-user-id and set-group-id bits (P2)
            if stat.S_IMODE(os.fstat(fd).st_mode) != stat.S_IMODE(attr.mode):
                disk().chmod(fd, stat.S_IMODE(attr.mode))
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
        except PermissionError:
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
