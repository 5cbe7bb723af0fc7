"""Long contents in parts, cut where the content says, so that one that changes a little stores only a little more.

A content of one part is a blob. A longer one is a tree whose entries `00`, `01`, … are parts or trees of parts; read
in order they are the content. Appending changes the last part and the trees on the way to it, nothing else; a change
in the middle, the parts around it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, Kind, TreeEntry, encode_tree

_WINDOW = 32
_FANOUT = 64
_ZEROS = bytes(1 << 20)
_MOST_TRIES = 4096  # a content that repeats itself offers the same place again and again


class Cutting(NamedTuple):
    """Where a content may be cut: after a match of `places` whose last bytes say so, within these sizes."""

    places: re.Pattern[bytes]
    least_bytes: int
    most_bytes: int
    mask: int


LINES = Cutting(re.compile(rb"\n"), 4 << 10, 32 << 10, 31)
JSON_TOKENS = Cutting(re.compile(rb"[,\]}]"), 4 << 10, 32 << 10, 31)
LARGE_FILES = Cutting(
    re.compile(rb"[^\x00]\x00|[^\xff]\xff|[^\n]\n|[^ ] "), 256 << 10, 1 << 20, 255
)  # where a run begins


class Sink(Protocol):
    """Where objects are put."""

    def add(self, kind: Kind, data: bytes) -> bytes: ...


class Source(Protocol):
    """Where objects are read."""

    def tree(self, oid: bytes) -> list[TreeEntry]: ...
    def blob(self, oid: bytes) -> bytes: ...


def write_parts(sink: Sink, text: bytes, cutting: Cutting) -> tuple[int, bytes]:
    """Store a content; the mode and name of what holds it."""
    return group_parts(sink, [sink.add(Kind.BLOB, part) for part in cut([text], cutting)])


def group_parts(sink: Sink, parts: Iterable[bytes]) -> tuple[int, bytes]:
    """Store what says that these blobs, in this order, are one content; its mode and name."""
    level = [(FILE_MODE, oid) for oid in parts]
    if len(level) == 1:
        return level[0]
    while len(level) > _FANOUT:
        level = [_group(sink, level[at : at + _FANOUT]) for at in range(0, len(level), _FANOUT)]
    return _group(sink, level)


def read_parts(source: Source, mode: int, oid: bytes) -> bytes:
    """The content that was stored."""
    return b"".join(source.blob(part) for part in list_parts(source, mode, oid))


def list_parts(source: Source, mode: int, oid: bytes) -> Iterator[bytes]:
    """The names of the blobs that are a content together, in order."""
    if mode != FOLDER_MODE:
        yield oid
        return
    for entry in source.tree(oid):
        yield from list_parts(source, entry.mode, entry.oid)


class Sieve:
    """Tells which of many contents may have something short in them; what they share is looked at once."""

    def __init__(self, source: Source, is_in: Callable[[bytes], bool]) -> None:
        """`is_in` looks for something that is no longer than the smallest part."""
        self._source = source
        self._is_in = is_in
        self._pairs: dict[tuple[bytes, bytes], bool] = {}

    def may_have(self, mode: int, oid: bytes) -> bool:
        """Whether it is in a content, whole or across two parts that follow each other."""
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
    """Cut a content that comes piece by piece; never more than two pieces and a part are in memory."""
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
    for match in islice(cutting.places.finditer(data, start + cutting.least_bytes, end), _MOST_TRIES):
        if not zlib.crc32(data[match.end() - _WINDOW : match.end()]) & cutting.mask:
            return match.end()
    return end


def _group(sink: Sink, items: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    entries = [TreeEntry(mode, b"%02d" % number, oid) for number, (mode, oid) in enumerate(items)]
    return FOLDER_MODE, sink.add(Kind.TREE, encode_tree(entries))
