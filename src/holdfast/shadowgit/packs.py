"""Packs: reading one, writing one, and making an index that was lost.

All objects of a save are in two files, the pack and its index, instead of a file each. Order of writes (P3): the pack
under a temporary name, synced; its index under a temporary name, synced; the index renamed into place, then the pack
(readers skip an index without one), then the folder synced. A crash before the last step leaves temporary files or a
lone index, which the next writer removes; after it, a pack that no ref needs, which goes when packs are merged. A disk
may keep the later rename alone: then `index_lone_packs` makes the index again.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import weakref
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from isal import isal_zlib

from holdfast import durable
from holdfast.errors import Damaged, Remedy
from holdfast.shadowgit.objects import ObjectKind, PackEntry, encode_entry, new_sha1, object_id

if TYPE_CHECKING:
    import hashlib

INDEX_MAGIC = b"\xfftOc\x00\x00\x00\x02"
_OFS_DELTA, REF_DELTA = 6, 7
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls the class an instance
_OFTEN, _SMALL = 256, 4096
_FEW = 200
MAX_DELTA_CHAIN = 4096
_BASES_MAX_BYTES = 32 << 20
_ENTRY_BYTES = 200  # of memory, beside the content
_HEADER_BYTES = 48  # more than any header takes: sizes and offsets of 64 bits, the name of a base
_CHUNK_BYTES = 1 << 20  # read in pieces, not mapped: see `Pack`
_BUFFER_BYTES = 8 << 20
_PACK_HEADER = struct.Struct(">4sII")
_FAR_OFFSET = 0x80000000
_KINDS = {kind.value for kind in ObjectKind}
_VERIFY = Remedy("verify")


class Header(NamedTuple):
    """What stands before an object's content in a pack."""

    kind: int
    size: int
    start: int  # where the deflated content begins
    base: int | bytes | None = None  # for a delta: the offset or the name of what it builds on


class Bases:
    """The objects of a pack that deltas were built on last, by offset; a limited number of bytes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ObjectKind, bytes]] = {}
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, offset: int) -> tuple[ObjectKind, bytes] | None:
        """An object, if it is remembered."""
        return self._known.get(offset)

    def add(self, offset: int, kind: ObjectKind, data: bytes) -> None:
        """Remember an object, and forget the oldest ones where they are too many."""
        if len(data) > _BASES_MAX_BYTES // 4:
            return
        with self._guard:
            if offset in self._known:
                return
            self._known[offset] = kind, data
            self._bytes += len(data) + _ENTRY_BYTES
            while self._bytes > _BASES_MAX_BYTES:
                _, dropped = self._known.pop(next(iter(self._known)))
                self._bytes -= len(dropped) + _ENTRY_BYTES


class Pack:
    """One `.pack` file with its `.idx`, open for reading. Removing the files does not disturb it.

    Nothing is memory-mapped: a file that is truncated while it is read is damage, and does not end a process (SIGBUS).
    """

    def __init__(self, index_path: Path) -> None:
        self.name = index_path.stem
        self.path = index_path.with_suffix(".pack")
        self._index = index_path.read_bytes()
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._fd)
        self.size_bytes = os.fstat(self._fd).st_size
        if self._index[:8] != INDEX_MAGIC or len(self._index) < 8 + 1024 + 40:
            raise Damaged(f"the index of {self.name} is not a pack index", remedy=_VERIFY)
        self._fanout = struct.unpack(">256I", self._index[8:1032])
        self.count = self._fanout[255]
        self._order: array[int] | None = None  # the places in the index, in the order of the file
        self._starts = array("Q")
        self._asked = self._sought = 0
        self.bases = Bases()
        self._sound_bases: set[int] = set()
        self._names: frozenset[bytes] | None = None
        self._crcs = 1032 + 20 * self.count
        self._offsets = self._crcs + 4 * self.count
        self._far_offsets = self._offsets + 4 * self.count
        if len(self._index) < self._far_offsets + 40:
            raise Damaged(f"the index of {self.name} is cut short", remedy=_VERIFY)

    @property
    def is_cut(self) -> bool:
        """Whether one of the files was truncated since it was opened; the store then opens the pack again."""
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
        """The offset of an object. For a small pack that is searched often, all names are cached."""
        if self._names is not None and oid not in self._names:
            return None
        self._sought += 1
        if self._sought == _OFTEN and self.count <= _SMALL:
            self._names = frozenset(self.oids())
        place = self._place(oid)
        return None if place < 0 else self._offset(place)

    def _place(self, oid: bytes) -> int:
        if not oid:
            return -1  # a damaged tree can have an entry of no object
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
        """Whether an object is here with the bytes that were written and, if it is a delta, all that it builds on, too.

        The first ones are read and hashed, and deltas among them do not count; for many, comparing checksums is faster
        once all ends are known.
        """
        place = self._place(oid)
        try:
            self._asked += 1
            if place < 0 or self._asked > _FEW:
                return place >= 0 and self._has_checksum(place)
            header = self.header(self._offset(place))
            return not self.is_delta(header) and object_id(delta_kind(header.kind), self.inflate(header)) == oid
        except Damaged:
            return False

    def _has_checksum(self, place: int) -> bool:
        """Whether an entry and all that it builds on have the checksums of the index.

        What others build on is compared once, since many share it.
        """
        if self._order is None:
            order = array("I", sorted(range(self.count), key=self._offset))
            self._starts = array("Q", [*map(self._offset, order), self.size_bytes - 20])
            self._order = order  # last: another thread may ask
        chain: list[int] = []
        while True:
            start = self._offset(place)
            number = bisect_left(self._starts, start)
            raw = self.raw(start, self._starts[number + 1] if number < self.count else start)
            at = self._crcs + 4 * place
            if zlib.crc32(raw) != int.from_bytes(self._index[at : at + 4], "big"):
                return False
            chain.append(start)
            base = self.header(start, raw).base
            offset = self.find(base) if isinstance(base, bytes) else base
            if base is None or offset in self._sound_bases:
                self._sound_bases.update(chain[1:])
                return True
            number = bisect_left(self._starts, self.size_bytes if offset is None else offset)
            if number >= self.count or self._starts[number] != offset or len(chain) > MAX_DELTA_CHAIN:
                return False  # what it builds on is in another pack
            place = self._order[number]

    def contents(self) -> Iterator[tuple[bytes, ObjectKind, bytes | None]]:
        """Every object once: its name, kind and content; None for one that cannot be read from this pack alone.

        A delta comes right after what it builds on, so that nothing is inflated twice and little is held in memory.
        """
        entries, deltas = self.entries(), dict[int, list[int]]()  # by the offset of what they build on
        whole = []
        for number, header in enumerate(self._headers(entries)):
            if header is None or not self.is_delta(header):
                whole.append(number)
            else:
                base = header.base if isinstance(header.base, int) else self.find(header.base or b"")
                deltas.setdefault(-1 if base is None else base, []).append(number)
        left = {number for group in deltas.values() for number in group}
        for first in whole:
            waiting = [(first, ObjectKind.BLOB, b"")]
            while waiting:
                number, kind, base_data = waiting.pop()
                start, end, oid, _ = entries[number]
                try:
                    raw = self.raw(start, end)
                    header = self.header(start, raw)
                    data = self.inflate(header, raw[header.start - start :])
                    is_delta = self.is_delta(header)
                    kind, data = (kind, apply_delta(base_data, data)) if is_delta else (delta_kind(header.kind), data)
                except Damaged:
                    yield oid, kind, None
                else:
                    yield oid, kind, data
                    waiting += [(each, kind, data) for each in reversed(deltas.get(start, ()))]
                left.discard(number)
        yield from ((entries[number][2], ObjectKind.BLOB, None) for number in sorted(left))

    def _headers(self, entries: Sequence[tuple[int, int, bytes, int]]) -> Iterator[Header | None]:
        """The header of every entry, read in large pieces; None where there is none."""
        at, piece = 0, b""
        for start, *_ in entries:
            if start - at + _HEADER_BYTES > len(piece):
                at, piece = start, self._peek(start, start + _CHUNK_BYTES)
            try:
                yield self.header(start, piece[start - at : start - at + _HEADER_BYTES])
            except Damaged:
                yield None

    def raw(self, start: int, end: int) -> bytes:
        """The bytes of the file between two places, as far as it went when it was opened; Damaged if cut since."""
        end = min(end, self.size_bytes)
        found = self._peek(start, end)
        if len(found) < end - start:
            raise Damaged(f"{self.name} was cut short", remedy=_VERIFY)
        return found

    def _peek(self, start: int, end: int) -> bytes:
        """What is there of some bytes."""
        return os.pread(self._fd, max(0, min(end, self.size_bytes) - start), start)

    def header(self, offset: int, data: bytes | None = None) -> Header:
        """Read what an object is and how large; `data`: what begins there, if it is read already."""
        if offset < 12 or offset >= self.size_bytes - 20:
            raise Damaged(f"the index of {self.name} points outside its pack", remedy=_VERIFY)
        data, base = self._peek(offset, offset + _HEADER_BYTES) if data is None else data, None
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
            raise Damaged(f"{self.name} is cut short", remedy=_VERIFY) from None
        if kind == REF_DELTA:
            at, base = at + 20, data[at : at + 20]
            if len(base) < 20:
                raise Damaged(f"{self.name} is cut short", remedy=_VERIFY)
        return Header(kind, size, offset + at, base)

    def inflate(self, header: Header, deflated: bytes | None = None) -> bytes:
        """The content that follows a header; `deflated`: as it is in the file, if it is read already."""
        end = header.start + header.size + header.size // 64 + 1024
        deflated = self._peek(header.start, end) if deflated is None else deflated
        try:
            data: bytes = isal_zlib.decompressobj().decompress(deflated, header.size + 1)
        except (_InflateError, OverflowError, MemoryError, ValueError):
            data = b""
        if len(data) != header.size:
            raise Damaged(f"an object in {self.name} cannot be inflated", remedy=_VERIFY)
        return data

    def is_delta(self, header: Header) -> bool:
        return header.kind in (_OFS_DELTA, REF_DELTA)

    @property
    def is_index_sound(self) -> bool:
        """Whether the index is, byte for byte, what was written, and so names all that is here."""
        return bool(_sha1(self._index[:-20]).digest() == self._index[-20:])

    def checksum_problems(self) -> Iterator[str]:
        """Say whether the two files are, byte for byte, what was written."""
        body, end = _sha1(), max(0, self.size_bytes - 20)
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
            if len(out) > size:  # a few bytes may ask for gigabytes
                break
    except IndexError:
        size = -1
        out = bytearray()
        base_size = len(base)
    if len(out) != size or len(base) != base_size:
        raise Damaged("a delta in a pack does not fit what it builds on", remedy=_VERIFY)
    return bytes(out)


def delta_kind(kind: int) -> ObjectKind:
    """The kind of a whole object; Damaged for a number that means none."""
    try:
        return ObjectKind(kind)
    except ValueError:
        raise Damaged(f"an object in a pack is of no known kind ({kind})", remedy=_VERIFY) from None


def _delta_size(delta: bytes, at: int) -> tuple[int, int]:
    size, shift = 0, 0
    while True:
        byte = delta[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return size, at


class PackWriter:
    """Collects objects; `commit` makes them durable, all or none. Not for several threads at once."""

    def __init__(self, folder: Path, *, has: Callable[[bytes], bool]) -> None:
        self._folder = folder
        self._has = has
        self._added: dict[bytes, int] = {}  # by name, offset and crc in one number: a million are possible
        self._buffer = bytearray(_PACK_HEADER.size)
        self._written = 0
        self._fd = -1
        self._temporary = ""

    def holds(self, oid: bytes) -> bool:
        """Whether an object need not be added (again)."""
        return oid in self._added or self._has(oid)

    def added(self, oid: bytes) -> bool:
        """Whether an object is in this very pack."""
        return oid in self._added

    def add(self, kind: ObjectKind, data: bytes) -> bytes:
        """Add an object and return its name."""
        oid = object_id(kind, data)
        if not self.holds(oid):
            self.add_entry(encode_entry(kind, oid, data))
        return oid

    def add_entry(self, entry: PackEntry) -> None:
        """Add an object that is deflated already; one that is in this pack is passed over."""
        if entry.oid in self._added:
            return
        self._added[entry.oid] = (self._written + len(self._buffer)) << 32 | entry.crc
        self._buffer += entry.data
        if len(self._buffer) > _BUFFER_BYTES:
            self._flush()

    def commit(self) -> str | None:
        """Make everything durable and visible; the name of the pack, or None if nothing was added."""
        if not self._added:
            self.abort()
            return None
        checksum = self._finish_pack()
        oids = sorted(self._added)
        offsets = array("Q", [self._added[oid] >> 32 for oid in oids])
        crcs = array("I", [self._added[oid] & 0xFFFFFFFF for oid in oids])
        index = _index(oids, offsets, crcs, checksum)
        name = f"pack-{checksum.hex()}"
        temporary_index = f"{self._temporary}_idx"
        fd = durable.disk().create(temporary_index)
        try:
            durable.disk().write(fd, index)
            durable.disk().fsync(fd)
        finally:
            os.close(fd)
        durable.disk().rename(temporary_index, str(self._folder / f"{name}.idx"))
        durable.disk().rename(self._temporary, str(self._folder / f"{name}.pack"))
        durable.sync_folder(self._folder)  # P3: objects are on the medium before anything names them
        return name

    def withdraw(self, name: str) -> None:
        """Remove a pack that was committed and that nothing came to name."""
        for suffix in (".pack", ".idx"):  # an index alone is swept, if this is interrupted
            durable.disk().unlink(str(self._folder / f"{name}{suffix}"))
        durable.sync_folder(self._folder)

    def forget(self) -> None:
        """Give back the memory of what was added, once nobody asks for it any more."""
        self._added = {}

    def abort(self) -> None:
        """Leave nothing behind."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        for leftover in (self._temporary, f"{self._temporary}_idx"):
            if self._temporary and os.path.lexists(leftover):
                durable.disk().unlink(leftover)
        self._added.clear()
        self._buffer = bytearray()

    def _flush(self) -> None:
        if self._fd < 0:
            self._temporary = str(self._folder / f"tmp_pack_{os.urandom(8).hex()}")
            self._fd = durable.disk().create(self._temporary)
        durable.disk().write(self._fd, self._buffer)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def _finish_pack(self) -> bytes:
        header = _PACK_HEADER.pack(b"PACK", 2, len(self._added))
        if self._written == 0:
            self._buffer[: _PACK_HEADER.size] = header
            digest = new_sha1(len(self._buffer))
            digest.update(self._buffer)
            checksum = digest.digest()
        else:
            self._flush()
            durable.disk().pwrite(self._fd, header, 0)
            checksum = _checksum(self._temporary)
        self._buffer += checksum
        self._flush()
        durable.disk().fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        return checksum


def sweep(folder: Path) -> None:
    """Remove what writers that died left behind. Call it only while no other writer can be at work."""
    names = set(os.listdir(folder))
    for name in names:
        is_lone_index = name.endswith(".idx") and f"{name[:-4]}.pack" not in names
        if name.startswith(("tmp_", ".tmp-")) or is_lone_index:  # the second: made by a `git repack`
            durable.disk().unlink(str(folder / name))


def index_file(added: dict[bytes, tuple[int, int]], checksum: bytes) -> bytes:
    """The index of a pack: its objects by name, with offset and crc, and the checksum of the pack."""
    oids = sorted(added)
    offsets, crcs = array("Q", [added[oid][0] for oid in oids]), array("I", [added[oid][1] for oid in oids])
    return _index(oids, offsets, crcs, checksum)


def _index(oids: Sequence[bytes], offsets: array[int], crcs: array[int], checksum: bytes) -> bytes:
    """An index. `oids` are sorted, and the others in the same order."""
    counts = [0] * 256
    for oid in oids:
        counts[oid[0]] += 1
    near, far = array("I"), array("Q")
    for offset in offsets:
        if offset < _FAR_OFFSET:
            near.append(offset)
        else:
            near.append(_FAR_OFFSET | len(far))
            far.append(offset)
    columns = [_big_endian(column) for column in (crcs, near, far)]
    parts = [INDEX_MAGIC, struct.pack(">256I", *accumulate(counts)), b"".join(oids), *columns, checksum]
    digest = new_sha1(sum(map(len, parts)))
    for part in parts:
        digest.update(part)
    return b"".join((*parts, digest.digest()))


def _big_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _sha1(data: bytes | bytearray | memoryview = b"") -> hashlib._Hash:
    from hashlib import sha1  # start-up cost: OpenSSL, which reading needs only for `verify`

    return sha1(data)


def _checksum(path: str) -> bytes:
    digest = _sha1()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()


def index_lone_packs(folder: Path) -> None:
    """Make the index of every pack that has none, if the pack alone is enough for that (P3). Needs the store's lock.

    A pack with deltas, or a damaged one, is left as it is, for `verify` to report. A running git may be about to put
    the index in place itself: it has the same content.
    """
    names = set(os.listdir(folder))
    for name in names:
        if name.startswith("pack-") and name.endswith(".pack") and f"{name[:-5]}.idx" not in names:
            found = _entries(folder / name)
            if found is not None:
                added, checksum = found
                via = folder / f"tmp_idx_{name[5:-5]}"
                durable.write_atomically(folder / f"{name[:-5]}.idx", index_file(added, checksum), via=via)


def _entries(path: Path) -> tuple[dict[bytes, tuple[int, int]], bytes] | None:
    """Every object of a pack, with where it is and its checksum, and the checksum of the pack; None if it has deltas
    or is not what was written."""
    with open(path, "rb") as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        if size < 32 or os.pread(fd, 4, 0) != b"PACK":
            return None
        checksum = os.pread(fd, 20, size - 20)
        body = _sha1()
        for at in range(0, size - 20, _CHUNK_BYTES):
            body.update(os.pread(fd, min(_CHUNK_BYTES, size - 20 - at), at))
        if body.digest() != checksum:
            return None
        added: dict[bytes, tuple[int, int]] = {}
        at = 12
        for _ in range(int.from_bytes(os.pread(fd, 4, 8), "big")):
            try:
                found = _object(fd, at)
            except (zlib.error, IndexError):
                found = None
            if found is None:
                return None
            oid, end = found
            added[oid] = (at, zlib.crc32(os.pread(fd, end - at, at)))
            at = end
        return added, checksum


def _object(fd: int, start: int) -> tuple[bytes, int] | None:
    """The name of the object that begins here, and where it ends; None for a delta."""
    header = os.pread(fd, _HEADER_BYTES, start)
    kind, length = (header[0] >> 4) & 7, 1
    if kind not in _KINDS:
        return None
    while header[length - 1] & 0x80:
        length += 1
    at, inflater, content = start + length, zlib.decompressobj(), []
    while not inflater.eof:
        piece = os.pread(fd, _CHUNK_BYTES, at)
        if not piece:
            return None  # it does not end, whatever the checksum says
        content.append(inflater.decompress(piece))
        at += len(piece) - len(inflater.unused_data)
    return object_id(ObjectKind(kind), b"".join(content)), at
