"""Reading one pack: an index to find objects by name, and their deflated content."""

from __future__ import annotations

import os
import struct
import weakref
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from isal import isal_zlib

from holdfast.errors import Damaged
from holdfast.shadowgit.objects import Kind, object_id

INDEX_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_OFS_DELTA, REF_DELTA = 6, 7
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_OFTEN, _SMALL = 256, 4096
_FEW = 200
_HEADER_BYTES = 48  # more than any header takes: sizes and offsets of 64 bits, the name of a base
_CHUNK_BYTES = 1 << 20
_HINT = "Run `holdfast verify` to see which checkpoints use it."


class Header(NamedTuple):
    """What stands before an object's content in a pack."""

    kind: int
    size: int
    start: int  # where the deflated content begins
    base: int | bytes | None = None  # for a delta: the offset or the name of what it builds on


class Pack:
    """One `.pack` file with its `.idx`, open for reading. Removing the files does not disturb it.

    Nothing is mapped: a file that somebody cuts short while it is read is damage, and not the end of the process.
    """

    def __init__(self, index_path: Path) -> None:
        self.name = index_path.stem
        self.path = index_path.with_suffix(".pack")
        self._index = index_path.read_bytes()
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self.size_bytes = os.fstat(self._fd).st_size
        if self._index[:8] != INDEX_MAGIC or len(self._index) < 8 + 1024 + 40:
            raise Damaged(f"the index of {self.name} is not a pack index", hint=_HINT)
        self._fanout = struct.unpack(">256I", self._index[8:1032])
        self.count = self._fanout[255]
        self._starts: list[int] | None = None
        self._asked = self._sought = 0
        self._names: frozenset[bytes] | None = None
        self._crcs = 1032 + 20 * self.count
        self._offsets = self._crcs + 4 * self.count
        self._far_offsets = self._offsets + 4 * self.count
        if len(self._index) < self._far_offsets + 40:
            raise Damaged(f"the index of {self.name} is cut short", hint=_HINT)

    @property
    def is_cut(self) -> bool:
        """Whether somebody has cut one of the files since they were opened; the store then opens anew what is left."""
        try:
            index_bytes = os.stat(self.path.with_suffix(".idx")).st_size
        except OSError:
            index_bytes = len(self._index)
        return os.fstat(self._fd).st_size < self.size_bytes or index_bytes < len(self._index)

    def oids(self) -> Iterator[bytes]:
        """The names of all objects, sorted."""
        names = self._index[1032 : self._crcs]
        return (names[at : at + 20] for at in range(0, len(names), 20))

    def entries(self) -> list[tuple[int, int, bytes, int]]:
        """(start, end, name, crc) of every object, in the order of the file."""
        crcs = struct.unpack(f">{self.count}I", self._index[self._crcs : self._offsets])
        starts = [self._offset(place) for place in range(self.count)]
        ordered = sorted(zip(starts, self.oids(), crcs, strict=True))
        ends = [row[0] for row in ordered[1:]] + [self.size_bytes - 20] * bool(ordered)
        return [(start, end, oid, crc) for (start, oid, crc), end in zip(ordered, ends, strict=True)]

    def find(self, oid: bytes) -> int | None:
        """Where an object begins. Of a small pack that is asked again and again, all names are kept."""
        if self._names is not None and oid not in self._names:
            return None
        self._sought += 1
        if self._sought == _OFTEN and self.count <= _SMALL:
            self._names = frozenset(self.oids())
        place = self._place(oid)
        return None if place < 0 else self._offset(place)

    def _place(self, oid: bytes) -> int:
        first = oid[0]
        low: int = self._fanout[first - 1] if first else 0
        high: int = self._fanout[first]
        index = self._index
        while low < high:
            middle = (low + high) // 2
            at = 1032 + 20 * middle
            found = index[at : at + 20]
            if found < oid:
                low = middle + 1
            elif found > oid:
                high = middle
            else:
                return middle
        return -1

    def is_sound(self, oid: bytes) -> bool:
        """Whether an object is here, whole, with the bytes that were written; a delta is only a part of one.

        The first ones are read and hashed; where many are asked for, checksums are faster once all ends are known.
        """
        start = self.find(oid)
        if start is None:
            return False
        try:
            header = self.header(start)
            if self.is_delta(header):
                return False
            self._asked += 1
            if self._asked <= _FEW:
                return object_id(delta_kind(header.kind), self.inflate(header)) == oid
            if self._starts is None:
                self._starts = [*sorted(self._offset(place) for place in range(self.count)), self.size_bytes - 20]
            end = self._starts[bisect_right(self._starts, start)] if start < self._starts[-1] else start
            return bool(zlib.crc32(self.raw(start, end)) == self._crc(oid))
        except Damaged:
            return False

    def _crc(self, oid: bytes) -> int:
        at = self._crcs + 4 * self._place(oid)
        return int.from_bytes(self._index[at : at + 4], "big")

    def raw(self, start: int, end: int) -> bytes:
        """The bytes of the file between two places, as far as it went when it was opened; Damaged if cut since."""
        end = min(end, self.size_bytes)
        found = self._peek(start, end)
        if len(found) < end - start:
            raise Damaged(f"{self.name} was cut short", hint=_HINT)
        return found

    def _peek(self, start: int, end: int) -> bytes:
        """What is there of some bytes."""
        return os.pread(self._fd, max(0, min(end, self.size_bytes) - start), start)

    def header(self, offset: int) -> Header:
        """Read what an object is and how large."""
        if offset < 12 or offset >= self.size_bytes - 20:
            raise Damaged(f"the index of {self.name} points outside its pack", hint=_HINT)
        data, base = self._peek(offset, offset + _HEADER_BYTES), None
        try:
            at, byte = 1, data[0]
            kind, size, shift = (byte >> 4) & 7, byte & 15, 4
            while byte & 0x80:
                byte = data[at]
                size |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
            if kind == _OFS_DELTA:
                byte, at = data[at], at + 1
                back = byte & 0x7F
                while byte & 0x80:
                    byte, at = data[at], at + 1
                    back = ((back + 1) << 7) | (byte & 0x7F)
                return Header(kind, size, offset + at, offset - back)
        except IndexError:
            raise Damaged(f"{self.name} is cut short", hint=_HINT) from None
        if kind == REF_DELTA:
            at, base = at + 20, data[at : at + 20]
        return Header(kind, size, offset + at, base)

    def inflate(self, header: Header) -> bytes:
        """The content that follows a header."""
        end = header.start + header.size + header.size // 64 + 1024
        try:
            data: bytes = isal_zlib.decompressobj().decompress(self._peek(header.start, end), header.size + 1)
        except (_InflateError, OverflowError, MemoryError, ValueError):
            data = b""
        if len(data) != header.size:
            raise Damaged(f"an object in {self.name} cannot be inflated", hint=_HINT)
        return data

    def is_delta(self, header: Header) -> bool:
        return header.kind in (_OFS_DELTA, REF_DELTA)

    @property
    def is_index_sound(self) -> bool:
        """Whether the index is, byte for byte, what was written, and so names all that is here."""
        return bool(sha1(self._index[:-20]).digest() == self._index[-20:])

    def checksum_problems(self) -> Iterator[str]:
        """Say whether the two files are, byte for byte, what was written."""
        body, end = sha1(), max(0, self.size_bytes - 20)
        for start in range(0, end, _CHUNK_BYTES):
            body.update(self._peek(start, min(start + _CHUNK_BYTES, end)))
        trailer = self._peek(end, self.size_bytes)
        if not self.is_index_sound:
            yield f"the index file of {self.name} is not what was written"
        if body.digest() != trailer:
            yield f"the pack file of {self.name} is not what was written"
        if self._index[-40:-20] != trailer:
            yield f"the index of {self.name} belongs to another pack"

    def _offset(self, place: int) -> int:
        at = self._offsets + 4 * place
        offset = int.from_bytes(self._index[at : at + 4], "big")
        if offset & 0x80000000:
            at = self._far_offsets + 8 * (offset & 0x7FFFFFFF)
            offset = int.from_bytes(self._index[at : at + 8], "big")
        return offset


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """Make an object from the one it builds on; only git itself writes such (`git gc` in the store)."""
    try:
        base_size, at = _delta_size(delta, 0)
        size, at = _delta_size(delta, at)
        out = bytearray()
        while at < len(delta):
            code = delta[at]
            at += 1
            if not code & 0x80:
                out += delta[at : at + code]
                at += code
                continue
            numbers = []
            for bits, count in ((code & 0x0F, 4), (code >> 4 & 7, 3)):
                number = 0
                for shift in range(count):
                    if bits >> shift & 1:
                        number |= delta[at] << (8 * shift)
                        at += 1
                numbers.append(number)
            offset, length = numbers[0], numbers[1] or 0x10000
            out += base[offset : offset + length]
    except IndexError:
        size = -1
        out = bytearray()
        base_size = len(base)
    if len(out) != size or len(base) != base_size:
        raise Damaged("a delta in a pack does not fit what it builds on", hint=_HINT)
    return bytes(out)


def delta_kind(kind: int) -> Kind:
    """The kind of a whole object; Damaged for a number that means none."""
    try:
        return Kind(kind)
    except ValueError:
        raise Damaged(f"an object in a pack is of no known kind ({kind})", hint=_HINT) from None


def _delta_size(delta: bytes, at: int) -> tuple[int, int]:
    size, shift = 0, 0
    while True:
        byte = delta[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return size, at
