"""Content-defined chunking: a long content that changes a little stores only a little more (P8).

A content of one chunk is a blob. A longer one is a tree whose entries `00`, `01`, … are chunks or trees of chunks; read
in order they are the content. Appending changes only the last chunk and the trees above it; a change in the middle,
only the chunks around it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, ObjectKind, TreeEntry, encode_tree

_WINDOW = 32
_FANOUT = 64
_ZEROS = bytes(1 << 20)
_MOST_TRIES = 4096  # repetitive content has the same candidate again and again


class Cutting(NamedTuple):
    """Where to cut: after a match of `places` whose last bytes hash to a cut, within these sizes."""

    places: bytes  # a pattern, not compiled yet: start-up cost
    least_bytes: int
    most_bytes: int
    mask: int


LINES = Cutting(rb"\n", 4 << 10, 32 << 10, 31)
JSON_TOKENS = Cutting(rb"[,\]}]", 4 << 10, 32 << 10, 31)
LARGE_FILES = Cutting(rb"[^\x00]\x00|[^\xff]\xff|[^\n]\n|[^ ] ", 256 << 10, 1 << 20, 255)  # where a run begins


class Sink(Protocol):
    """Stores objects."""

    def add(self, kind: ObjectKind, data: bytes) -> bytes: ...


class Source(Protocol):
    """Reads objects."""

    def tree(self, oid: bytes) -> list[TreeEntry]: ...
    def blob(self, oid: bytes) -> bytes: ...


def write_parts(sink: Sink, text: bytes, cutting: Cutting) -> tuple[int, bytes]:
    """Store a content; return the mode and id of its blob or tree."""
    return group_parts(sink, [sink.add(ObjectKind.BLOB, part) for part in cut([text], cutting)])


def group_parts(sink: Sink, parts: Iterable[bytes]) -> tuple[int, bytes]:
    """Store a tree that joins blobs to one content; return its mode and id."""
    level = [(FILE_MODE, oid) for oid in parts]
    if len(level) == 1:
        return level[0]
    while len(level) > _FANOUT:
        level = [_group(sink, level[at : at + _FANOUT]) for at in range(0, len(level), _FANOUT)]
    return _group(sink, level)


def read_parts(source: Source, mode: int, oid: bytes) -> bytes:
    """Read a stored content."""
    return b"".join(source.blob(part) for part in list_parts(source, mode, oid))


def list_parts(source: Source, mode: int, oid: bytes) -> Iterator[bytes]:
    """Yield the ids of the blobs of a content, in order."""
    if mode != FOLDER_MODE:
        yield oid
        return
    for entry in source.tree(oid):
        yield from list_parts(source, entry.mode, entry.oid)


class Sieve:
    """Finds which of many contents may contain something short; shared chunks are examined once (P8)."""

    def __init__(self, source: Source, is_in: Callable[[bytes], bool]) -> None:
        """`is_in` searches for something not longer than the smallest chunk."""
        self._source = source
        self._is_in = is_in
        self._pairs: dict[tuple[bytes, bytes], bool] = {}

    def may_have(self, mode: int, oid: bytes) -> bool:
        """Whether it may be in a content, within a chunk or across two neighbours."""
        last = b""
        for part in [*list_parts(self._source, mode, oid), b""]:
            pair = (last, part)
            if pair not in self._pairs:
                self._pairs[pair] = self._is_in(b"".join(self._source.blob(each) for each in pair if each))
            if self._pairs[pair]:
                return True
            last = part
        return False


def cut(pieces: Iterable[bytes], cutting: Cutting) -> Iterator[bytes]:
    """Cut a content that comes in pieces; at most two pieces and a chunk are in memory."""
    held = b""
    for piece in pieces:
        held = held + piece if held else piece
        start = 0
        while len(held) - start > cutting.most_bytes:
            end = _place(held, start, cutting)
            yield held[start:end]
            start = end
        held = held[start:]
    start = 0
    while len(held) - start > cutting.least_bytes:
        end = _place(held, start, cutting)
        yield held[start:end]
        start = end
    if start < len(held) or not held:
        yield held[start:]


def _place(data: bytes, start: int, cutting: Cutting) -> int:
    end = min(start + cutting.most_bytes, len(data))
    if data[start:end] == _ZEROS[: end - start]:
        return end  # a hole of a sparse file
    for match in islice(re.compile(cutting.places).finditer(data, start + cutting.least_bytes, end), _MOST_TRIES):
        if not zlib.crc32(data[match.end() - _WINDOW : match.end()]) & cutting.mask:
            return match.end()
    return end


def _group(sink: Sink, items: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    entries = [TreeEntry(mode, b"%02d" % number, oid) for number, (mode, oid) in enumerate(items)]
    return FOLDER_MODE, sink.add(ObjectKind.TREE, encode_tree(entries))
