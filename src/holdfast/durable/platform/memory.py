"""The page cache and memory maps, as far as Linux lets a program say what it needs of them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
from functools import cache
from typing import Any

_POPULATE_READ = 22
"""`MADV_POPULATE_READ` of Linux 5.14 and later, which the `mmap` module lacks."""


def go_direct(fd: int, *, on: bool) -> bool:
    """Send what is written to a file past the page cache, or no longer; False where that cannot be."""
    flag = getattr(os, "O_DIRECT", 0)
    if sys.platform == "win32" or not flag:
        return False
    import fcntl  # Windows has none

    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | flag if on else flags & ~flag)
    except OSError:
        return False
    return bool(flag)


def drop_from_cache(fd: int) -> None:
    """Have the next read of a file come from the disk."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def use_large_pages(mapped: mmap.mmap) -> None:
    """Map pages of 2 MiB: a cold file is read in two thirds of the time, a warm one is mapped in a tenth."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # not all file systems can
            mapped.madvise(mmap.MADV_HUGEPAGE)


def fault_in(data: memoryview) -> None:
    """Make the kernel read mapped pages. OSError if it cannot.

    Touching a page that the disk cannot read, or that was truncated, kills the process with SIGBUS; this call reports
    it instead. Does nothing on systems without MADV_POPULATE_READ.
    """
    madvise = _madvise()
    if madvise is None or not len(data) or data.readonly:
        return
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    start = address - address % mmap.PAGESIZE
    if madvise(start, address + len(data) - start, _POPULATE_READ):
        code = ctypes.get_errno()
        if code in (errno.EFAULT, errno.EIO):
            raise OSError(errno.EIO, "the disk could not read all of it")


@cache
def _madvise() -> Any:
    """libc's madvise, which releases the interpreter lock; that of the `mmap` module does not. None elsewhere."""
    if sys.platform != "linux":
        return None  # 22 may be another advice
    try:
        found = ctypes.CDLL(None, use_errno=True).madvise
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    return found
