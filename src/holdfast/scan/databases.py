"""SQLite databases that somebody is using: files that must not be replaced, and locks that must not be lost.

The locks that SQLite takes (those of POSIX) belong to a process and a file. When a process closes *any* descriptor of
the file, all its locks on it are gone, and with them the proof that the database is in use: another process that looks
then removes the log, and what the first one writes after that is nowhere. So a descriptor of a database that this
process has open elsewhere is kept when we have read it, used when it is read again, and closed when nobody else here
has the database open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator

MAGIC = b"SQLite format 3\0"
PARTS = ("-wal", "-journal", "-shm")
"""What is added to a database's name for that of the files which belong to it."""

_FLOCK = struct.Struct("hhqqi")  # struct flock of 64-bit Linux
_LOCK_BYTES = (0x40000000, 512)  # where SQLite locks the database file
_SHM_LOCK_BYTES = (120, 9)  # where it locks the -shm file of a database with a write-ahead log
_DESCRIPTORS = "/proc/self/fd"

_kept: dict[tuple[int, int], list[int]] = {}  # by file; the first of each list is the one to read
_lent: list[int] = []  # what is being read
_guard = threading.RLock()


def is_in_use(name: str, dir_fd: int) -> bool:
    """Whether a file is a database, or part of one, that this process has open, or another has locked."""
    for part in PARTS:
        name = name.removesuffix(part)
    return _is_locked(name, dir_fd, _LOCK_BYTES, magic=MAGIC) or _is_locked(f"{name}-shm", dir_fd, _SHM_LOCK_BYTES)


def _is_locked(name: str, dir_fd: int, where: tuple[int, int], *, magic: bytes = b"") -> bool:
    try:
        with reading(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd) as fd:
            if magic and os.pread(fd, len(magic), 0) != magic:
                return False
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *where, 0)
            kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked)[: _FLOCK.size])
            return bool(kind != fcntl.F_UNLCK) or _is_open_elsewhere(_identity(os.fstat(fd)))
    except OSError:
        return False


@contextlib.contextmanager
def reading(name: str, flags: int, dir_fd: int) -> Iterator[int]:
    """Open a file that may be a database to be read with `pread`, and do not let this process lose its locks on it."""
    fd = open_file(name, flags, dir_fd)
    try:
        yield fd
    finally:
        close_file(fd)


def open_file(name: str, flags: int, dir_fd: int) -> int:
    """A descriptor of a file, to be given to `close_file`, and read with `pread`: others may read it, too."""
    with _guard:
        fds = _kept.get(_identity(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))) if _kept else None
        fd = fds[0] if fds else os.open(name, flags, dir_fd=dir_fd)
        _lent.append(fd)
        return fd


def close_file(fd: int, *, is_database: bool = True) -> None:
    """Close a descriptor, or keep it; a file that is known to be no database is closed without a look."""
    with _guard:
        _lent.remove(fd)
        identity = _identity(os.fstat(fd)) if is_database or _kept else None
        if identity is None or not (is_database or identity in _kept):
            os.close(fd)
            return
        if fd not in _kept.setdefault(identity, []):
            _kept[identity].append(fd)
        close_what_is_free()


def close_what_is_free() -> None:
    """Close what was kept of databases that nobody else in this process has open any more."""
    with _guard:
        for identity, fds in list(_kept.items()):
            if not set(fds) & set(_lent) and not _is_open_elsewhere(identity):
                for fd in _kept.pop(identity):
                    os.close(fd)


def _is_open_elsewhere(identity: tuple[int, int]) -> bool:
    """Whether this process has a file open by other descriptors than ours."""
    ours = {*_lent, *_kept.get(identity, ())}
    for number in map(int, os.listdir(_DESCRIPTORS)):
        with contextlib.suppress(OSError):  # closed meanwhile
            if number not in ours and _identity(os.fstat(number)) == identity:
                return True
    return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
