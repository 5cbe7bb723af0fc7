"""Reading the files that a scan found changed: one thread reads and hashes, others deflate large files.

Reading is many short calls with Python code between them, so several threads would only wait for the GIL. Deflating is
one long call that releases it, so large files are deflated in other threads.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.errors import Conflict, Unavailable
from holdfast.model import Reason
from holdfast.scan import sqlite_files
from holdfast.scan.cache import FAILED, FLAGS, WIDTH, Folder
from holdfast.scan.dir_handles import SHORTAGES, Handles
from holdfast.scan.read import Outcome, mark_failed, read_entry
from holdfast.shadowgit import ObjectKind, PackEntry, encode_entry, object_id
from holdfast.workspace.stored.chunking import LARGE_FILES, cut, group_parts
from holdfast.workspace.stored.object_sink import ObjectSink

if TYPE_CHECKING:
    from queue import SimpleQueue

Job = tuple[Folder, int]
"""An entry to read: its folder and its index there."""

_HAND_OVER_BYTES = 16 << 10  # below this, a thread costs more than deflating
_WAITING_BYTES = 4 << 20  # how much may wait for one thread
_MOST_THREADS = min(3, (os.cpu_count() or 1) - 1)


class Reading:
    """Reads entries of one workspace into a sink. As a context manager it ends its threads in any case."""

    def __init__(
        self, handles: Handles, owner: tuple[int, int], sink: ObjectSink, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._handles = handles
        self._owner = owner
        self._clock = clock
        self._sink = sink
        self._deflater = _Deflater()
        self._tell: Callable[[int], None] | None = None
        self.databases: set[tuple[str, str]] = set()
        """The databases that were read: folder and name."""

    def __enter__(self) -> Reading:
        sqlite_files.close_what_is_free()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._deflater.end()

    def read(self, job: Job, tell: Callable[[int], None] | None = None) -> bool:
        """Read one entry; return whether it stayed unchanged meanwhile. What cannot be read is marked (P4).

        `tell` is called with how many bytes of it were read.
        """
        folder, place = job
        self._tell = tell
        outcome = self._outcome(folder, place)
        if outcome.is_database:
            self.databases.add((folder.path, folder.names[place]))
        if outcome.content:
            folder.set_content(place, outcome.content)
        elif outcome.vanished:
            folder.rows[WIDTH * place + FLAGS] |= FAILED
            folder.trusted = False
        else:
            mark_failed(folder, place, outcome)
        return outcome.steady

    def finish(self) -> None:
        """Wait for the deflating threads, and put their results into the sink."""
        self._store(self._deflater.rest())

    def _outcome(self, folder: Folder, place: int) -> Outcome:
        try:
            fd = self._handles.open(folder.path)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return Outcome(reason=Reason.UNREADABLE, detail=error.strerror or str(error), steady=False)
        return read_entry(folder, place, fd, self._owner, self, clock=self._clock)

    # called by `read_entry` with the content

    def whole(self, data: bytes) -> bytes:
        """Store a small file."""
        oid = object_id(ObjectKind.BLOB, data)
        self._sink.show(oid, data)
        if self._sink.lacks(oid):
            self._store(self._deflater.deflate(oid, data))
        return oid

    def pieces(self, size: int, pieces: Iterator[bytes]) -> bytes:
        """Store a large file in chunks. Conflict if it turns out not to be `size` bytes long."""
        seen, parts = 0, []
        for part in cut(pieces, LARGE_FILES):
            if self._tell is not None:
                self._tell(seen)
            seen += len(part)
            oid = object_id(ObjectKind.BLOB, part)
            parts.append(oid)
            if self._sink.lacks(oid):
                self._store(self._deflater.deflate(oid, part))
        if seen != size:
            raise Conflict(
                f"a file had {size} bytes when it was opened and {seen} when it was read",
                hint="It changed while it was read.",
            )
        return group_parts(self._sink, parts)[1]

    def _store(self, entries: Iterator[PackEntry]) -> None:
        """Add to the sink. A store that cannot be written ends the save: it is not an unreadable file (P4)."""
        try:
            for entry in entries:
                self._sink.add_entry(entry)
        except OSError as error:
            raise Unavailable(
                f"the store cannot be written: {error.strerror or error}", hint="Check its disk; nothing was saved."
            ) from error


class _Deflater:
    """Deflates blobs in other threads, with a bounded number of bytes waiting."""

    def __init__(self) -> None:
        from queue import SimpleQueue  # start-up cost: only what reads files needs it

        self._todo: SimpleQueue[tuple[bytes, bytes] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[PackEntry | BaseException, int]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._asked: set[bytes] = set()
        self._count = 0
        self._waiting_bytes = 0

    def deflate(self, oid: bytes, data: bytes) -> Iterator[PackEntry]:
        """Queue a blob, and yield blobs that are finished, this one or others."""
        if len(data) < _HAND_OVER_BYTES or _MOST_THREADS < 1:
            yield encode_entry(ObjectKind.BLOB, oid, data)
        elif oid not in self._asked:
            self._hand_over(oid, data)
        while self._count and (not self._done.empty() or self._waiting_bytes > _WAITING_BYTES * _MOST_THREADS):
            yield self._fetch()

    def rest(self) -> Iterator[PackEntry]:
        """Yield the remaining blobs."""
        while self._count:
            yield self._fetch()

    def end(self) -> None:
        """Wait for the threads to end; drop results that were not fetched."""
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # interrupted while it started: if it runs, it finds an empty queue
                thread.join()

    def _hand_over(self, oid: bytes, data: bytes) -> None:
        if len(self._threads) < _MOST_THREADS and self._waiting_bytes >= _WAITING_BYTES * len(self._threads):
            self._threads.append(threading.Thread(target=self._work, name="holdfast-deflate", daemon=True))
            self._threads[-1].start()
        self._asked.add(oid)
        self._count += 1
        self._waiting_bytes += len(data)
        self._todo.put((oid, data))

    def _fetch(self) -> PackEntry:
        entry, size = self._done.get()
        self._count -= 1
        self._waiting_bytes -= size
        if isinstance(entry, BaseException):
            raise entry
        return entry

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            oid, data = job
            try:
                self._done.put((encode_entry(ObjectKind.BLOB, oid, data), len(data)))
            except BaseException as error:  # raised again in the calling thread
                self._done.put((error, len(data)))
