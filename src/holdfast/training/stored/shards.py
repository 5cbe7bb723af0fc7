"""The safetensors format: a JSON header, followed by the bytes of the tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from holdfast.training.stored.layout import SCHEMA_VERSION

ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
    "U8": 1, "BOOL": 1, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
}  # fmt: skip
"""The types of the format, and the size of an element."""

OWN_FILE_FROM_BYTES = 1 << 20
SHARD_BYTES = 2 << 20
"""Smaller tensors share files of up to this size: the most that is written again if one of them changes."""
_HEADER_BLOCK = 4096


class Payload(NamedTuple):  # a tuple: there may be tens of thousands
    """A tensor to write: its name, type and shape, and how to get its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: Any
    bytes_of: Callable[[Any], Any]
    """Returns, for the source, an object whose contiguous buffer has the bytes in order."""

    def read(self) -> memoryview:
        """Return its bytes, in order."""
        return memoryview(self.bytes_of(self.source)).cast("B")

    @property
    def n_bytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Shard:
    """Tensors that share a file, in the order in which they are stored."""

    payloads: tuple[Payload, ...]

    @property
    def n_bytes(self) -> int:
        return sum(payload.n_bytes for payload in self.payloads)


def arrange(payloads: Iterable[Payload], shard_bytes: int = SHARD_BYTES) -> list[Shard]:
    """Give each large tensor a file of its own, so that it can be shared while it does not change; gather the rest.

    Within a file, tensors with larger elements come first, so that each is aligned.
    """
    shards: list[Shard] = []
    small: list[Payload] = []
    gathered = 0
    for payload in payloads:
        n_bytes = payload.n_bytes
        if n_bytes >= OWN_FILE_FROM_BYTES:
            shards.append(Shard((payload,)))
            continue
        if small and gathered + n_bytes > shard_bytes:
            shards.append(_sorted(small))
            small, gathered = [], 0
        small.append(payload)
        gathered += n_bytes
    if small:
        shards.append(_sorted(small))
    return shards


def header(payloads: Sequence[Payload]) -> bytes:
    """Return the header of a file with these tensors, padded so that they begin on a page."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt", "schema_version": str(SCHEMA_VERSION)}}
    at = 0
    for payload in payloads:
        end = at + payload.n_bytes
        entries[payload.name] = {"dtype": payload.dtype, "shape": list(payload.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    room = -(len(text) + 8) % _HEADER_BLOCK
    return (len(text) + room).to_bytes(8, "little") + text + b" " * room


def encode_index(tensors: Iterable[bytes], total_bytes: int) -> bytes:
    """Return the index of tensors, in the format of Hugging Face.

    tensors: for each file, its tensors and its name, as JSON without the braces.
    """
    about = json.dumps({"total_size": total_bytes, "schema_version": SCHEMA_VERSION}, separators=(",", ":"))
    return b"".join((b'{"metadata":', about.encode(), b',"weight_map":{', b",".join(tensors), b"}}\n"))


def _sorted(payloads: list[Payload]) -> Shard:
    return Shard(tuple(sorted(payloads, key=lambda payload: -ITEM_BYTES[payload.dtype])))
