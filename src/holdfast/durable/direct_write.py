"""Writing a new file from front to back, bypassing the page cache where the file system allows it."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from holdfast.durable.disk import disk
from holdfast.durable.platform import memory

BLOCK_BYTES = 4096
BUFFER_BYTES = 2 << 20
DIRECT_FROM_BYTES = 1 << 20

_local = threading.local()


class Stream:
    """Writes through one aligned buffer for each thread, so its memory use does not depend on the size of the file.

    `tap` gets every byte as it goes to the disk, so that what it hashes is what was written, even if the source changes
    meanwhile. A large file (by its expected `size`) bypasses the page cache: that is faster for data that is not read
    again soon, and does not evict data that is. Nothing is durable before `finish` has returned.
    """

    def __init__(self, path: Path, size: int, *, tap: Callable[[memoryview], object]) -> None:
        self._tap = tap
        self._buffer = _buffer()
        self._filled = 0
        self._offset = 0
        self._fd = disk().create(str(path), mode=0o444)
        self._is_direct = size >= DIRECT_FROM_BYTES and memory.go_direct(self._fd, on=True)

    def write(self, data: bytes | memoryview) -> None:
        """Append some bytes."""
        view = memoryview(data)
        while view:
            taken = min(len(view), BUFFER_BYTES - self._filled)
            self._buffer[self._filled : self._filled + taken] = view[:taken]
            self._filled += taken
            view = view[taken:]
            if self._filled == BUFFER_BYTES:
                self._flush()

    def finish(self) -> None:
        """Write the rest and make the file durable."""
        self._flush()
        disk().fsync(self._fd)

    def close(self) -> None:
        """Close the file, finished or not."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _flush(self) -> None:
        size = self._filled
        if not size:
            return
        self._tap(self._buffer[:size])
        whole = -(-size // BLOCK_BYTES) * BLOCK_BYTES if self._is_direct else size
        self._buffer[size:whole] = bytes(whole - size)
        self._put(self._buffer[:whole])
        self._offset += size
        self._filled = 0
        if whole != size:  # only the last piece is not whole: the file ends where its content does
            disk().truncate(self._fd, self._offset)

    def _put(self, data: memoryview) -> None:
        try:
            disk().pwrite(self._fd, data, self._offset)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
            self._is_direct = False  # some file systems take the flag and then want another alignment
            memory.go_direct(self._fd, on=False)
            disk().pwrite(self._fd, data, self._offset)


def _buffer() -> memoryview:
    """The buffer of this thread: anonymous memory begins on a page, as direct writes want it."""
    with contextlib.suppress(AttributeError):
        found: memoryview = _local.view
        return found
    _local.view = memoryview(mmap.mmap(-1, BUFFER_BYTES))
    made: memoryview = _local.view
    return made
