"""Weaving: where the bytes of a state are cut into parts, so that equal stretches become equal parts.

Cuts depend on the content alone: the same state is always cut the same way, by whatever process, after whatever
history. Elements of lists and entries of dicts are the units. A large one is a part; small ones gather until one of
them says by its checksum that a part ends. Names gather in ropes in the same manner, so that a list that grows by one
element costs that element and a few names. The memory of the last state (`Woven`) only saves work: what is known to
begin with the same bytes is not cut and named again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from holdfast.flow.rope import Held, Piece, Ref, Rope, checksum, make_root, make_rope
from holdfast.serde.unchanged import Seen

SMALL_BYTES = 512
"""Smaller elements share a part."""
GATHERED_BYTES = 1024
"""What small elements come to in a part, on average."""
SPLIT_BYTES = 4096
"""Lists and dicts from this size on are looked into."""
LONG_BYTES = 65536
"""Any other value from this size on is cut within."""
_MOST_GATHERED = 2048
_LEAST_NAMES, _MOST_NAMES, _NAMES_MASK = 4, 32, 7
_SPLICED = 4
_PLACES = re.compile(rb"[\n .,\x00\x80-\x8f\xc0-\xcf]")
_LONG_LEAST, _LONG_MOST, _LONG_MASK, _LONG_TRIES, _WINDOW = 4096, 32768, 127, 1024, 32

Encode = Callable[[Any, str], bytes]
Name = Callable[[bytes], bytes]
Look = Callable[[list[Any]], Seen | None]


class Changing(Exception):
    """The state is changed by another thread while it is woven."""


class Run:
    """Elements in order, cut so far; grows at its end only."""

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

    def add(self, element: bytes, weaver: Weaver) -> None:
        """One more element, whole."""
        size = len(element)
        if size < SMALL_BYTES:
            self._pending.append(element)
            self._pending_bytes += size
            if self._pending_bytes >= _MOST_GATHERED or crc32(element) * GATHERED_BYTES < size << 32:
                self._gather(weaver)
            return
        self._gather(weaver)
        for piece in (element,) if size < LONG_BYTES else cut(element):
            self._push(weaver.leaf(piece), weaver)

    def add_nested(self, before: bytes, pieces: list[Piece], weaver: Weaver) -> None:
        """One more element that has pieces of its own; those of the first few lie open, and cost no part."""
        if before:
            self._pending.append(before)
            self._pending_bytes += len(before)
        self._gather(weaver)
        self._nested += 1
        if self._nested > _SPLICED:
            self._push(weaver.rope(pieces), weaver)
        else:
            self._open = [*self.pieces(), *pieces]  # what changes often ends the gathering of names
            self._levels = [[]]

    def pieces(self) -> list[Piece]:
        """All of it; what has not yet gathered to a part lies open."""
        pieces = [*self._open, *(piece for level in reversed(self._levels) for piece in level)]
        return [*pieces, b"".join(self._pending)] if self._pending else pieces

    def _gather(self, weaver: Weaver) -> None:
        if not self._pending:
            return
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        if len(data) < SMALL_BYTES:
            self._levels[0].append(data)
        else:
            self._push(weaver.leaf(data), weaver)

    def _push(self, ref: Ref, weaver: Weaver, level: int = 0) -> None:
        if level == len(self._levels):
            self._levels.append([])
        names = self._levels[level]
        names.append(ref)
        if len(names) >= _MOST_NAMES or (len(names) >= _LEAST_NAMES and not ref.name[0] & _NAMES_MASK):
            self._levels[level] = []
            self._push(weaver.rope(names), weaver, level + 1)


class Woven(NamedTuple):
    """What is remembered of a list or a dict that was looked into."""

    encoded: bytes
    """Of a list: all of it."""
    header: int
    """How many bytes come before its elements."""
    length: int
    run: Run | None
    names: frozenset[bytes]
    """All parts that it needs."""
    inner: Mapping[str, Woven]
    """Of a dict: what is remembered of its values."""
    seen: Seen | None = None
    """Of a list: what tells that it still begins with all that it held."""


class Grown(NamedTuple):
    """A remembered list that was looked at again: its new elements if it goes on from there; what tells next time."""

    fresh: list[Any]
    elements: list[bytes] | None
    seen: Seen | None


_NOT_GROWN = Grown([], None, None)


class Inside(NamedTuple):
    """A list or a dict that was looked into."""

    pieces: list[Piece]
    woven: Woven | None


class Weaver:
    """Cuts one state. `parts` then holds the parts that are new, `names` all that it needs."""

    def __init__(self, encode: Encode, name: Name, known: Container[bytes] = (), look: Look | None = None) -> None:
        self._encode = encode
        self._name = name
        self._known = known
        self._look = look
        self._grown: dict[int, Grown] = {}  # by the memory they go on from: one list may lie in two places
        self.parts: dict[bytes, Held] = {}
        self.names: set[bytes] = set()

    def weave(
        self, state: Any, memory: Woven | None, *, where: str = "state"
    ) -> tuple[Rope, Woven | None, list[bytes]]:
        """The rope of a state, what to remember of it, and the state encoded, in pieces that follow each other.

        Refused if something in it cannot be stored.
        """
        elements = self._elements(state, where, memory)
        if elements is None:
            encoded = [self._encode(state, where)]
            inside = self._inside(state, encoded[0], memory)
        else:
            encoded = [_map_header(len(elements)), *elements]
            inside = self._dict(state, encoded[0], elements, memory) if _size(encoded) >= SPLIT_BYTES else None
        if inside is None:
            run = Run()
            run.add(b"".join(encoded), self)
            inside = Inside(run.pieces(), None)
        return make_root(inside.pieces, _size(encoded), checksum(encoded), len(self.names)), inside.woven, encoded

    def leaf(self, data: bytes) -> Ref:
        return self._part(b"", data, False)

    def rope(self, pieces: list[Piece]) -> Ref:
        return self._part(*make_rope(pieces), True)

    def _part(self, refs: bytes, data: bytes, is_rope: bool) -> Ref:
        name = self._name((b"\1" + refs if is_rope else b"\0") + data)
        self.names.add(name)
        if name not in self._known:
            self.parts[name] = (refs, data)
        return Ref(name, is_rope)

    def _elements(self, state: Any, where: str, memory: Woven | None) -> list[bytes] | None:
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

    def _again(self, values: list[Any], where: str, memory: Woven) -> bytes:
        """A list that is remembered, encoded; where it goes on from there, only what is new is.

        It is looked at before it is encoded and after: what somebody changes meanwhile is not taken for known.
        """
        if self._look is None or memory.run is None:
            return self._encode(values, where)
        if memory.seen is None or not memory.seen.still(values):
            seen = self._look(values) if memory.seen is None else None  # one that changes each time is not looked at
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

    def _inside(self, value: Any, encoded: bytes, memory: Woven | None) -> Inside | None:
        """Look into a large list or dict; None of anything else, and of dicts that are not written as such."""
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

    def _list(self, values: list[Any], encoded: bytes, header: int, memory: Woven | None) -> Inside:
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
        seen = grown.seen if grown.seen and len(grown.seen.items) == length else None  # of all of it, or of no use
        woven = Woven(encoded, header, length, run, frozenset(self.names), {}, seen)
        self.names |= names
        return Inside([encoded[:header], *run.pieces()], woven)

    def _dict(self, values: dict[str, Any], header: bytes, elements: list[bytes], memory: Woven | None) -> Inside:
        run = Run()
        inner: dict[str, Woven] = {}
        remembered = memory.inner if memory else {}
        for (key, value), name, element in zip(values.items(), elements[::2], elements[1::2], strict=True):
            inside = self._inside(value, element, remembered.get(key))
            if inside is None:
                run.add(name + element, self)
            else:
                if inside.woven is not None:
                    inner[key] = inside.woven
                run.add_nested(name, inside.pieces, self)
        return Inside([header, *run.pieces()], Woven(b"", 0, len(values), None, frozenset(), inner))


def cut(data: bytes) -> Iterator[bytes]:
    """Cut long bytes where their content says: after a likely byte, if the bytes before it have the right checksum."""
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
    """Changing if what was encoded one by one is not what was encoded as a whole: the parts would not be the state."""
    if b"".join(elements) != memoryview(encoded)[start:]:
        raise Changing


def _goes_on(values: list[Any], encoded: bytes, header: int, memory: Woven) -> bool:
    """Whether a list begins with all that it held when it was remembered."""
    return memory.length <= len(values) and encoded.startswith(memoryview(memory.encoded)[memory.header :], header)


def _size(pieces: Sequence[bytes]) -> int:
    return sum(map(len, pieces))


def _is_text(encoded: bytes) -> bool:
    return 0xA0 <= encoded[0] <= 0xBF or 0xD9 <= encoded[0] <= 0xDB


def _map_header(parts: int) -> bytes:
    """Says that a map of so many keys and values follows."""
    count = parts // 2
    if count < 16:
        return bytes([0x80 | count])
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def _array_header(count: int) -> bytes:
    """Says that an array of so many elements follows."""
    if count < 16:
        return bytes([0x90 | count])
    return b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")


def _header(encoded: bytes) -> int:
    """How many bytes say that an array or a map follows; 0 of anything else."""
    first = encoded[0]
    if 0x80 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}.get(first, 0)
