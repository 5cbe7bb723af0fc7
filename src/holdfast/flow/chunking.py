"""Chunking: where the bytes of a state are cut into parts, so that equal stretches become equal parts.

Cuts depend on the content alone: every process cuts the same state the same way, whatever was saved before. The units
are elements of lists and entries of dicts. A large one is a part; small ones are collected until the checksum of one
says that the part ends. Names of parts are collected into groups in the same way, so a list that grows by one element
costs that element and a few names. `ChunkedValue`, what is remembered of the last state, only saves work: a beginning
that is known to be the same is not cut and named again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from holdfast.flow.segments import PartContent, Piece, Ref, SegmentGroup, checksum, make_group, make_root
from holdfast.serde.list_prefix import ListPrefix

SMALL_BYTES = 512
"""Smaller elements share a part."""
GATHERED_BYTES = 1024
"""Average size of a part that small elements share."""
SPLIT_BYTES = 4096
"""Lists and dicts of at least this size are split into their elements."""
LONG_BYTES = 65536
"""Any other value of at least this size is cut by content."""
_MOST_GATHERED = 2048
_LEAST_NAMES, _MOST_NAMES, _NAMES_MASK = 4, 32, 7
_SPLICED = 4
_PLACES = re.compile(rb"[\n .,\x00\x80-\x8f\xc0-\xcf]")
_LONG_LEAST, _LONG_MOST, _LONG_MASK, _LONG_TRIES, _WINDOW = 4096, 32768, 127, 1024, 32

Encode = Callable[[Any, str], bytes]
Name = Callable[[bytes], bytes]
Look = Callable[[list[Any]], ListPrefix | None]


class Changing(Exception):
    """Another thread changes the state while it is being chunked."""


class Run:
    """Elements in order, cut so far; grows only at its end."""

    __slots__ = ("_levels", "_nested", "_open", "_pending", "_pending_bytes")

    def __init__(self) -> None:
        self._levels: list[list[Piece]] = [[]]
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._nested = 0
        self._open: list[Piece] = []

    def copy(self) -> Run:
        twin = Run()
        twin._levels = [list(level) for level in self._levels]
        twin._pending = list(self._pending)
        twin._pending_bytes = self._pending_bytes
        twin._nested = self._nested
        twin._open = list(self._open)
        return twin

    def add(self, element: bytes, chunker: Chunker) -> None:
        """Add an element."""
        size = len(element)
        if size < SMALL_BYTES:
            self._pending.append(element)
            self._pending_bytes += size
            if self._pending_bytes >= _MOST_GATHERED or crc32(element) * GATHERED_BYTES < size << 32:
                self._gather(chunker)
            return
        self._gather(chunker)
        for piece in (element,) if size < LONG_BYTES else cut(element):
            self._push(chunker.leaf(piece), chunker)

    def add_nested(self, before: bytes, pieces: list[Piece], chunker: Chunker) -> None:
        """Add an element that was split itself; the pieces of the first few are listed here, and cost no part."""
        if before:
            self._pending.append(before)
            self._pending_bytes += len(before)
        self._gather(chunker)
        self._nested += 1
        if self._nested > _SPLICED:
            self._push(chunker.group(pieces), chunker)
        else:
            self._open = [
                *self.pieces(),
                *pieces,
            ]  # such an element changes often: what comes before it stays a stable group
            self._levels = [[]]

    def pieces(self) -> list[Piece]:
        """All pieces; bytes that do not yet make up a part are listed as they are."""
        pieces = [*self._open, *(piece for level in reversed(self._levels) for piece in level)]
        return [*pieces, b"".join(self._pending)] if self._pending else pieces

    def _gather(self, chunker: Chunker) -> None:
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        if len(data) < SMALL_BYTES:
            self._levels[0].append(data)
        else:
            self._push(chunker.leaf(data), chunker)

    def _push(self, ref: Ref, chunker: Chunker, level: int = 0) -> None:
        if level == len(self._levels):
            self._levels.append([])
        names = self._levels[level]
        names.append(ref)
        if len(names) >= _MOST_NAMES or (len(names) >= _LEAST_NAMES and not ref.name[0] & _NAMES_MASK):
            self._levels[level] = []
            self._push(chunker.group(names), chunker, level + 1)


class ChunkedValue(NamedTuple):
    """What is remembered of a list or a dict that was split."""

    encoded: bytes
    """Of a list: the encoded list."""
    header: int
    """How many bytes come before its elements."""
    length: int
    run: Run | None
    names: Set[bytes]
    """All parts that it needs. Not changed any more."""
    inner: Mapping[str, ChunkedValue]
    """Of a dict: the same for its values."""
    seen: ListPrefix | None = None
    """Of a list: proves that it still begins with the same elements."""


class Grown(NamedTuple):
    """A remembered list, checked again: its new elements if it only grew, and the proof for the next time."""

    fresh: list[Any]
    elements: list[bytes] | None
    seen: ListPrefix | None


_NOT_GROWN = Grown([], None, None)


class Inside(NamedTuple):
    """A list or a dict that was split."""

    pieces: list[Piece]
    chunked: ChunkedValue | None


class Chunker:
    """Chunks one state. Afterwards `parts` has the new parts, `names` the names of all parts that it needs."""

    def __init__(self, encode: Encode, name: Name, known: Container[bytes] = (), look: Look | None = None) -> None:
        self._encode = encode
        self._name = name
        self._known = known
        self._look = look
        self._grown: dict[int, Grown] = {}  # by what was remembered: one list may be in the state twice
        self.parts: dict[bytes, PartContent] = {}
        self.names: set[bytes] = set()

    def chunk(self, state: Any, memory: ChunkedValue | None) -> tuple[SegmentGroup, ChunkedValue | None, list[bytes]]:
        """The segments of a state, what to remember of it, and the encoded state in consecutive pieces.

        Refused if something in it cannot be stored.
        """
        elements = self._elements(state, "state", memory)
        if elements is None:
            encoded = [self._encode(state, "state")]
            inside = self._inside(state, encoded[0], memory)
        else:
            encoded = [_map_header(len(elements)), *elements]
            inside = self._dict(state, encoded[0], elements, memory) if _size(encoded) >= SPLIT_BYTES else None
        if inside is None:
            run = Run()
            run.add(b"".join(encoded), self)
            inside = Inside(run.pieces(), None)
        return make_root(inside.pieces, _size(encoded), checksum(encoded), len(self.names)), inside.chunked, encoded

    def leaf(self, data: bytes) -> Ref:
        return self._part(b"", data, False)

    def group(self, pieces: list[Piece]) -> Ref:
        return self._part(*make_group(pieces), True)

    def _part(self, refs: bytes, data: bytes, is_group: bool) -> Ref:
        name = self._name((b"\1" + refs if is_group else b"\0") + data)
        self.names.add(name)
        if name not in self._known:
            self.parts[name] = (refs, data)
        return Ref(name, is_group)

    def _elements(self, state: Any, where: str, memory: ChunkedValue | None) -> list[bytes] | None:
        """The keys and values of a dict with text keys, one by one, so that they are not encoded twice."""
        if type(state) is not dict:
            return None
        elements: list[bytes] = []
        remembered = memory.inner if memory else {}
        for key, value in state.items():
            name = self._encode(key, f"a key of {where}")
            if not _is_text(name):
                return None
            place = f"{where}[{key!r}]"
            known = remembered.get(key) if type(value) is list else None
            elements += (name, self._encode(value, place) if known is None else self._again(value, place, known))
        return elements

    def _again(self, values: list[Any], where: str, memory: ChunkedValue) -> bytes:
        """Encode a list that is remembered; if it only grew, encode only its new elements.

        It is checked before and after: an element that another thread changes meanwhile does not count as known.
        """
        if self._look is None or memory.run is None:
            return self._encode(values, where)
        if memory.seen is None or not memory.seen.still(values):
            seen = self._look(values) if memory.seen is None else None  # not if it changes each time
            encoded = self._encode(values, where)
            self._grown[id(memory)] = Grown([], None, seen if seen and seen.still(values) else None)
            return encoded
        fresh = values[memory.length :]
        seen = self._look(fresh)
        elements = [self._encode(value, f"{where}[{at}]") for at, value in enumerate(fresh, memory.length)]
        is_sure = seen is not None and seen.still(fresh)
        self._grown[id(memory)] = Grown(fresh, elements, memory.seen.plus(seen) if seen and is_sure else None)
        known = memoryview(memory.encoded)[memory.header :]
        return b"".join((_array_header(memory.length + len(fresh)), known, *elements))

    def _inside(self, value: Any, encoded: bytes, memory: ChunkedValue | None) -> Inside | None:
        """Split a large list or dict; None for anything else, and for dicts that are not encoded as maps."""
        if len(encoded) < SPLIT_BYTES:
            return None
        header = _header(encoded)
        if type(value) is list and header:
            return self._list(value, encoded, header, memory)
        if type(value) is dict and header:
            elements = self._elements(value, "", None) or []
            _check_same(elements, encoded, header)
            return self._dict(value, encoded[:header], elements, memory)
        return None

    def _list(self, values: list[Any], encoded: bytes, header: int, memory: ChunkedValue | None) -> Inside:
        grown = self._grown.pop(id(memory), _NOT_GROWN)
        run, fresh, known, names = Run(), values, 0, self.names
        if memory and memory.run and (grown.elements is not None or _goes_on(values, encoded, header, memory)):
            run, known = memory.run.copy(), memory.length
            fresh = values[known:] if grown.elements is None else grown.fresh
        self.names = set(memory.names) if known and memory else set()
        elements = grown.elements
        if elements is None:
            elements = [self._encode(value, "") for value in fresh]
            _check_same(elements, encoded, header + (len(memory.encoded) - memory.header if memory and known else 0))
        for value, element in zip(fresh, elements, strict=True):
            inside = self._inside(value, element, None)
            if inside is None:
                run.add(element, self)
            else:
                run.add_nested(b"", inside.pieces, self)
        length = known + len(fresh)
        seen = grown.seen if grown.seen and len(grown.seen.items) == length else None  # useful only for the whole list
        own = self.names
        self.names = own | names
        chunked = ChunkedValue(encoded, header, length, run, own, {}, seen)
        return Inside([encoded[:header], *run.pieces()], chunked)

    def _dict(
        self, values: dict[str, Any], header: bytes, elements: list[bytes], memory: ChunkedValue | None
    ) -> Inside:
        run = Run()
        inner: dict[str, ChunkedValue] = {}
        remembered = memory.inner if memory else {}
        for (key, value), name, element in zip(values.items(), elements[::2], elements[1::2], strict=True):
            inside = self._inside(value, element, remembered.get(key))
            if inside is None:
                run.add(name + element, self)
            else:
                if inside.chunked is not None:
                    inner[key] = inside.chunked
                run.add_nested(name, inside.pieces, self)
        return Inside([header, *run.pieces()], ChunkedValue(b"", 0, len(values), None, frozenset(), inner))


def cut(data: bytes) -> Iterator[bytes]:
    """Cut long bytes by content: after one of certain bytes, if the bytes before it have the right checksum."""
    start = 0
    while len(data) - start > _LONG_MOST:
        end = _place(data, start)
        yield data[start:end]
        start = end
    yield data[start:]


def _place(data: bytes, start: int) -> int:
    end = start + _LONG_MOST
    for match in islice(_PLACES.finditer(data, start + _LONG_LEAST, end), _LONG_TRIES):
        if not crc32(data[match.end() - _WINDOW : match.end()]) & _LONG_MASK:
            return match.end()
    return end


def _check_same(elements: list[bytes], encoded: bytes, start: int) -> None:
    """Raise Changing if the elements encoded one by one are not the encoded whole: the parts would not be the state."""
    if b"".join(elements) != memoryview(encoded)[start:]:
        raise Changing


def _goes_on(values: list[Any], encoded: bytes, header: int, memory: ChunkedValue) -> bool:
    """Whether a list begins with all elements that it had when it was remembered."""
    return memory.length <= len(values) and encoded.startswith(memoryview(memory.encoded)[memory.header :], header)


def _size(pieces: Sequence[bytes]) -> int:
    return sum(map(len, pieces))


def _is_text(encoded: bytes) -> bool:
    return 0xA0 <= encoded[0] <= 0xBF or 0xD9 <= encoded[0] <= 0xDB


def _map_header(parts: int) -> bytes:
    """The MessagePack header of a map."""
    count = parts // 2
    if count < 16:
        return bytes([0x80 | count])
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def _array_header(count: int) -> bytes:
    """The MessagePack header of an array."""
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def _header(encoded: bytes) -> int:
    """The size of the header of an array or a map; 0 for anything else."""
    first = encoded[0]
    if 0x80 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}.get(first, 0)
