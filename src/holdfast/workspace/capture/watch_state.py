"""Watching a workspace: what a long-lived process remembers between two saves, and when it may use that.

The memory is the result of the last scan. A partial scan (`holdfast.scan.partial_walk`) uses it only if the watch has
missed nothing, the rules are the same, the newest checkpoint is the one of the memory, everything that the memory names
is still in the store, and the last full scan is not too long ago. Otherwise the scan is full.

A restore of this process makes its target the newest checkpoint. What it wrote, the watch reports; but ignored files
that the target contains are saved, so the next scan also looks at every folder in which something was left out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from holdfast.scan.cache import Folder
from holdfast.scan.classify import is_partly
from holdfast.scan.dir_handles import Handles
from holdfast.scan.partial_walk import InDoubt, Narrowed, SeenFolders, seen
from holdfast.scan.walk import Listing, Walk
from holdfast.scan.watch import Dirt, Watch
from holdfast.workspace.stored.record import Node

FULL_LOOK_EVERY_S = 600.0
FULL_LOOK_EVERY_SAVES = 100
"""How long and how often partial scans are used before the next full one: see docs/watching.md."""

_PAUSE_S = 0.05
_REST_S = 600.0  # after the kernel refused more watches
_UNWRITTEN_FOLDERS = 256  # how many folders of the scan cache on disk may be out of date


class Basis(NamedTuple):
    """What must be unchanged for a memory to be valid."""

    root: Node | None
    rules: bytes
    repository: Path | None
    packs: frozenset[str]


class Memory(NamedTuple):
    """The result of the last scan, and the watch that reports changes since."""

    seen: SeenFolders
    basis: Basis
    tracked: Mapping[str, Any]
    watch: Watch
    is_restored: bool = False
    """Whether a restore made another checkpoint the newest one since."""


class Watching:
    """Reports what changed in a workspace. Saves are correct without it, and faster with it.

    `close` it, or leave its context, to stop; it also stops with its workspace. A forked child starts its own.
    """

    def __init__(self, write_cache: Callable[[Memory], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`write_cache` is called with the memory when watching ends."""
        self._write_cache = write_cache
        self._clock = clock
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._watch: Watch | None = None
        self._memory: Memory | None = None
        self._dirt = Dirt()  # changes since the memory that a scan has already taken from the watch
        self._looks = 0
        self._full_at = 0.0
        self._saves = 0
        self._rest_until = 0.0
        self._unwritten = 0
        self.is_closed = False

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def is_active(self) -> bool:
        """Whether the next save will scan only what changed, as far as is known now."""
        return self._memory is not None and self._watch is not None and not self._watch.doubt

    @property
    def doubt(self) -> str:
        """Why the next scan is full; empty if it is not, or only because nothing was saved yet."""
        return "it was closed" if self.is_closed else self._watch.doubt if self._watch is not None else ""

    @property
    def folders(self) -> int:
        """The number of watched folders."""
        return self._watch.count if self._watch is not None else 0

    def wait(self, timeout_s: float) -> bool:
        """Wait until something changes, or has changed since the last save; False after the timeout.

        True after the timeout if the watch cannot know.
        """
        end = self._clock() + timeout_s
        while True:
            with self._guard:
                watch = self._watch
                if not self.is_active or watch is None:
                    break
                watch.drain()
                if watch.doubt or watch.dirt().folders or self._dirt.folders:
                    return True
            left = end - self._clock()
            if left <= 0:
                return False
            watch.wait(left)
        time.sleep(max(0.0, end - self._clock()))
        return True

    def settle(self, quiet_s: float, most_s: float) -> None:
        """Wait until nothing changes for `quiet_s`, but at most `most_s`."""
        end = self._clock() + most_s
        while self.is_active and (left := end - self._clock()) > 0:
            with self._guard:
                watch = self._watch
                if watch is not None:
                    watch.drain()
            if watch is None or not watch.wait(min(quiet_s, left)):
                return
            time.sleep(min(_PAUSE_S, left))  # do not process every event of a busy writer

    def close(self) -> None:
        """Stop watching, and write the memory to the scan cache."""
        with self._guard:
            self.is_closed = True
            memory, self._memory = self._memory, None
            if self._watch is not None:
                self._watch.close()
            if memory is not None and self._unwritten and self._process == os.getpid():
                with contextlib.suppress(OSError):
                    self._write_cache(memory)

    @contextlib.contextmanager
    def turn(self) -> Iterator[WatchedScan | None]:
        """Yield exclusive use of the memory for one scan; None while another thread has it, or if there is none."""
        if self._process != os.getpid():
            self._begin_in_child()
        if self.is_closed or self._clock() < self._rest_until or not self._guard.acquire(blocking=False):
            yield None
            return
        try:
            yield WatchedScan(self)
        finally:
            self._guard.release()

    def forget(self) -> None:
        """Forget the memory: another thread saved after a scan of its own, and may know more."""
        with self._guard:
            self._memory = None

    def follow(self, before: Node, after: Node | None) -> None:
        """Go on with the memory after a restore from one content to another; the caller has the store's lock.

        Only if the memory has the content that the restore began with: another process may have seen more (P2).
        """
        with self._guard:
            memory = self._memory
            if memory is not None and memory.basis.root == before:
                self._memory = memory._replace(basis=memory.basis._replace(root=after), is_restored=True)

    def _begin_in_child(self) -> None:
        """Start over in a forked child: what the fork copied belongs to the parent."""
        self._guard = threading.Lock()
        self._process, self._watch, self._memory = os.getpid(), None, None
        self._dirt = Dirt()


class WatchedScan:
    """One scan that may use the memory."""

    def __init__(self, watching: Watching) -> None:
        self._of = watching
        self._builds_on: Memory | None = None
        self._walk: Walk | None = None
        self._look = 0
        self.memory = watching._memory

    def consider(self, basis: Basis) -> Memory | None:
        """Return the memory if all of it is still in the store, and decide whether the scan may use it."""
        memory, of = self.memory, self._of
        if memory is None or not memory.basis.packs <= basis.packs:
            self.memory = None
            return None
        is_due = of._clock() - of._full_at > FULL_LOOK_EVERY_S or of._saves >= FULL_LOOK_EVERY_SAVES
        if not is_due and memory.seen.is_sure and memory.watch is of._watch and memory.basis[:3] == basis[:3]:
            self._builds_on = memory
        return memory

    def listing(self, handles: Handles, root: Path, cache: Mapping[str, Folder], **given: Any) -> tuple[Listing, bool]:
        """Scan; also return whether something moved meanwhile."""
        watch = self._ready(handles)
        watch.drain()
        of = self._of
        of._dirt.merge(watch.dirt())
        watch.clean()  # only now: an interruption in between leaves the changes in both
        of._looks += 1
        self._look = of._looks
        if self._builds_on is not None and not watch.doubt:
            is_stale = self._builds_on.is_restored or given["wanted"].is_stale()
            dirt = _with_left_out(of._dirt, self._builds_on.seen) if is_stale else of._dirt.copy()
            try:
                walk: Walk = Narrowed(handles, root, seen=self._builds_on.seen, dirt=dirt, watch=watch, **given)
                listing = walk.run()
                self._walk = walk
                return listing, walk.moved()
            except InDoubt:
                handles.forget("")
        self._builds_on = None
        watch = self._ready(handles)
        walk = self._walk = Walk(handles, root, cache=cache, cover=watch.cover, **given)
        return walk.run(), walk.moved()

    def keep(self, basis: Basis, tracked: Mapping[str, Any], *, changed: int) -> bool:
        """Remember this scan, whose objects are in the store; return whether to write the scan cache now.

        `changed` is the number of folders that differ from the scan cache.
        """
        of, before = self._of, self._builds_on
        with of._guard:
            watch, walk = of._watch, self._walk
            if walk is None or watch is None or of.is_closed or watch.doubt:
                of._memory = None
                if watch is not None and watch.is_hopeless:
                    watch.close()
                    of._rest_until = of._clock() + _REST_S
                return True
            if before is None:
                of._full_at, of._saves = of._clock(), 0
            of._saves += 1
            if isinstance(walk, Narrowed):
                watch.uncover(walk.gone())
            else:
                watch.keep_only(walk.listing.folders)
            of._memory = Memory(seen(walk, before.seen if before else None), basis, tracked, watch)
            if self._look == of._looks:
                of._dirt = Dirt()  # later changes are still in the watch
            of._unwritten += changed
            is_due = before is None or of._unwritten > _UNWRITTEN_FOLDERS
            if is_due:
                of._unwritten = 0
            return is_due

    def _ready(self, handles: Handles) -> Watch:
        """Return the watch; a new one if there is none, or if it may have missed something."""
        of = self._of
        if of._watch is None or of._watch.doubt:
            if of._watch is not None:
                of._watch.close()
            of._watch, of._dirt = Watch(handles.open("")), Dirt()
            self._builds_on = None
        return of._watch


def _with_left_out(dirt: Dirt, seen: SeenFolders) -> Dirt:
    """Add the folders in which paths are ignored that the last checkpoint or the user's git index may now contain."""
    found = dirt.copy()
    for path, folder in seen.folders.items():
        if folder.skipped or is_partly(folder.context):
            found.add(path)
    return found
