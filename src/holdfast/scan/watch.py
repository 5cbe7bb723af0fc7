"""What changed in a workspace since the last scan, as far as the kernel reports it: a hint, never a proof (P2).

A folder is watched before it is scanned, so a change is seen by the scan or reported afterwards. The queue is read by
the caller's thread. Whatever the kernel cannot report sets `doubt`, and doubt means: scan everything.

The kernel never reports writes through a memory map (but its closing), nor writes to a watched file through a hard link
in a folder that is not watched. So callers scan everything from time to time all the same.
"""

from __future__ import annotations

import errno
from collections.abc import Container, Iterable

from holdfast.durable.platform import inotify
from holdfast.scan.dir_handles import join

_LIMITS = {
    errno.ENOSPC: "the system's limit for watched folders is reached (fs.inotify.max_user_watches)",
    errno.EMFILE: "the system's limit for watchers is reached (fs.inotify.max_user_instances)",
}


class Dirt:
    """Folders that may have changed."""

    __slots__ = ("below", "folders")

    def __init__(self) -> None:
        self.folders: dict[str, set[str] | None] = {}  # the entries in question; None: it and all of them
        self.below: set[str] = set()  # folders that may be others than before, with everything below them

    def add(self, path: str, name: str | None = None) -> None:
        """Put in a folder, or one entry of it."""
        if name is None:
            self.folders[path] = None
        else:
            names = self.folders.setdefault(path, set())
            if names is not None:
                names.add(name)

    def merge(self, other: Dirt) -> None:
        for path, names in other.folders.items():
            if names is None:
                self.folders[path] = None
            else:
                for name in names:
                    self.add(path, name)
        self.below |= other.below

    def copy(self) -> Dirt:
        other = Dirt()
        other.merge(self)
        return other


class Watch:
    """The watched folders of one workspace. For one thread at a time."""

    def __init__(self, root: int) -> None:
        """Begin with no folder watched. `root` is a descriptor of the workspace."""
        self.doubt = inotify.untold_file_system(root)
        self.is_hopeless = bool(self.doubt)  # another one would fare no better, for now
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._dirt = Dirt()
        self._is_draining = False
        self._queue: inotify.Inotify | None = None
        if not self.doubt:
            try:
                self._queue = inotify.Inotify()
            except OSError as error:
                self._give_up(error)

    @property
    def count(self) -> int:
        """How many folders are watched."""
        return len(self._paths)

    def cover(self, path: str, folder: int) -> None:
        """Watch a folder, open at a descriptor, that is about to be looked at."""
        if self._queue is None or self.doubt:
            return
        try:
            watch = self._queue.add(folder)
        except OSError as error:
            self._give_up(error)
            return
        if self._paths.get(watch) == path:  # the kernel gives a folder that is watched already the same number
            return
        before = self._paths.get(watch)
        if before is not None and self._watches.get(before) == watch:
            del self._watches[before]  # the same folder at another place
        replaced = self._watches.get(path)
        if replaced is not None and self._paths.get(replaced) == path:
            self._forget(replaced)
            self._queue.remove(replaced)
        self._paths[watch], self._watches[path] = path, watch

    def uncover(self, paths: Iterable[str]) -> None:
        """Watch no longer what is not where it was."""
        for path in paths:
            watch = self._watches.get(path)
            if watch is not None and self._queue is not None:
                self._forget(watch)
                self._queue.remove(watch)

    def keep_only(self, paths: Container[str]) -> None:
        """Watch no longer what is not among these."""
        self.uncover([path for path in self._watches if path not in paths])

    def drain(self) -> bool:
        """Take in everything that happened; whether a name came or went since the last time."""
        if self._queue is None or not self._queue.is_open:
            self.doubt = self.doubt or "the process was forked"
            return True
        if self._is_draining:
            self.doubt = self.doubt or "it was interrupted while it received changes"
        moved = False
        self._is_draining = True  # P2: the kernel reports each event once, and Ctrl-C may interrupt this loop
        for event in self._queue.read():
            moved = self._take(event) or moved
        self._is_draining = False
        return moved

    def dirt(self) -> Dirt:
        """What was drained since `clean`."""
        return self._dirt

    def clean(self) -> None:
        """Start again with no changes; the caller has taken `dirt`."""
        self._dirt = Dirt()

    def wait(self, timeout_s: float) -> bool:
        """Whether anything happens within a time. It stays in the queue."""
        return self._queue is not None and self._queue.is_open and self._queue.wait(timeout_s)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._queue is not None:
            self._queue.close()
        self.doubt = self.doubt or "it was closed"

    def _take(self, event: inotify.InotifyEvent) -> bool:
        watch, mask, name = event
        if mask & (inotify.OVERFLOW | inotify.UNMOUNT):
            self.doubt = "more happened than could be told" if mask & inotify.OVERFLOW else "it was unmounted"
            return True
        path = self._paths.get(watch)
        if path is None:
            return False  # an event from before this folder was forgotten
        if mask & inotify.IGNORED:  # the kernel has ended this watch: the folder is gone
            self._forget(watch)
        elif not name:
            self._dirt.add(path)
            if not path and mask & (inotify.MOVE_SELF | inotify.DELETE_SELF):
                self.doubt = "the workspace itself was moved"
        elif mask & inotify.NAMES or mask & inotify.IS_FOLDER:
            self._dirt.add(path)
            if mask & inotify.IS_FOLDER and mask & (inotify.CREATE | inotify.MOVED_TO):
                self._dirt.below.add(join(path, name))  # what it contains may never have been watched
        else:
            self._dirt.add(path, name)
        return bool(mask & inotify.NAMES)

    def _give_up(self, error: OSError) -> None:
        why = _LIMITS.get(error.errno or 0) or f"it cannot be watched: {error.strerror or error}"
        self.doubt, self.is_hopeless = why, True

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]
