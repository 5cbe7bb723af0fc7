"""SQLite databases that another process is using: their files must not be replaced under it."""

from __future__ import annotations

import fcntl
import os
import struct

_MAGIC = b"SQLite format 3\0"
_FLOCK = struct.Struct("hhqqi")  # struct flock of 64-bit Linux
_LOCK_BYTES = (0x40000000, 512)  # where SQLite locks the database file
_SHM_LOCK_BYTES = (120, 9)  # where it locks the -shm file of a database with a write-ahead log
_PARTS = ("-wal", "-shm", "-journal")


def is_in_use(name: str, dir_fd: int) -> bool:
    """Whether a file is a database, or part of one, that another process has locked or has open with a log."""
    for part in _PARTS:
        name = name.removesuffix(part)
    return _is_locked(name, dir_fd, _LOCK_BYTES, magic=_MAGIC) or _is_locked(f"{name}-shm", dir_fd, _SHM_LOCK_BYTES)


def _is_locked(name: str, dir_fd: int, where: tuple[int, int], *, magic: bytes = b"") -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError:
        return False
    try:
        if magic and os.pread(fd, len(magic), 0) != magic:
            return False
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, *where, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked)[: _FLOCK.size])
        return bool(kind != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(fd)
