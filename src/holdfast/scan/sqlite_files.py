"""SQLite databases: which files belong to one, whether one is in use, and locks that must not be lost.

SQLite keeps a log or a journal next to a database, under its name and a suffix, and replays what it finds there. So
these sidecars are saved, restored and removed with their database, whatever rules say about their names (P2): next to
another version of the database they would damage it. The first bytes of a file show what it is.

The locks that SQLite takes (those of POSIX) belong to a process and a file. When a process closes *any* descriptor of
the file, it loses all its locks on it: another process then considers the database unused and removes the log, and what
the first one writes after that is lost (P1). So a descriptor of a database that this process has open elsewhere stays
open after a scan, is used for the next read, and is closed when nothing else in this process has the database open.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import threading
from collections.abc import Iterable, Iterator

from holdfast.durable.platform import DESCRIPTORS

MAGIC = b"SQLite format 3\0"
PARTS = ("-wal", "-journal", "-shm")
"""The suffixes of a database's sidecars."""

_SIDECAR_MAGICS = (  # first bytes of logs, journals and the indexes of logs, also those of an encrypted database
    b"\x37\x7f\x06\x82",
    b"\x37\x7f\x06\x83",
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",
    struct.pack("=I", 3_007_000),
)
_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_IS_DARWIN = sys.platform == "darwin"
_FLOCK = struct.Struct("qqihh" if _IS_DARWIN else "hhqqi")  # struct flock of macOS, and of 64-bit Linux
_LOCK_BYTES = (0x40000000, 512)  # where SQLite locks the database file
_SHM_LOCK_BYTES = (120, 9)  # where it locks the -shm file of a database with a write-ahead log
_MOST_DESCRIPTORS = 4096  # that are tried where no folder lists them

_kept: dict[tuple[int, int], list[int]] = {}  # by file; the first of each list is the one to read
_lent: list[int] = []  # descriptors that are being read
_guard = threading.RLock()


# which files are one database


def database_name(name: str) -> str | None:
    """The name (or path) of the database that a file belongs to if it is a sidecar; None for every other name."""
    return next((name[: -len(part)] for part in PARTS if name.endswith(part) and len(name) > len(part)), None)


def family(name: str) -> tuple[str, ...]:
    """The names (or paths) of all files of the database that a name would belong to, the database first."""
    main = database_name(name) or name
    return (main, *(main + part for part in PARTS))


def belongs(database: bytes, sidecar: bytes) -> bool:
    """Whether a file with the name of a sidecar is one, by the first bytes of the two files."""
    return database.startswith(MAGIC) or sidecar.startswith(_SIDECAR_MAGICS)


def is_sidecar(name: str, dir_fd: int) -> bool:
    """Whether the open folder has a file of this name that is the sidecar of a database in it."""
    main = database_name(name)
    return (
        main is not None
        and (header := _header(main, dir_fd)) is not None
        and (sidecar := _header(name, dir_fd)) is not None
        and belongs(header, sidecar)
    )


def _header(name: str, dir_fd: int) -> bytes | None:
    """The first bytes of a file (empty if it cannot be read); None if it is not a regular file."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            return None
    except OSError:
        return None
    try:
        with reading(name, _READ_ONLY, dir_fd) as fd:
            return os.pread(fd, len(MAGIC), 0)
    except OSError:
        return b""


# who uses one


class Writers:
    """The files that other processes have open for writing, by name; listed once, on first use.

    An idle connection has no lock, unless the database has a write-ahead log; but it has an open descriptor.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, list[str]] | None = None

    def have(self, name: str, dir_fd: int) -> bool:
        """Whether another process can write to a file of the open folder."""
        from holdfast.durable.platform import processes  # start-up cost: only where there are databases

        if self._by_name is None:
            self._by_name = processes.open_files()
        try:
            wanted = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        except OSError:
            return False
        return any(processes.can_write(path, wanted) for path in self._by_name.get(name, ()))


def is_in_use(name: str, dir_fd: int, writers: Writers) -> bool:
    """Whether a file is a database, or part of one, that this process has open, or another has locked or can write."""
    name = database_name(name) or name
    if _is_locked(name, dir_fd, _LOCK_BYTES, magic=MAGIC) or _is_locked(f"{name}-shm", dir_fd, _SHM_LOCK_BYTES):
        return True
    return (_header(name, dir_fd) or b"").startswith(MAGIC) and writers.have(name, dir_fd)


def _is_locked(name: str, dir_fd: int, where: tuple[int, int], *, magic: bytes = b"") -> bool:
    try:
        with reading(name, _READ_ONLY, dir_fd) as fd:
            if magic and os.pread(fd, len(magic), 0) != magic:
                return False
            kind = (fcntl.F_WRLCK, os.SEEK_SET)
            asked = _FLOCK.pack(*((*where, 0, *kind) if _IS_DARWIN else (*kind, *where, 0)))
            # F_GETLK shows locks of other processes only; those of this one are found by its descriptors
            told = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked)[: _FLOCK.size])
            return bool(told[3 if _IS_DARWIN else 0] != fcntl.F_UNLCK) or _is_open_elsewhere(_identity(os.fstat(fd)))
    except OSError:
        return False


@contextlib.contextmanager
def reading(name: str, flags: int, dir_fd: int) -> Iterator[int]:
    """Open a file that may be a database, without this process losing its locks on it. Read it with `pread`."""
    fd = open_file(name, flags, dir_fd)
    try:
        yield fd
    finally:
        close_file(fd, is_database=_may_be_database(name, fd))


def _may_be_database(name: str, fd: int) -> bool:
    """Whether closing a file could lose locks of a database: an empty one may be new.

    A restore asks this of every file that it removes, so only for databases are all descriptors looked at."""
    if name.endswith(PARTS):
        return True
    try:
        header = os.pread(fd, len(MAGIC), 0)
    except OSError:
        return True
    return not header or header == MAGIC


def open_file(name: str, flags: int, dir_fd: int) -> int:
    """A descriptor of a file, for `close_file`. Read it with `pread`: other threads may share it."""
    with _guard:
        # P1: another descriptor of the same file would have to be closed some day, and POSIX drops all locks then
        fds = _kept.get(_identity(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))) if _kept else None
        fd = fds[0] if fds else os.open(name, flags, dir_fd=dir_fd)
        _lent.append(fd)
        return fd


def close_file(fd: int, *, is_database: bool = True) -> None:
    """Close a descriptor, or keep it open if closing it would lose locks. What is no database is closed at once."""
    with _guard:
        _lent.remove(fd)
        identity = _identity(os.fstat(fd)) if is_database or _kept else None
        if identity is None or not (is_database or identity in _kept):
            os.close(fd)
            return
        if fd not in _kept.setdefault(identity, []):
            _kept[identity].append(fd)
        close_what_is_free()


def has_kept() -> bool:
    """Whether descriptors of databases stay open: files are then to be opened with `open_file`."""
    return bool(_kept)


def close_unread(fd: int) -> None:
    """Close a descriptor of a file that may be a database and was not opened with `open_file`."""
    with _guard:
        _lent.append(fd)
        close_file(fd)


def close_what_is_free() -> None:
    """Close kept descriptors of databases that nothing else in this process has open any more."""
    with _guard:
        for identity, fds in list(_kept.items()):
            if not set(fds) & set(_lent) and not _is_open_elsewhere(identity):
                for fd in _kept.pop(identity):
                    os.close(fd)


def _is_open_elsewhere(identity: tuple[int, int]) -> bool:
    """Whether this process has a file open by descriptors that are not from here."""
    ours = {*_lent, *_kept.get(identity, ())}
    for number in _own_descriptors():
        with contextlib.suppress(OSError):  # closed meanwhile
            if number not in ours and _identity(os.fstat(number)) == identity:
                return True
    return False


def _own_descriptors() -> Iterable[int]:
    for folder in DESCRIPTORS:
        with contextlib.suppress(OSError):
            return [int(name) for name in os.listdir(folder) if name.isdigit()]
    return range(_MOST_DESCRIPTORS)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
