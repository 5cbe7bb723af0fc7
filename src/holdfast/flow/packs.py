"""Packs: small parts that share a row, as they are stored or sent.

A pack is a row whose name has `PACK_NAME_BYTES` bytes. Its data is a MessagePack array of name, refs, data, name, refs,
data … with headers that are always as long (`_native_parts.c` reads the same).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from holdfast.errors import Damaged
from holdfast.flow.store import PartRow
from holdfast.serde.msgpack import decode_byte_strings

PACK_NAME_BYTES = 8
"""The name of a pack has another size than that of a part."""
ENTRY_BYTES = 28
"""What a pack needs for a part besides its refs and its data: its name, and three MessagePack headers."""
HEADER_BYTES = 5
_HEADER = b"\xdd"  # of a MessagePack array; four bytes with its length follow


def is_pack(row: Sequence[Any]) -> bool:
    return type(row[0]) is bytes and len(row[0]) == PACK_NAME_BYTES


def pack_bytes(parts: Iterable[PartRow]) -> int:
    """What parts take in a pack."""
    return sum([ENTRY_BYTES + len(refs) + len(data) for _, refs, data in parts])


def encode_pack(parts: Sequence[PartRow]) -> bytes:
    """The data of a pack."""
    pieces = [_HEADER, (3 * len(parts)).to_bytes(4, "big")]
    for name, refs, data in parts:
        pieces += (b"\xc4\x10", name, b"\xc6", len(refs).to_bytes(4, "big"), refs)
        pieces += (b"\xc6", len(data).to_bytes(4, "big"), data)
    return b"".join(pieces)


def parts_of(row: PartRow) -> list[PartRow]:
    """The parts of a pack. Damaged if it is none."""
    items = decode_byte_strings(row[2]) if type(row[2]) is bytes and row[1] == b"" else [b""]
    if len(items) % 3:
        raise Damaged("stored parts are corrupt", hint="Use another checkpoint.")
    each = iter(items)
    return list(zip(each, each, each, strict=True))


def readable(row: Sequence[Any]) -> list[PartRow] | None:
    """The parts of a pack, or None if it is damaged."""
    with suppress(Damaged):
        name, refs, data = row
        return parts_of((name, refs, data))
    return None


def unpacked(rows: Iterable[PartRow]) -> list[PartRow]:
    """The parts in these rows, of which some may be packs."""
    found: list[PartRow] = []
    for row in rows:
        if is_pack(row):
            found += parts_of(row)
        else:
            found.append(row)
    return found
