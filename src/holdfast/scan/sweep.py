"""Finds the folders of a scan cache that are certainly unchanged, with the native module.

Without it (no compiler when Holdfast was built, or `HOLDFAST_NATIVE=0`) no folder is found here, and the walk looks at
each one itself: the same result, slower.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.native import native as loaded
from holdfast.scan.cache import records_at
from holdfast.scan.scan_start import ScanStart

native = loaded if sys.getfilesystemencoding() == "utf-8" else None  # names in the cache are UTF-8
"""The native module, or None."""


def describe() -> str:
    """Say which implementation compares folders, and why if it is the slower one."""
    if native is not None:
        return "native"
    if os.environ.get("HOLDFAST_NATIVE") == "0":
        return "pure Python, because HOLDFAST_NATIVE is 0"
    return "pure Python, because the native module was not built or cannot be loaded"


UNCHANGED, PLAIN, PLAIN_BELOW = 1, 2, 4
"""The bits of a verdict on a folder: it and its known files are as in the cache; nothing else in it has to be looked
at, if the rules of the folder above it apply; so it is with all folders below it."""


class Sweep:
    """One comparison of a scan cache with the disk. It runs in threads of its own from the moment it is made."""

    def __init__(self, data: bytes, start: int, root: str) -> None:
        """data: the bytes of the cache; start: where its records begin; root: the workspace."""
        self._found: tuple[bytes, bytes] | None = None
        self._thread: threading.Thread | None = None
        if native is not None:
            # a daemon: a sweep of a slow network disk must not delay the end of an interrupted program
            thread = threading.Thread(target=self._run, args=(data, start, root), daemon=True)
            with suppress(RuntimeError):  # the system starts no more threads: the walk looks at everything
                thread.start()
                self._thread = thread

    def result(self) -> tuple[bytes, bytes] | None:
        """Wait for the end, and return a verdict for each folder and where it is (as `_native.sweep` does); None
        without the native module, or if it found the cache damaged."""
        if self._thread is not None:
            self._thread.join()
        return self._found

    def _run(self, data: bytes, start: int, root: str) -> None:
        assert native is not None
        with suppress(OSError, ValueError, MemoryError):  # nothing is known to be unchanged, and the walk finds out
            fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._found = native.sweep(data, start, fd, os.cpu_count() or 1)
            finally:
                os.close(fd)


class EarlySweep:
    """A sweep that a writing call begins as soon as it has the lock, and that goes on while the rest is loaded.

    Only the thread that began it may take it, and only until the call ends: to any other it would be too old (P2).
    """

    def __init__(self, cache_path: Path, root: Path, clock: Callable[[], int]) -> None:
        """`clock`: nanoseconds, of the clock that stamps files."""
        self._cache_path, self._root, self._clock = cache_path, root, clock
        self._begun: tuple[int, BegunSweep] | None = None

    def begin(self) -> None:
        """Read the scan cache, and begin to compare it with the disk."""
        self.drop()
        if native is None:
            return
        since = ScanStart.now(self._clock)
        with suppress(OSError):  # a cache that cannot be read is for the scan to deal with
            data = self._cache_path.read_bytes()
            if (start := records_at(data)) is not None:
                sweep = Sweep(data, start, os.fspath(self._root))
                self._begun = threading.get_ident(), BegunSweep(data, since, sweep)

    def take(self) -> BegunSweep | None:
        """Return the sweep that this thread began, once."""
        begun = self._begun
        if begun is None or begun[0] != threading.get_ident():
            return None
        self._begun = None
        return begun[1]

    def drop(self) -> None:
        """Forget it: the folder may have changed since."""
        self._begun = None


class BegunSweep(NamedTuple):
    """A sweep, the cache that it compares, and when it began."""

    data: bytes
    since: ScanStart
    sweep: Sweep
