"""Sparse vectors as bytes: few of very many numbers, each with its place. Checked, told apart, compared.

A place and its number take eight bytes, in the order of places; the same vector is the same bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from holdfast.errors import Refused
from holdfast.indexing.vectors import Query, Shape, load_numpy, one_for_each, packed

_PAIR_BYTES = 8
_PLACES = 1 << 32
_SKETCHED = 256
_ALWAYS = 0.1


def pack(vector: Mapping[int, float]) -> bytes:
    """A vector by places as bytes. Zeros are left out."""
    pairs = [(place, number) for place, number in sorted(vector.items()) if number]
    return struct.pack("<" + "If" * len(pairs), *chain.from_iterable(pairs))


def unpack(blob: bytes) -> dict[int, float]:
    """What `pack` was given."""
    return dict(struct.iter_unpack("<If", blob))


def check(vectors: Any, *, expected: int) -> list[bytes | str]:
    """What a model returned as bytes, one by one; a reason in the place of one that is no vector."""
    return [_checked(row) for row in one_for_each(vectors, expected=expected)]


def _checked(row: Any) -> bytes | str:
    if not isinstance(row, Mapping):
        return "is not numbers by their places"
    try:
        plain = {int(place): float(number) for place, number in row.items()}
    except (TypeError, ValueError):
        return "is not numbers by their places"
    if not all(0 <= place < _PLACES for place in plain):
        return "has places beyond 32 bits"
    try:
        blob = pack(plain)
    except OverflowError:
        return "has numbers that are not finite"
    return blob if all(map(math.isfinite, plain.values())) else "has numbers that are not finite"


def sketch(blob: bytes) -> bytes:
    """A short vector that tells one from another: by it a model is known again, however many places there are."""
    numbers = [0.0] * _SKETCHED
    for place, number in unpack(blob).items():
        numbers[place % _SKETCHED] += number if (place // _SKETCHED) % 2 else -number
    return packed([*numbers, _ALWAYS])  # so that two empty ones are alike


def asked(query: Query) -> dict[int, float]:
    """A query as it is compared. Refused if it is not sparse."""
    if not isinstance(query, Mapping):
        raise Refused("the vectors are sparse, the query is not", hint="Give a number for each place that has one.")
    return {int(place): float(number) for place, number in query.items()}


def nearest(query: Query, blobs: Sequence[bytes], shape: Shape, limit: int) -> list[tuple[int, float]]:
    """The places of the vectors that share most with a query, the best first; none that share nothing.

    Rare places count more if the shape says so, as in BM25.
    """
    wanted = asked(query)
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
