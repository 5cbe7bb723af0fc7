"""The part of Linux inotify that `watch` needs: watch folders, and read events without waiting.

Three calls of the C library and one structure; the code to use a package would be as long. A forked child shares the
queue, and would take events from its parent by reading: so it closes its copy.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import weakref
from collections.abc import Iterator
from typing import NamedTuple

if sys.platform == "win32":
    raise ImportError("Windows has no inotify, nor folders that can be watched")

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_FOLDER = 0x2000, 0x4000, 0x8000, 0x40000000
NAMES = MOVED_FROM | MOVED_TO | CREATE | DELETE
"""A name in the folder was added, removed or replaced."""

_ONLY_FOLDERS = 0x01000000
_MASK = MODIFY | ATTRIB | CLOSE_WRITE | NAMES | DELETE_SELF | MOVE_SELF | _ONLY_FOLDERS
_HEADER = struct.Struct("iIII")
_READ_BYTES = 1 << 16

_LOCAL_FILE_SYSTEMS = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0xF2F52010: "f2fs",
    0x2FC12FC1: "zfs",
    0xCA451A4E: "bcachefs",
    0x01021994: "tmpfs",
    0x794C7630: "overlay",
}
"""Here every change is made by this kernel. On a network, other machines change files without an event."""

_open: weakref.WeakSet[Inotify] = weakref.WeakSet()


class InotifyEvent(NamedTuple):
    """Something happened to a watched folder (no name) or to an entry of it."""

    watch: int
    mask: int
    name: str


class Inotify:
    """A set of watched folders, and the queue of what happened to them."""

    def __init__(self) -> None:
        """OSError if the system has no inotify, or its limit is reached."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._add, self._remove = self._libc.inotify_add_watch, self._libc.inotify_rm_watch
            fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError:
            raise OSError("this system has no inotify") from None
        if fd < 0:
            raise _error()
        self._fd = fd
        self._process = os.getpid()
        self._end = weakref.finalize(self, os.close, fd)
        _open.add(self)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0 and self._process == os.getpid()  # also after a fork by C code, which calls no Python hook

    def add(self, folder: int) -> int:
        """Watch the folder open at a descriptor; return its number. A path could lead to another one."""
        watch = int(self._add(self._fd, b"/proc/self/fd/%d" % folder, _MASK))
        if watch < 0:
            raise _error()
        return watch

    def remove(self, watch: int) -> None:
        """Stop watching a folder; no error if it is gone."""
        self._remove(self._fd, watch)

    def read(self) -> Iterator[InotifyEvent]:
        """All events since the last call, without waiting for more."""
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, size = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                yield InotifyEvent(watch, mask, os.fsdecode(data[at : at + size].rstrip(b"\0")))
                at += size

    def wait(self, timeout_s: float) -> bool:
        """Wait for an event; return whether there is one. False at once if another thread closed this."""
        poll, fd = select.poll(), self._fd
        if fd < 0:
            return False
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_s) * 1000))

    def close(self) -> None:
        self._fd = -1
        self._end()


def untold_file_system(folder: int) -> str:
    """Why the kernel may not report every change in the folder open at a descriptor; empty if it does."""
    found = ctypes.create_string_buffer(512)
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fstatfs") or libc.fstatfs(folder, found):
        return "the type of its file system is unknown"
    kind = ctypes.c_ulong.from_buffer(found).value & 0xFFFFFFFF  # `f_type` comes first, as a signed long
    return "" if kind in _LOCAL_FILE_SYSTEMS else f"its file system (0x{kind:x}) may change without events"


def _error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def _close_in_child() -> None:
    for each in list(_open):
        each.close()


if hasattr(os, "register_at_fork"):  # a child shares the queue: what it reads, its parent would never see (P4)
    os.register_at_fork(after_in_child=_close_in_child)
