"""Vectors as bytes: checked, shortened, made coarser, compared. The only file that knows numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Extra, Refused

FLOAT_BYTES = 4
DATATYPES = ("float32", "float16", "int8", "binary", "sparse", "sparse-idf")
"""How numbers are stored. Of a sparse vector, those that are not zero; `sparse-idf` has rare ones count more."""
_MOST_MEASURED = 1000
_NEIGHBOURS = 10
_SLACK = 1e-5
"""More than float32 is wrong by in a cosine."""
_TINY = 1e-30
"""The square of a length below which float32 has lost digits."""
_ALIKE = 0.9999
"""What is left of a cosine of 1 when a store has rounded."""


Query = Sequence[float] | Mapping[int, float]
"""What a store is asked: numbers, or for sparse vectors numbers by their places."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How the vectors of one channel lie in a store."""

    dimension: int
    """0 for sparse vectors, which have no end."""
    datatype: str = "float32"

    @property
    def is_sparse(self) -> bool:
        """Whether vectors are numbers by their places."""
        return self.datatype.startswith("sparse")

    def fits(self, size_bytes: int) -> bool:
        """Whether a vector of so many bytes may be one of these."""
        return size_bytes % 8 == 0 if self.is_sparse else size_bytes == self.size_bytes

    @property
    def size_bytes(self) -> int:
        """What one vector takes; 0 if each takes as much as it needs."""
        if self.is_sparse:
            return 0
        if self.datatype == "binary":
            return (self.dimension + 7) // 8
        return self.dimension * {"float32": 4, "float16": 2, "int8": 1}[self.datatype]


def plain(shapes: Mapping[str, Shape]) -> dict[str, list[int | str]]:
    """Shapes by channel, as JSON holds them."""
    return {name: [shape.dimension, shape.datatype] for name, shape in shapes.items()}


def shapes_of(said: Mapping[str, Any]) -> dict[str, Shape]:
    """What `plain` was given."""
    return {str(name): Shape(int(each[0]), str(each[1])) for name, each in said.items()}


def one_for_each(vectors: Any, *, expected: int) -> list[Any]:
    """What a model returned. Refused if there are not as many as texts: nobody can say which is whose."""
    try:
        rows = list(vectors)
    except TypeError:
        raise Refused(
            f"the model returned {type(vectors).__name__}", hint="It has to return one vector for each text."
        ) from None
    if len(rows) != expected:
        raise Refused(
            f"the model returned {len(rows)} vectors for {expected} texts",
            hint="It has to return one vector for each text.",
        )
    return rows


def check(vectors: Any, *, expected: int, dimension: int | None) -> list[bytes | str]:
    """What a model returned as float32 bytes, one by one; a reason in the place of one that is no vector."""
    np = load_numpy()
    rows = one_for_each(vectors, expected=expected)
    found: list[bytes | str] = []
    for row in rows:
        try:
            with np.errstate(over="ignore"):  # it becomes infinite, and is told as that
                vector = np.asarray(row, dtype="<f4")
        except (TypeError, ValueError):
            found.append("is not a row of numbers")
            continue
        if vector.ndim != 1 or vector.size == 0:
            found.append(f"has the shape {vector.shape}")
        elif dimension is not None and vector.size != dimension:
            found.append(f"has {vector.size} numbers instead of {dimension}")
        elif not np.isfinite(vector).all():
            found.append("has numbers that are not finite")
        else:
            found.append(vector.tobytes())
    return found


def dimension_of(blob: bytes) -> int:
    """How many numbers a cached vector has."""
    return len(blob) // FLOAT_BYTES


def derive(blob: bytes, shape: Shape) -> bytes:
    """A cached vector as a store gets it: its first numbers, of length 1, in the datatype."""
    if shape.is_sparse:
        return blob
    np = load_numpy()
    vector = np.frombuffer(blob, dtype="<f4")
    if shape.dimension < vector.size:
        vector = _unit(np, vector[: shape.dimension])
    return _encode(np, vector, shape.datatype)


def floats(blob: bytes, shape: Shape) -> list[float]:
    """A vector of a store as numbers."""
    np = load_numpy()
    return [float(each) for each in _decode(np, [blob], shape)[0]]


def widened(blob: bytes, shape: Shape) -> bytes:
    """A vector of a store as bytes of float32, for stores that know nothing coarser."""
    np = load_numpy()
    return bytes(_decode(np, [blob], shape)[0].astype("<f4").tobytes())


def asked(query: Query, shape: Shape) -> list[float]:
    """A query as it is compared with vectors of a shape: its first numbers, of length 1. Refused if it has too few."""
    np = load_numpy()
    return [float(each) for each in _asked(np, query, shape)]


def packed(numbers: Sequence[float]) -> bytes:
    """Numbers as a cached vector has them."""
    return bytes(load_numpy().asarray(numbers, dtype="<f4").tobytes())


def cosines(ones: Sequence[bytes], others: Sequence[bytes]) -> list[float]:
    """How alike cached vectors are, pair by pair: 0 if their lengths differ, 1 for the same, be it all zeros."""
    np = load_numpy()
    found = []
    for one, other in zip(ones, others, strict=True):
        if len(one) != len(other) or one == other:
            found.append(float(one == other))
            continue
        left, right = (_unit(np, np.frombuffer(each, dtype="<f4").astype("f8")) for each in (one, other))
        found.append(float(left @ right))
    return found


def lengths(blobs: Sequence[bytes]) -> list[float]:
    """How long cached vectors are."""
    np = load_numpy()
    return [float(np.linalg.norm(np.frombuffer(blob, dtype="<f4").astype("f8"))) for blob in blobs]


def alike(one: bytes, other: bytes, shape: Shape) -> bool:
    """Whether two vectors of a store are the same; a store may have made one of length 1."""
    if one == other:
        return True
    if shape.is_sparse or len(one) != len(other) or len(one) != shape.size_bytes:
        return False
    np = load_numpy()
    left, right = _units(np, _decode(np, [one, other], shape).astype("f8"))
    return bool(left @ right >= _ALIKE)


def overlap(blobs: Sequence[bytes], shape: Shape) -> float | None:
    """Which part of the nearest neighbours stays when cached vectors get a shape; None if there are too few to say."""
    np = load_numpy()
    taken = blobs[:_MOST_MEASURED]
    if len(taken) < 3:
        return None
    count = min(_NEIGHBOURS, len(taken) - 1)
    full = np.stack([np.frombuffer(blob, dtype="<f4") for blob in taken])
    small = _decode(np, [derive(blob, shape) for blob in taken], shape)
    near = [_neighbours(np, each, count) for each in (full, small)]
    kept = sum(len(set(one) & set(other)) for one, other in zip(*near, strict=True))
    return float(kept / (count * len(taken)))


def nearest(
    query: Query, blocks: Iterable[tuple[int, bytes, memoryview]], shape: Shape, limit: int
) -> list[tuple[int, float]]:
    """The places of the vectors that are most like a query, with their cosines, in no order.

    A block is its first place, a bit for each place that says whether it has a vector, and the vectors; one is in
    memory at a time. All that are as like as the last are among them, for the caller to choose from: which is found
    must not depend on where it lies, so what may be among the best is compared once more, exactly.
    """
    np = load_numpy()
    wanted = _asked(np, query, shape)
    found, scores = np.empty(0, "i8"), np.empty(0, "f4")
    if limit < 1:
        return []
    floor = -np.inf
    for first, marks, data in blocks:
        rows = _unpacked(np, data, shape)
        near = _near(np, rows, np.frombuffer(marks, "u1"), wanted, limit, floor)
        found = np.concatenate([found, near + first])
        scores = np.concatenate([scores, _exact(np, rows[near], wanted)])
        if len(scores) > limit:
            floor = np.partition(scores, -limit)[-limit]
            found, scores = found[scores >= floor], scores[scores >= floor]
    return [(int(place), float(score)) for place, score in zip(found, scores, strict=True)]


def _near(np: Any, rows: Any, marks: Any, wanted: Any, limit: int, floor: float) -> Any:
    """The rows of a block that may be among the best: nearly as like as `floor`, or too large or small to tell."""
    is_there = np.unpackbits(marks, bitorder="little")[: len(rows)].astype(bool)
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        scores = (rows @ wanted) / np.sqrt(squares)
    is_odd = ~np.isfinite(scores) | ~np.isfinite(squares) | (squares < _TINY)  # float32 ends at 3e38
    scores[is_odd | ~is_there] = -np.inf
    if len(rows) > limit:
        floor = max(floor, np.partition(scores, -limit)[-limit])
    return np.flatnonzero(is_there & (is_odd | (scores >= floor - _SLACK)))


def _exact(np: Any, rows: Any, wanted: Any) -> Any:
    """The cosines of rows, each summed up by itself: the same for the same numbers, wherever they lie."""
    rows = rows.astype("f8")
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.add.reduce(rows * rows, axis=1))
        scores = np.add.reduce(rows * wanted.astype("f8"), axis=1) / np.where(lengths == 0, 1, lengths)
    # a damaged vector may have numbers that are not finite; NaN would count as the greatest, and hide all others
    return np.where(np.isfinite(scores), scores, -1).astype("f4")


def _asked(np: Any, query: Query, shape: Shape) -> Any:
    if isinstance(query, Mapping):
        raise Refused("the query is sparse, the vectors are not", hint="Ask the channel of the sparse model.")
    given = np.asarray(query, dtype="f4")
    if given.ndim != 1 or given.size < shape.dimension:
        raise Refused(f"the query has {given.size} numbers, the index {shape.dimension}", hint="Use its own model.")
    if not np.isfinite(given).all():  # nothing is nearer to it than anything else
        raise Refused("the query has numbers that are not finite", hint="See what the model returned.")
    return _unit(np, given[: shape.dimension])


def _neighbours(np: Any, rows: Any, count: int) -> list[list[int]]:
    units = _units(np, rows)
    scores = units @ units.T
    np.fill_diagonal(scores, -np.inf)
    return [[int(place) for place in row] for row in np.argsort(-scores, axis=1, kind="stable")[:, :count]]


def _encode(np: Any, vector: Any, datatype: str) -> bytes:
    if datatype == "float32":
        coded = vector.astype("<f4")
    elif datatype == "float16":
        coded = vector.astype("<f2")
    elif datatype == "int8":  # each by its own greatest number: a cosine does not change with a vector's length
        coded = np.rint(vector / (np.abs(vector).max() or 1.0) * 127).astype("i1")
    else:
        coded = np.packbits(vector > 0)
    return bytes(coded.tobytes())


def _decode(np: Any, blobs: Sequence[bytes], shape: Shape) -> Any:
    return _unpacked(np, b"".join(blobs), shape)


def _unpacked(np: Any, data: bytes | memoryview, shape: Shape) -> Any:
    """Vectors that lie side by side as rows of float32."""
    if shape.datatype == "binary":
        rows = np.frombuffer(data, dtype="u1").reshape(-1, shape.size_bytes)
        return np.unpackbits(rows, axis=1)[:, : shape.dimension].astype("f4") * 2 - 1
    kind = {"float32": "<f4", "float16": "<f2", "int8": "i1"}[shape.datatype]
    return np.frombuffer(data, dtype=kind).reshape(-1, shape.dimension).astype("f4", copy=False)


def _unit(np: Any, vector: Any) -> Any:
    length = np.linalg.norm(vector)
    return vector / length if length else vector


def _units(np: Any, rows: Any) -> Any:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1, lengths)


def load_numpy() -> Any:
    """The package, for those few that compute with vectors."""
    with Extra("indexing"):
        import numpy
    return numpy
