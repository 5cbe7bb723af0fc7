"""Ropes: the bytes of a state as a sequence of pieces, each written here or held by a part that others share.

The pieces joined are the encoded state, whatever made the cuts (`holdfast.flow.weaving`). A rope has `refs`, the names
of its parts, and a `shape`: a MessagePack array in which bytes stand for themselves, `n` for the next n parts, and
`-n` for the next n parts that are ropes themselves. That of a whole state begins with its size, its CRC-32 and the
number of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from isal import isal_zlib

from holdfast.errors import Damaged, Refused
from holdfast.flow.store import NAME_BYTES, names_in
from holdfast.serde.msgpack import decode, encode

_MOST_LEVELS = 32
_BYTES, _ITEMS = frozenset({bytes}), frozenset({int, bytes})


class Ref(NamedTuple):
    """A piece that a part holds."""

    name: bytes
    is_rope: bool


Piece = bytes | Ref
Fetch: TypeAlias = Callable[[Sequence[bytes], int], Mapping[bytes, "Held"]]
"""Brings parts by their names; is told how many there are in all, and may bring more than it was asked for."""


class Rope(NamedTuple):
    """Pieces, as they are stored."""

    refs: bytes
    shape: bytes


Held: TypeAlias = tuple[bytes, bytes]
"""A part that has been opened: its refs, and its bytes or, if it has refs, its shape."""


def make_rope(pieces: Iterable[Piece], *head: int) -> Rope:
    """Write pieces down."""
    refs: list[bytes] = []
    shape: list[Any] = list(head)
    count = 0
    for piece in pieces:
        if isinstance(piece, bytes):
            count = 0
            shape.append(piece)
            continue
        sign = -1 if piece.is_rope else 1
        if count * sign > 0:
            shape[-1] += sign
        else:
            shape.append(sign)
        count = shape[-1]
        refs.append(piece.name)
    return Rope(b"".join(refs), encode(shape))


def make_root(pieces: Sequence[Piece], size: int, checksum: int, parts: int) -> Rope:
    """The rope of a whole state."""
    return make_rope(pieces, size, checksum, parts)


def checksum(pieces: Iterable[bytes]) -> int:
    """The CRC-32 of pieces that follow each other."""
    crc = 0
    for piece in pieces:
        crc = isal_zlib.crc32(piece, crc)
    return crc


def join(root: Rope, fetch: Fetch, *, max_bytes: int) -> bytes:
    """The bytes of a state. KeyError if a part is not there, Damaged if they are not what was written."""
    pieces = _shape(root.shape)
    size, crc, parts = _head(pieces)
    if size > max_bytes:
        raise Refused(f"this state has {size:,} bytes, more than {max_bytes:,}", hint="Raise max_state_bytes.")
    if type(root.refs) is not bytes or len(root.refs) % NAME_BYTES:
        raise Damaged("a state names no parts", hint="Use another checkpoint.")
    joined = b"".join(_lay_out(root.refs, pieces[3:], size, fetch, parts))
    if len(joined) != size or checksum([joined]) != crc:
        raise Damaged("a state is not what was saved", hint="Use another checkpoint.")
    return joined


def _lay_out(refs: bytes, shape: Sequence[Any], size: int, fetch: Fetch, parts: int) -> list[bytes]:
    """The pieces of a state in order."""
    found = fetch(names_in(refs), parts) if refs else {}
    if len(found) >= parts:  # most likely all that is needed came at once
        with suppress(KeyError):
            return _Walk(found, size).pieces(refs, shape, 0)
    return _Walk(_fetch_all(refs, found, fetch, parts), size).pieces(refs, shape, 0)


def _fetch_all(refs: bytes, found: Mapping[bytes, Held], fetch: Fetch, parts: int) -> dict[bytes, Held]:
    """All parts that a rope needs, level by level; those of the first one are found already."""
    held: dict[bytes, Held] = {}
    wanted = names_in(refs)
    for level in range(_MOST_LEVELS):
        if not wanted:
            return held
        if level:
            found = fetch(wanted, parts)
        new = {name: found[name] for name in wanted}
        held.update(new)
        ropes = [refs for refs, _ in new.values() if refs]
        if not _BYTES.issuperset(map(type, ropes)):
            raise Damaged("a part names no parts", hint="Use another checkpoint.")
        wanted = [name for name in dict.fromkeys(names_in(b"".join(ropes))) if name not in held] if ropes else []
    raise Damaged("parts of a state are nested without end", hint="Use another checkpoint.")


class _Walk:
    """Lays pieces out in order, and stops when there are more than there can be."""

    def __init__(self, held: Mapping[bytes, Held], size: int) -> None:
        self._held = held
        self._left = size + 64  # every piece has at least one byte

    def pieces(self, refs: bytes, shape: Sequence[Any], level: int) -> list[bytes]:
        laid: list[bytes] = []
        at = 0
        for item in shape:
            if isinstance(item, bytes):
                laid.append(item)
                self._left -= 1
                continue
            end = at + abs(item) * NAME_BYTES
            names = names_in(refs[at:end])
            self._left -= len(names)
            if len(names) != abs(item) or self._left < 0 or level > _MOST_LEVELS:
                raise Damaged("the parts of a state do not fit together", hint="Use another checkpoint.")
            if item > 0:
                laid += [self._held[name][1] for name in names]
            else:
                for name in names:
                    own_refs, data = self._held[name]
                    if type(own_refs) is not bytes:
                        raise Damaged("a part names no parts", hint="Use another checkpoint.")
                    laid += self.pieces(own_refs, _shape(data), level + 1)
            at = end
        return laid


def _shape(data: bytes) -> list[Any]:
    shape = decode(data)
    if type(shape) is not list or not _ITEMS.issuperset(map(type, shape)):
        raise Damaged("a stored state has no shape", hint="Use another checkpoint.")
    return shape


def _head(shape: list[Any]) -> tuple[int, int, int]:
    if len(shape) < 3 or any(type(each) is not int or each < 0 for each in shape[:3]):
        raise Damaged("a stored state has no size", hint="Use another checkpoint.")
    size, crc, parts = shape[:3]
    return size, crc, parts
