"""Long texts in parts, cut where their content says, so that a text that grows by a little stores only a little more.

A text of one part is a blob. A longer one is a tree whose entries `00`, `01`, … are parts or trees of parts; read in
order they are the text. Appending changes the last part and the trees on the way to it, nothing else.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Protocol

from holdfast.shadowgit import FILE_MODE, FOLDER_MODE, Kind, TreeEntry, encode_tree

LINES = re.compile(rb"\n")
JSON_TOKENS = re.compile(rb"[,\]}]")
_LEAST_BYTES = 4 << 10
_MOST_BYTES = 32 << 10
_MASK = 31  # one place in 32 is taken
_WINDOW = 32
_FANOUT = 64


class Sink(Protocol):
    """Where objects are put."""

    def add(self, kind: Kind, data: bytes) -> bytes: ...


class Source(Protocol):
    """Where objects are read."""

    def tree(self, oid: bytes) -> list[TreeEntry]: ...
    def blob(self, oid: bytes) -> bytes: ...


def write_parts(sink: Sink, text: bytes, places: re.Pattern[bytes]) -> tuple[int, bytes]:
    """Store a text; the mode and name of what holds it. `places` matches where it may be cut."""
    level = [(FILE_MODE, sink.add(Kind.BLOB, part)) for part in _cut(text, places)]
    if len(level) == 1:
        return level[0]
    while len(level) > _FANOUT:
        level = [_group(sink, level[at : at + _FANOUT]) for at in range(0, len(level), _FANOUT)]
    return _group(sink, level)


def read_parts(source: Source, mode: int, oid: bytes) -> bytes:
    """The text that `write_parts` stored."""
    if mode != FOLDER_MODE:
        return source.blob(oid)
    return b"".join([read_parts(source, entry.mode, entry.oid) for entry in source.tree(oid)])


def _group(sink: Sink, items: list[tuple[int, bytes]]) -> tuple[int, bytes]:
    entries = [TreeEntry(mode, b"%02d" % number, oid) for number, (mode, oid) in enumerate(items)]
    return FOLDER_MODE, sink.add(Kind.TREE, encode_tree(entries))


def _cut(text: bytes, places: re.Pattern[bytes]) -> Iterator[bytes]:
    start, size = 0, len(text)
    while size - start > _LEAST_BYTES:
        end = min(start + _MOST_BYTES, size)
        for match in places.finditer(text, start + _LEAST_BYTES, end):
            if not zlib.crc32(text[match.end() - _WINDOW : match.end()]) & _MASK:
                end = match.end()
                break
        yield text[start:end]
        start = end
    if start < size or not size:
        yield text[start:]
