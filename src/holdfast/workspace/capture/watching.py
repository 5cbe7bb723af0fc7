"""Watching a workspace: what a long-lived process remembers between two saves, and when that may be relied on.

The memory is what the last save saw. A look builds on it (`holdfast.scan.narrow`) only if nothing speaks against that:
the watch has no doubt, the same rules hold, the newest checkpoint is the one that the memory is of, everything that it
names is still in the store, and the last look at everything is not too long ago. Else everything is looked at.
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

from holdfast.scan.folder import Folder
from holdfast.scan.handles import Handles
from holdfast.scan.judge import is_partly
from holdfast.scan.narrow import InDoubt, Narrowed, Seen, seen
from holdfast.scan.walk import Listing, Walk
from holdfast.scan.watch import Dirt, Watch
from holdfast.workspace.capture.wanted import HeldAnyway
from holdfast.workspace.stored.record import Node

FULL_LOOK_EVERY_S = 600.0
FULL_LOOK_EVERY_SAVES = 100
"""How long and how often a hint is relied on before everything is looked at again: see docs/watching.md."""

_PAUSE_S = 0.05
_REST_S = 600.0  # after a limit of the system was met
_UNWRITTEN_FOLDERS = 256  # how much of the scan cache on disk may be out of date


class Basis(NamedTuple):
    """What else a memory rests on."""

    root: Node | None
    rules: bytes
    repository: Path | None
    packs: frozenset[str]


class Memory(NamedTuple):
    """What the last save saw, and the watch that has told of changes since."""

    seen: Seen
    basis: Basis
    tracked: Mapping[str, Any]
    watch: Watch


class Watching:
    """A hint of what changed in a workspace. Saves are right without it, and faster with it.

    `close` it, or leave its context, to end it; it also ends with its workspace, and a forked child begins anew.
    """

    def __init__(self, write_cache: Callable[[Memory], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        """`write_cache` is called at the end with what is remembered."""
        self._write_cache = write_cache
        self._clock = clock
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._watch: Watch | None = None
        self._memory: Memory | None = None
        self._dirt = Dirt()  # since the memory, as far as some look has taken it into account
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
        """Whether the next save will look only at what changed, as far as can be told now."""
        return self._memory is not None and self._watch is not None and not self._watch.doubt

    @property
    def doubt(self) -> str:
        """Why everything is looked at; empty if it is not, or only because nothing was saved yet."""
        return "it was closed" if self.is_closed else self._watch.doubt if self._watch is not None else ""

    @property
    def folders(self) -> int:
        """How many folders are watched."""
        return self._watch.count if self._watch is not None else 0

    def wait(self, timeout_s: float) -> bool:
        """Whether something changes within a time, or has since the last save. True after it where nothing tells."""
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
        """Wait until nothing changes for a time, but no longer than another."""
        end = self._clock() + most_s
        while self.is_active and (left := end - self._clock()) > 0:
            with self._guard:
                watch = self._watch
                if watch is not None:
                    watch.drain()
            if watch is None or not watch.wait(min(quiet_s, left)):
                return
            time.sleep(min(_PAUSE_S, left))  # whoever writes without a pause is not followed event by event

    def close(self) -> None:
        """Watch no more, and leave the scan cache on disk as new as the memory."""
        with self._guard:
            self.is_closed = True
            memory, self._memory = self._memory, None
            if self._watch is not None:
                self._watch.close()
            if memory is not None and self._unwritten and self._process == os.getpid():
                with contextlib.suppress(OSError):
                    self._write_cache(memory)

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn | None]:
        """The use of the memory for one look; None while another thread has it, or where there is none to be had."""
        if self._process != os.getpid():
            self._begin_in_child()
        if self.is_closed or self._clock() < self._rest_until or not self._guard.acquire(blocking=False):
            yield None
            return
        try:
            yield Turn(self)
        finally:
            self._guard.release()

    def forget(self) -> None:
        """Rely on nothing: somebody saved who looked without the hint, and may have seen more."""
        with self._guard:
            self._memory = None

    def _begin_in_child(self) -> None:
        """What a fork copied belongs to the parent."""
        self._guard = threading.Lock()
        self._process, self._watch, self._memory = os.getpid(), None, None
        self._dirt = Dirt()


class Turn:
    """One look with the memory at hand."""

    def __init__(self, watching: Watching) -> None:
        self._of = watching
        self._builds_on: Memory | None = None
        self._walk: Walk | None = None
        self._look = 0
        self.memory = watching._memory

    def consider(self, basis: Basis) -> Memory | None:
        """What is remembered, if all of it is still in the store; whether to rely on it is decided here too."""
        memory, of = self.memory, self._of
        if memory is None or not memory.basis.packs <= basis.packs:
            self.memory = None
            return None
        is_due = of._clock() - of._full_at > FULL_LOOK_EVERY_S or of._saves >= FULL_LOOK_EVERY_SAVES
        if not is_due and memory.seen.is_sure and memory.watch is of._watch and memory.basis[:3] == basis[:3]:
            self._builds_on = memory
        return memory

    def listing(self, handles: Handles, root: Path, cache: Mapping[str, Folder], **given: Any) -> tuple[Listing, bool]:
        """Walk; also whether something moved meanwhile."""
        watch = self._ready(handles)
        watch.drain()
        of = self._of
        of._dirt.merge(watch.dirt())
        watch.clean()  # only now: an interruption between the two leaves it in both
        of._looks += 1
        self._look = of._looks
        if self._builds_on is not None and not watch.doubt:
            dirt = _with_stale(of._dirt, self._builds_on.seen, given["wanted"])
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
        listing = walk.run()
        watch.keep_only(listing.folders)
        return listing, walk.moved()

    def keep(self, basis: Basis, tracked: Mapping[str, Any], *, changed: int) -> bool:
        """Remember this look, whose objects are in the store; whether the scan cache is due to be written.

        `changed` is how many folders differ from the scan cache as far as it was known before.
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
            of._memory = Memory(seen(walk, before.seen if before else None), basis, tracked, watch)
            if self._look == of._looks:
                of._dirt = Dirt()  # what came later is with the watch; else some of it may be in here
            of._unwritten += changed
            is_due = before is None or of._unwritten > _UNWRITTEN_FOLDERS
            if is_due:
                of._unwritten = 0
            return is_due

    def _ready(self, handles: Handles) -> Watch:
        """The watch; a new one where there is none, or doubt about what it told."""
        of = self._of
        if of._watch is None or of._watch.doubt:
            if of._watch is not None:
                of._watch.close()
            of._watch, of._dirt = Watch(handles.open("")), Dirt()
            self._builds_on = None
        return of._watch


def _with_stale(dirt: Dirt, seen: Seen, wanted: HeldAnyway) -> Dirt:
    """What changed, and what is left out by rules that git's own index can overrule, where that index changed."""
    found = dirt.copy()
    if wanted.is_stale():
        for path, folder in seen.folders.items():
            if folder.skipped or is_partly(folder.context):
                found.add(path)
    return found
