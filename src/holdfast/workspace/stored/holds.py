"""Holds: a checkpoint that somebody is about to go back to is not pruned meanwhile, by any process.

A hold is a file that is locked as long as its owner lives, whatever it dies of; one that nobody has locked is swept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast import durable


class Holds:
    """The holds of one store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def hold(self, checkpoint_id: str) -> Iterator[None]:
        """Hold a checkpoint. Where the disk refuses the file, go on without: it is pruned only if others save much
        meanwhile. Needs the store's lock to begin: a sweep must not take the file before it is locked."""
        lock = durable.Lock(path := self._folder / f"{checkpoint_id}.{os.urandom(4).hex()}")
        with suppress(OSError):
            durable.make_folder(self._folder)
            lock.acquire()  # whoever only asks has it for a moment
        try:
            yield
        finally:
            with suppress(OSError):
                durable.disk().unlink(str(path))
            lock.release()

    def held(self) -> set[str]:
        """The ids that somebody holds."""
        return {path.name.partition(".")[0] for path in self._files() if not _is_free(path)}

    def sweep(self) -> None:
        """Remove what dead owners left."""
        for path in self._files():
            if _is_free(path):
                durable.disk().unlink(str(path))

    def _files(self) -> list[Path]:
        try:
            return list(self._folder.iterdir())
        except FileNotFoundError:
            return []


def _is_free(path: Path) -> bool:
    lock = durable.Lock(path)
    if not path.exists() or not lock.acquire(wait=False):
        return False
    lock.release()
    return True
