"""Segments: the bytes of a state as a sequence of pieces, each a literal or a reference to a part that states share.

The pieces joined are the encoded state, wherever it was cut (`holdfast.flow.chunking`). A group of segments has `refs`,
the names of its parts, and a `shape`: a MessagePack array in which bytes stand for themselves, `n` for the next n
parts, and `-n` for the next n parts that are groups themselves. The shape of a whole state begins with its size, its
CRC-32 and the number of its parts.
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
    """A piece that is stored in a part."""

    name: bytes
    is_group: bool


Piece = bytes | Ref
Fetch: TypeAlias = Callable[[Sequence[bytes], int], Mapping[bytes, "PartContent"]]
"""Reads parts by name, given how many the state needs in all; may return more than was asked for."""
Joined: TypeAlias = Callable[[int, int], bytes | None]
"""Joins all parts of a state of this size at once; None if they have to be joined one by one."""


class SegmentGroup(NamedTuple):
    """Pieces as they are stored."""

    refs: bytes
    shape: bytes


PartContent: TypeAlias = tuple[bytes, bytes]
"""A part that has been opened: its refs, and its bytes or, if it has refs, its shape."""


def make_group(pieces: Iterable[Piece], *head: int) -> SegmentGroup:
    """Encode pieces."""
    refs: list[bytes] = []
    shape: list[Any] = list(head)
    count = 0
    for piece in pieces:
        if isinstance(piece, bytes):
            count = 0
            shape.append(piece)
            continue
        sign = -1 if piece.is_group else 1
        if count * sign > 0:
            shape[-1] += sign
        else:
            shape.append(sign)
        count = shape[-1]
        refs.append(piece.name)
    return SegmentGroup(b"".join(refs), encode(shape))


def make_root(pieces: Sequence[Piece], size: int, checksum: int, parts: int) -> SegmentGroup:
    """Encode the pieces of a whole state."""
    return make_group(pieces, size, checksum, parts)


def state_bytes(root: SegmentGroup) -> int:
    """The size of an encoded state, from its root alone."""
    return _head(_shape(root.shape))[0]


def checksum(pieces: Iterable[bytes]) -> int:
    """The CRC-32 of consecutive pieces."""
    crc = 0
    for piece in pieces:
        crc = isal_zlib.crc32(piece, crc)
    return crc


def join(root: SegmentGroup, fetch: Fetch, *, max_bytes: int, at_once: Joined | None = None) -> bytes:
    """The bytes of a state. KeyError if a part is missing, Damaged if they are not what was saved.

    `at_once`: tried first, if the state has parts.
    """
    pieces = _shape(root.shape)
    size, crc, parts = _head(pieces)
    if size > max_bytes:
        raise Refused(f"this state has {size:,} bytes, more than {max_bytes:,}", hint="Raise max_state_bytes.")
    if type(root.refs) is not bytes or len(root.refs) % NAME_BYTES:
        raise Damaged("stored state is corrupt: bad part names", hint="Use another checkpoint.")
    joined = at_once(size, parts) if at_once and root.refs else None
    if joined is None:
        joined = b"".join(_lay_out(root.refs, pieces[3:], size, fetch, parts))
    if len(joined) != size or checksum([joined]) != crc:
        raise Damaged("stored state is corrupt: wrong checksum", hint="Use another checkpoint.")
    return joined


def _lay_out(refs: bytes, shape: Sequence[Any], size: int, fetch: Fetch, parts: int) -> list[bytes]:
    """The pieces of a state in order."""
    found = fetch(names_in(refs), parts) if refs else {}
    if len(found) >= parts:  # most likely one read returned everything
        with suppress(KeyError):
            return _Walk(found, size).pieces(refs, shape, 0)
    return _Walk(_fetch_all(refs, found, fetch, parts), size).pieces(refs, shape, 0)


def _fetch_all(refs: bytes, found: Mapping[bytes, PartContent], fetch: Fetch, parts: int) -> dict[bytes, PartContent]:
    """All parts that a state needs, level by level; `found` has those of the first level."""
    collected: dict[bytes, PartContent] = {}
    wanted = names_in(refs)
    for level in range(_MOST_LEVELS):
        if not wanted:
            return collected
        if level:
            found = fetch(wanted, parts)
        new = {name: found[name] for name in wanted}
        collected.update(new)
        groups = [refs for refs, _ in new.values() if refs]
        if not _BYTES.issuperset(map(type, groups)):
            raise Damaged("stored part is corrupt: bad part names", hint="Use another checkpoint.")
        wanted = [name for name in dict.fromkeys(names_in(b"".join(groups))) if name not in collected] if groups else []
    raise Damaged("stored state is corrupt: parts are nested in a loop", hint="Use another checkpoint.")


class _Walk:
    """Puts pieces in order; stops if there are more than the size of the state allows."""

    def __init__(self, collected: Mapping[bytes, PartContent], size: int) -> None:
        self._parts = collected
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
                raise Damaged("stored state is corrupt: parts do not fit together", hint="Use another checkpoint.")
            if item > 0:
                laid += [self._parts[name][1] for name in names]
            else:
                for name in names:
                    own_refs, data = self._parts[name]
                    if type(own_refs) is not bytes:
                        raise Damaged("stored part is corrupt: bad part names", hint="Use another checkpoint.")
                    laid += self.pieces(own_refs, _shape(data), level + 1)
            at = end
        return laid


def _shape(data: bytes) -> list[Any]:
    shape = decode(data)
    if type(shape) is not list or not _ITEMS.issuperset(map(type, shape)):
        raise Damaged("stored state is corrupt: bad segment layout", hint="Use another checkpoint.")
    return shape


def _head(shape: list[Any]) -> tuple[int, int, int]:
    if len(shape) < 3 or any(type(each) is not int or each < 0 for each in shape[:3]):
        raise Damaged("stored state is corrupt: no size", hint="Use another checkpoint.")
    size, crc, parts = shape[:3]
    return size, crc, parts
