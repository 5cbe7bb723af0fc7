"""Folders below a root, opened one component at a time and never through a link.

Paths longer than the system's limit and trees a thousand folders deep are ordinary: only a bounded number of folders
is open at a time, and one that was closed is reached again from its nearest open ancestor. A link is never followed,
because another program could put one in place of a folder at any moment.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of the process or the system that say nothing about the path: never a reason to leave it out (P4)."""

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # P1, P7: a link must not lead elsewhere
_MOST_OPEN = 128  # well below the usual limit of 1,024 descriptors for a process


class Handles:
    """Descriptors of folders by path (`""` is the root). One stays valid until 128 others have been opened."""

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # its own path may contain links
        self._open: dict[str, int] = {}

    def __enter__(self) -> Handles:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, path: str) -> int:
        """The descriptor of a folder. OSError if it, or a folder above it, is not one (a link is not one)."""
        if not path:
            return self._root
        fd = self._open.pop(path, None)
        if fd is not None:
            self._open[path] = fd  # most recently used last
            return fd
        parent, _, name = path.rpartition("/")
        fd = self._open.get(parent) if parent else self._root
        if fd is not None:
            return self._add(path, name, fd)
        return self._descend(path)

    def has(self, path: str) -> bool:
        """Whether there is anything at a path, reached through no link."""
        folder, name = split(path)
        try:
            os.stat(name or ".", dir_fd=self.open(folder), follow_symlinks=False)
        except OSError:
            return False
        return True

    def forget(self, path: str) -> None:
        """Close a folder and all below it (`""`: all), because it will be removed or may have moved."""
        below = f"{path}/" if path else ""
        for known in [known for known in self._open if known == path or known.startswith(below)]:
            os.close(self._open.pop(known))

    def close(self) -> None:
        """Close everything."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _descend(self, path: str) -> int:
        parts = path.split("/")
        fd, known = self._root, 0
        for count in range(len(parts) - 1, 0, -1):
            found = self._open.get("/".join(parts[:count]))
            if found is not None:
                fd, known = found, count
                break
        for count in range(known, len(parts)):
            fd = self._add("/".join(parts[: count + 1]), parts[count], fd)
        return fd

    def _add(self, path: str, name: str, parent: int) -> int:
        fd = os.open(name, _FLAGS, dir_fd=parent)  # P1: one step at a time, so that no link leads out of the folder
        if len(self._open) >= _MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))  # the least recently used
        self._open[path] = fd
        return fd


def split(path: str) -> tuple[str, str]:
    """The folder of a path, and its name in it."""
    folder, _, name = path.rpartition("/")
    return folder, name


def join(folder: str, name: str) -> str:
    """The path of a name in a folder."""
    return f"{folder}/{name}" if folder else name


def upwards(path: str) -> Iterator[str]:
    """A path and the folders above it, innermost first, without the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]
