"""Which journal an SQLite database can afford where it lies."""

from __future__ import annotations

import contextlib
import os

ALONE, NOT_ALONE = "PRAGMA locking_mode=EXCLUSIVE", "PRAGMA locking_mode=NORMAL"
"""Alone with a database, SQLite does not map the index of its log. The second takes effect at the next statement."""

_INDEX_PAGE_BYTES = 4096
"""SQLite makes room for the index of a write-ahead log in steps of this, by one byte at the end of each."""


def journal_mode(path: str | os.PathLike[str]) -> str:
    """`WAL`, in which readers and writers do not wait for each other; `DELETE` where that could end the process.

    The index of a write-ahead log (`-shm`) is mapped into memory. On a file system with blocks below 4 KiB most of it
    is a hole; if the disk is full when SQLite writes there, the kernel ends the process by a signal (SIGBUS), where a
    write would have been refused.
    """
    folder = os.path.dirname(os.path.realpath(path))
    with contextlib.suppress(OSError):
        if os.statvfs(folder).f_bsize < _INDEX_PAGE_BYTES:
            return "DELETE"
    return "WAL"
