"""Files as memory: mapped in large pages, and looked at without the risk that the system ends the process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
from functools import cache

_POPULATE_READ = 22
"""`MADV_POPULATE_READ` of Linux 5.14 and later, which the `mmap` module has no name for."""


def map_file(fd: int, size: int) -> memoryview | None:
    """Map a file so that what is changed in memory does not change the file; None where it cannot be mapped.

    Reading a gigabyte into fresh memory costs the system a second of work for the pages alone; mapping costs nothing.
    """
    try:
        mapped = mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    except OSError:
        return None
    with contextlib.suppress(AttributeError, OSError):  # only Linux knows it, and not all of its file systems
        # Pages of 2 MiB: reading a cold file takes two thirds of the time, mapping and unmapping a warm one a tenth
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(mapped)


def fault_in(data: memoryview) -> None:
    """Have the system read what is mapped; OSError if it cannot.

    Whoever looks at a page that the medium does not give, or that was cut off, is ended by a signal; whoever asks for
    it like this is told. Where the system does not know the question, nothing is asked.
    """
    madvise = _madvise()
    if madvise is None or not len(data) or data.readonly:
        return
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    start = address - address % mmap.PAGESIZE
    if madvise(start, address + len(data) - start, _POPULATE_READ):
        code = ctypes.get_errno()
        if code in (errno.EFAULT, errno.EIO):
            raise OSError(errno.EIO, "the medium does not give all of it")


@cache
def _madvise() -> ctypes._NamedFuncPointer | None:
    """The call itself, which lets other threads work meanwhile; that of the `mmap` module does not."""
    try:
        found = ctypes.CDLL(None, use_errno=True).madvise
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    found.restype = ctypes.c_int
    return found
