"""Reading the files that a walk found, although they may change at the same time (P2).

A file is `fstat`ed before and after it is read. One that keeps changing is reported (P4) instead of being saved half
old, half new. The recorded identity is that of the file that was opened, whatever the name led to before.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from holdfast.durable import platform
from holdfast.errors import Conflict
from holdfast.model import Reason
from holdfast.scan import sqlite_files
from holdfast.scan.attrs import PARTS, extras_of
from holdfast.scan.cache import CTIME, FAILED, FLAGS, INO, MODE, NO_CONTENT, SIZE, WIDTH, YOUNG, Folder, Rows
from holdfast.scan.dir_handles import SHORTAGES

LARGE_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_TRIES = 4
_PAUSE_S = 0.02
TICK_NS = 20_000_000
"""Longer than a tick of the clock that stamps files."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a name may be a pipe by now
_ZEROS = bytes(_PIECE_BYTES)


class Consumer(Protocol):
    """Stores content and returns its name."""

    def whole(self, data: bytes) -> bytes:
        """Store a small file and return the name of its content. May be called from several threads."""

    def pieces(self, size: int, pieces: Iterator[bytes]) -> bytes:
        """Store a large file. Conflict if it does not have `size` bytes after all."""


class Outcome(NamedTuple):
    """The result of reading an entry: the name of its content, or why there is none."""

    content: bytes = b""
    reason: Reason | None = None
    detail: str = ""
    steady: bool = True  # False: it changed while it was read, and was read again
    is_database: bool = False
    vanished: bool = False


def read_entry(
    folder: Folder,
    place: int,
    fd: int,
    owner: tuple[int, int],
    consumer: Consumer,
    *,
    clock: Callable[[], int] = time.time_ns,
) -> Outcome:
    """Read one entry of the folder open at `fd`, and record the status of what was read in the folder's row.

    `clock`: as `Walk` has it.
    """
    name, mode = folder.names[place], folder.rows[WIDTH * place + MODE]
    try:
        if stat.S_ISREG(mode):
            return _read_file(folder, place, fd, name, owner, consumer, clock)
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(mode):
            return Outcome(reason=Reason.CHANGED, detail="became something else while it was read", steady=False)
        _record(folder, place, status)
        _set_extras(folder, place, extras_of(None, status, owner))
        if stat.S_ISLNK(mode):
            return Outcome(consumer.whole(os.fsencode(os.readlink(name, dir_fd=fd))))
        return Outcome(NO_CONTENT)
    except (FileNotFoundError, NotADirectoryError):
        return Outcome(vanished=True, steady=False)  # removed since the walk: absent, not a failure
    except OSError as error:
        if error.errno in SHORTAGES:
            raise  # P4: says nothing about this entry, so the whole scan fails instead
        return Outcome(reason=Reason.UNREADABLE, detail=error.strerror or str(error))


def mark_failed(folder: Folder, place: int, outcome: Outcome) -> None:
    """Record that an entry is not saved, and why (P4); the next scan tries again."""
    folder.rows[WIDTH * place + FLAGS] |= FAILED
    folder.skipped[folder.names[place]] = (outcome.reason or Reason.UNREADABLE, outcome.detail)


def _read_file(
    folder: Folder,
    place: int,
    fd: int,
    name: str,
    owner: tuple[int, int],
    consumer: Consumer,
    clock: Callable[[], int],
) -> Outcome:
    file, is_database = _open(name, fd), True  # until its first bytes are read: P1, closing one could lose its locks
    try:
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * attempt)  # the program that is writing it may finish
            # P2: what is read is compared with a status from before. For a small file that of the walk will do: it is
            # read at once. A large one takes long enough to get its own.
            if attempt or folder.rows[WIDTH * place + SIZE] > LARGE_BYTES:
                before = os.fstat(file)
                if not stat.S_ISREG(before.st_mode):
                    break
                _record(folder, place, before)
            if folder.rows[WIDTH * place + SIZE] > LARGE_BYTES:
                result = _read_large(file, folder.rows, WIDTH * place, consumer)
            else:
                result = _read_small(file, folder.rows, WIDTH * place, consumer, clock)
            after = os.fstat(file)
            if result is not None and folder.has_status(place, after):  # nothing changed while it was read
                content, is_database = result
                _set_extras(folder, place, _extras(file, after, owner))
                return Outcome(content, steady=not attempt, is_database=is_database)
        return Outcome(reason=Reason.CHANGED, detail="changed again and again while it was read", steady=False)
    finally:
        sqlite_files.close_file(file, is_database=is_database or name.endswith(sqlite_files.PARTS))


def _extras(file: int, status: os.stat_result, owner: tuple[int, int]) -> bytes:
    extras = extras_of(file, status, owner)
    if status.st_size > LARGE_BYTES:
        extras += (b"," if extras else b"") + PARTS + b"%d" % status.st_size
    return extras


def _read_small(
    file: int, rows: Rows, at: int, consumer: Consumer, clock: Callable[[], int]
) -> tuple[bytes, bool] | None:
    size = rows[at + SIZE]
    data = os.pread(file, size + 1, 0)  # one byte more, so that a file that grew is noticed
    if len(data) != size:
        return None
    if rows[at + CTIME] > clock() - TICK_NS and os.pread(file, size + 1, 0) != data:
        return None  # P2: changed within one tick of the clock, which its times cannot show
    return consumer.whole(data), data.startswith(sqlite_files.MAGIC)


def _read_large(file: int, rows: Rows, at: int, consumer: Consumer) -> tuple[bytes, bool] | None:
    try:
        content = consumer.pieces(rows[at + SIZE], _pieces(file, rows[at + SIZE]))
    except Conflict:
        return None
    return content, os.pread(file, len(sqlite_files.MAGIC), 0) == sqlite_files.MAGIC


def _pieces(file: int, size: int) -> Iterator[bytes]:
    """The content of a file in pieces; holes of a sparse file are not read."""
    at = 0
    while at < size:
        try:
            data_at = os.lseek(file, at, os.SEEK_DATA)
            hole_at = os.lseek(file, data_at, os.SEEK_HOLE)
        except OSError:  # ENXIO: a hole up to the end; EINVAL: a file system without SEEK_DATA, read as it is
            data_at, hole_at = (size, size) if _is_hole(file, at) else (at, size)
        yield from _zeros(min(data_at, size) - at)
        at = data_at
        while at < min(hole_at, size):
            piece = os.pread(file, min(_PIECE_BYTES, hole_at - at), at)
            if not piece:
                return  # truncated meanwhile: the consumer finds the size wrong
            at += len(piece)
            yield piece


def _is_hole(file: int, at: int) -> bool:
    """Whether there is only a hole from here to the end; False also if the file system does not support SEEK_DATA."""
    try:
        os.lseek(file, at, os.SEEK_DATA)
    except OSError as error:
        return error.errno == errno.ENXIO
    return False


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _ZEROS[: min(count, _PIECE_BYTES)]
        count -= _PIECE_BYTES


def _open(name: str, fd: int) -> int:
    try:
        return sqlite_files.open_file(name, _FLAGS | platform.O_NOATIME, fd)
    except PermissionError:
        return sqlite_files.open_file(name, _FLAGS, fd)  # Linux: only the owner may open with O_NOATIME


def _record(folder: Folder, place: int, status: os.stat_result) -> None:
    at, rows = WIDTH * place, folder.rows
    is_same = rows[at + CTIME] == status.st_ctime_ns and rows[at + INO] == status.st_ino
    flags = rows[at + FLAGS] | (0 if is_same else YOUNG)  # not what the walk saw: read it again in the next scan
    folder.set_status(place, status, flags)


def _set_extras(folder: Folder, place: int, extras: bytes) -> None:
    name = folder.names[place]
    if extras:
        folder.extras[name] = extras
    else:
        folder.extras.pop(name, None)
