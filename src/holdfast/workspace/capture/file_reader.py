"""Reading the files that a scan found changed: one thread reads, others hash and deflate.

With the native module the ordinary small files of a folder are read in one call that releases the GIL, and so are
hashing and deflating. Without it, reading is many short calls with Python code between them, so several threads would
only wait for the GIL.
"""

from __future__ import annotations

import contextlib
import stat
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from holdfast.durable import platform
from holdfast.errors import Conflict, Unavailable
from holdfast.model import Reason
from holdfast.scan import sqlite_files
from holdfast.scan.cache import CTIME, FAILED, FLAGS, MODE, SIZE, WIDTH, Folder
from holdfast.scan.dir_handles import SHORTAGES, Handles
from holdfast.scan.read import TICK_NS, Outcome, mark_failed, read_entry
from holdfast.scan.sweep import native
from holdfast.shadowgit import ObjectKind, PackEntry, encode_entry, object_id
from holdfast.workspace.stored.chunking import LARGE_FILES, cut, group_parts
from holdfast.workspace.stored.object_sink import ObjectSink

if TYPE_CHECKING:
    from queue import SimpleQueue

Job = tuple[Folder, int]
"""An entry to read: its folder and its index there."""

_HAND_OVER_BYTES = 16 << 10  # below this, a thread costs more than hashing and deflating
_WAITING_BYTES = 4 << 20  # how much may wait for one thread
_MOST_THREADS = min(3, platform.available_processors() - 1)
_AT_ONCE_FILES, _AT_ONCE_BYTES = 64, 1 << 20  # what one native call reads
_ORDINARY_BYTES = 256 << 10  # larger files are read one by one
_read_files = getattr(native, "read_files", None)


class Reading:
    """Reads entries of one workspace into a sink. As a context manager it ends its threads in any case."""

    def __init__(
        self, handles: Handles, owner: tuple[int, int], sink: ObjectSink, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._handles = handles
        self._owner = owner
        self._clock = clock
        self._sink = sink
        self._encoder = _Encoder(sink)
        self._tell: Callable[[int], None] | None = None
        self.databases: set[tuple[str, str]] = set()
        """The databases that were read: folder and name."""

    def __enter__(self) -> Reading:
        sqlite_files.close_what_is_free()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._encoder.end()

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

    def read_folder(self, folder: Folder, places: Sequence[int]) -> bool:
        """Read entries of one folder, as `read` does; their contents are set once `finish` returns."""
        left: list[int] = []
        for some in _portions(folder, places):
            left += self._read_ordinary(folder, some)
        steady = [self.read((folder, place)) for place in left]
        return all(steady)

    def _read_ordinary(self, folder: Folder, places: Sequence[int]) -> Sequence[int]:
        """Read ordinary small files with the native module; return the places of all others."""
        if _read_files is None or sqlite_files.has_kept() or not isinstance(folder.rows, array):
            return places
        steady_ns = self._clock() - TICK_NS  # P2: the times of younger files cannot show a change
        ordinary = [place for place in places if _may_be_ordinary(folder, place, steady_ns)]
        try:
            contents = _read_files(
                self._handles.open(folder.path), folder.names, ordinary, folder.rows, *self._owner, _ORDINARY_BYTES
            )
        except OSError:
            return places  # reported, or raised, where each is read
        found = []
        for place, content in zip(ordinary, contents, strict=True):
            if isinstance(content, bytes):
                found.append(_File(place, b"", content))
                folder.extras.pop(folder.names[place], None)
            elif content is not None:
                sqlite_files.close_unread(content)
        self._store(self._encoder.encode(folder, found))
        read = {file.place for file in found}
        return [place for place in places if place not in read]

    def finish(self) -> None:
        """Wait for the other threads, and put their results into the sink."""
        self._store(self._encoder.rest())

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
            self._store(self._encoder.encode(None, [_File(0, oid, data)]))
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
                self._store(self._encoder.encode(None, [_File(0, oid, part)]))
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


def _may_be_ordinary(folder: Folder, place: int, steady_ns: int) -> bool:
    rows, at = folder.rows, WIDTH * place
    return (
        rows[at + SIZE] <= _ORDINARY_BYTES
        and rows[at + CTIME] <= steady_ns
        and stat.S_ISREG(rows[at + MODE])
        and not folder.names[place].endswith(sqlite_files.PARTS)
    )


def _portions(folder: Folder, places: Sequence[int]) -> Iterator[Sequence[int]]:
    """Divide entries into what may be in memory at once."""
    first, size = 0, 0
    for number, place in enumerate(places):
        size += min(folder.rows[WIDTH * place + SIZE], _ORDINARY_BYTES)
        if size > _AT_ONCE_BYTES or number - first == _AT_ONCE_FILES:
            yield places[first:number]
            first, size = number, 0
    yield places[first:]


class _File(NamedTuple):
    """Content to encode."""

    place: int
    oid: bytes  # empty if it is not hashed yet
    data: bytes


class _Encoded(NamedTuple):
    """The results of one job."""

    folder: Folder | None  # whose contents these are; None: of a caller that has the ids
    files: list[tuple[int, bytes, PackEntry | None]]  # place, id, and what is to be stored
    size: int
    error: BaseException | None = None


class _Encoder:
    """Hashes and deflates in other threads and, when much is waiting, in the calling one."""

    def __init__(self, sink: ObjectSink) -> None:
        from queue import SimpleQueue  # start-up cost: only what reads files needs it

        self._sink = sink
        self._todo: SimpleQueue[tuple[Folder | None, list[_File], int] | None] = SimpleQueue()
        self._done: SimpleQueue[_Encoded] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._asked: dict[bytes, _File] = {}  # what is being deflated
        self._count = 0
        self._waiting_bytes = 0

    def encode(self, folder: Folder | None, files: list[_File]) -> Iterator[PackEntry]:
        """Queue contents, and yield what is finished and has to be stored, these or others."""
        size = sum([len(file.data) for file in files])
        if _MOST_THREADS < 1 or (not self._threads and size < _HAND_OVER_BYTES) or size < _HAND_OVER_BYTES // 16:
            yield from self._accept(self._encoded(folder, files, size))
        else:
            self._hand_over(folder, files, size)
        while self._count and not self._done.empty():
            yield from self._fetch()
        while self._waiting_bytes > _WAITING_BYTES * _MOST_THREADS:
            yield from self._help()

    def rest(self) -> Iterator[PackEntry]:
        """Yield the remaining results."""
        while self._count:
            yield from self._help()

    def end(self) -> None:
        """Wait for the threads to end; drop results that were not fetched."""
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # interrupted while it started: if it runs, it finds an empty queue
                thread.join()

    def _hand_over(self, folder: Folder | None, files: list[_File], size: int) -> None:
        if len(self._threads) < _MOST_THREADS and self._waiting_bytes >= _WAITING_BYTES * len(self._threads):
            self._threads.append(threading.Thread(target=self._work, name="holdfast-deflate", daemon=True))
            self._threads[-1].start()
        self._count += 1
        self._waiting_bytes += size
        self._todo.put((folder, files, size))

    def _help(self) -> Iterator[PackEntry]:
        """Do a job that no thread has begun; if there is none, wait for a thread."""
        from queue import Empty

        try:
            job = self._todo.get_nowait()
        except Empty:
            job = None
        if job is not None:
            self._done.put(self._encoded(*job))
        yield from self._fetch()

    def _fetch(self) -> Iterator[PackEntry]:
        encoded = self._done.get()
        self._count -= 1
        self._waiting_bytes -= encoded.size
        yield from self._accept(encoded)

    def _accept(self, encoded: _Encoded) -> Iterator[PackEntry]:
        if encoded.error is not None:
            raise encoded.error
        for place, oid, entry in encoded.files:
            if entry is not None:
                yield entry
                self._asked.pop(oid, None)
            if encoded.folder is not None:
                encoded.folder.set_content(place, oid)

    def _encoded(self, folder: Folder | None, files: list[_File], size: int) -> _Encoded:
        return _Encoded(folder, [self._one(file, is_shown=folder is not None) for file in files], size)

    def _one(self, file: _File, *, is_shown: bool) -> tuple[int, bytes, PackEntry | None]:
        oid = file.oid or object_id(ObjectKind.BLOB, file.data)
        if is_shown:
            self._sink.show(oid, file.data)
        if not self._sink.lacks(oid) or self._asked.setdefault(oid, file) is not file:
            return file.place, oid, None
        return file.place, oid, encode_entry(ObjectKind.BLOB, oid, file.data)

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            try:
                self._done.put(self._encoded(*job))
            except BaseException as error:  # raised again in the calling thread
                self._done.put(_Encoded(None, [], job[2], error))
