"""Sparse vectors as bytes: checked, sketched, searched.

A position and its number take eight bytes, in the order of positions; equal vectors have equal bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from holdfast.errors import Refused
from holdfast.indexing.vectors import Query, Shape, check_rows, load_numpy, pack_floats

_PAIR_BYTES = 8
_PLACES = 1 << 32
_SKETCHED = 256
_ALWAYS = 0.1


def pack(vector: Mapping[int, float]) -> bytes:
    """Return a vector (numbers by position) as bytes. Zeros are left out."""
    pairs = [(place, number) for place, number in sorted(vector.items()) if number]
    return struct.pack("<" + "If" * len(pairs), *chain.from_iterable(pairs))


def unpack(blob: bytes) -> dict[int, float]:
    """Reverse `pack`."""
    return dict(struct.iter_unpack("<If", blob))


def check(vectors: Any, *, expected: int) -> list[bytes | str]:
    """Return the vectors of a model as bytes; a reason instead of bytes for each that is invalid."""
    return [_checked(row) for row in check_rows(vectors, expected=expected)]


def _checked(row: Any) -> bytes | str:
    if not isinstance(row, Mapping):
        return "is not a mapping of positions to numbers"
    try:
        plain = {int(place): float(number) for place, number in row.items()}
    except (TypeError, ValueError):
        return "is not a mapping of positions to numbers"
    if not all(0 <= place < _PLACES for place in plain):
        return "has positions beyond 32 bits"
    try:
        blob = pack(plain)
    except OverflowError:
        return "has numbers that are not finite"
    return blob if all(map(math.isfinite, plain.values())) else "has numbers that are not finite"


def sketch(blob: bytes) -> bytes:
    """Return a short dense vector that identifies a sparse one, however many positions there are."""
    numbers = [0.0] * _SKETCHED
    for place, number in unpack(blob).items():
        numbers[place % _SKETCHED] += number if (place // _SKETCHED) % 2 else -number
    return pack_floats([*numbers, _ALWAYS])  # so that two empty ones are equal


def check_query(query: Query) -> dict[int, float]:
    """Return a sparse query. Refused if it is dense."""
    if not isinstance(query, Mapping):
        raise Refused("the vectors are sparse, the query is not", hint="Pass a mapping of positions to numbers.")
    return {int(place): float(number) for place, number in query.items()}


def nearest(query: Query, blobs: Sequence[bytes], shape: Shape, limit: int) -> list[tuple[int, float]]:
    """Return the rows with the greatest scores, best first; none with the score 0.

    Rare positions count more if the datatype is `sparse-idf`, as in BM25.
    """
    wanted = check_query(query)
    np = load_numpy()
    pairs = np.frombuffer(b"".join(blobs), dtype=[("place", "<u4"), ("number", "<f4")])
    rows = np.repeat(np.arange(len(blobs)), [len(blob) // _PAIR_BYTES for blob in blobs])
    scores = np.zeros(len(blobs))
    for place, number in wanted.items():
        found = pairs["place"] == place
        weight = number * (_rarity(len(blobs), int(found.sum())) if shape.datatype == "sparse-idf" else 1.0)
        scores += np.bincount(rows[found], weights=pairs["number"][found], minlength=len(blobs)) * weight
    best = np.argsort(-scores, kind="stable")[:limit]
    return [(int(row), float(scores[row])) for row in best if scores[row] != 0]


def _rarity(every: int, having: int) -> float:
    return math.log(1 + (every - having + 0.5) / (having + 0.5))
