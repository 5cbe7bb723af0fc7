"""Vectors as bytes: checked, truncated, quantised, compared. The only file of the package that imports numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import Damaged, Extra, Refused

FLOAT_BYTES = 4
DATATYPES = ("float32", "float16", "int8", "binary", "sparse", "sparse-idf")
"""How numbers are stored. With `sparse-idf`, rare positions count more in a search."""
_MAX_MEASURED = 1000
_NEIGHBOURS = 10
_SLACK = 1e-5
"""More than the error of a cosine in float32."""
_TINY = 1e-30
"""The squared length below which float32 loses digits."""
_ALIKE = 0.9999
"""The least cosine of equal vectors after a store has rounded."""


Query = Sequence[float] | Mapping[int, float]
"""A query: numbers, or for sparse vectors a mapping of positions to numbers."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the vectors of one channel in a store."""

    dimension: int
    """0 for sparse vectors."""
    datatype: str = "float32"

    @property
    def is_sparse(self) -> bool:
        """Whether vectors are sparse."""
        return self.datatype.startswith("sparse")

    def fits(self, size_bytes: int) -> bool:
        """Whether a vector of this size has this shape."""
        return size_bytes % 8 == 0 if self.is_sparse else size_bytes == self.size_bytes

    @property
    def size_bytes(self) -> int:
        """The size of one vector; 0 for sparse vectors, whose sizes vary."""
        if self.is_sparse:
            return 0
        if self.datatype == "binary":
            return (self.dimension + 7) // 8
        return self.dimension * {"float32": 4, "float16": 2, "int8": 1}[self.datatype]


def shapes_to_json(shapes: Mapping[str, Shape]) -> dict[str, list[int | str]]:
    """Return shapes by channel as JSON values."""
    return {name: [shape.dimension, shape.datatype] for name, shape in shapes.items()}


def shapes_from_json(stored: Mapping[str, Any]) -> dict[str, Shape]:
    """Reverse `shapes_to_json`."""
    try:
        return {str(name): Shape(int(each[0]), str(each[1])) for name, each in stored.items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        raise Damaged("the stored vector shapes are corrupt", hint="Rebuild the index.") from None


def check_rows(vectors: Any, *, expected: int) -> list[Any]:
    """Return the vectors of a model as a list. Refused if there is not one for each text."""
    try:
        rows = list(vectors)
    except TypeError:
        raise Refused(
            f"the model returned {type(vectors).__name__}", hint="It must return one vector for each text."
        ) from None
    if len(rows) != expected:
        raise Refused(
            f"the model returned {len(rows)} vectors for {expected} texts",
            hint="It must return one vector for each text.",
        )
    return rows


def check(vectors: Any, *, expected: int, dimension: int | None) -> list[bytes | str]:
    """Return the vectors of a model as float32 bytes; a reason instead of bytes for each that is invalid."""
    np = load_numpy()
    rows = check_rows(vectors, expected=expected)
    found: list[bytes | str] = []
    for row in rows:
        try:
            with np.errstate(over="ignore"):  # becomes infinite, and is reported below
                vector = np.asarray(row, dtype="<f4")
        except (TypeError, ValueError):
            found.append("is not a list of numbers")
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
    """Return the dimension of a cached vector."""
    return len(blob) // FLOAT_BYTES


def derive(blob: bytes, shape: Shape) -> bytes:
    """Convert a cached vector for a store: truncate, normalise, and convert the datatype."""
    if shape.is_sparse:
        return blob
    np = load_numpy()
    vector = np.frombuffer(blob, dtype="<f4")
    if shape.dimension < vector.size:
        vector = _unit(np, vector[: shape.dimension])
    return _encode(np, vector, shape.datatype)


def floats(blob: bytes, shape: Shape) -> list[float]:
    """Return a vector of a store as floats."""
    np = load_numpy()
    return [float(each) for each in _decode(np, [blob], shape)[0]]


def to_float32(blob: bytes, shape: Shape) -> bytes:
    """Return a vector of a store as float32 bytes, for stores without coarser datatypes."""
    np = load_numpy()
    return bytes(_decode(np, [blob], shape)[0].astype("<f4").tobytes())


def normalise_query(query: Query, shape: Shape) -> list[float]:
    """Truncate a query to the dimension of a shape and normalise it. Refused if it is too short."""
    np = load_numpy()
    return [float(each) for each in _unit_query(np, query, shape)]


def pack_floats(numbers: Sequence[float]) -> bytes:
    """Return numbers as a cached vector."""
    return bytes(load_numpy().asarray(numbers, dtype="<f4").tobytes())


def cosines(ones: Sequence[bytes], others: Sequence[bytes]) -> list[float]:
    """Return the cosine of each pair of cached vectors: 0 if their dimensions differ, 1 if they are equal."""
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
    """Return the Euclidean lengths of cached vectors."""
    np = load_numpy()
    return [float(np.linalg.norm(np.frombuffer(blob, dtype="<f4").astype("f8"))) for blob in blobs]


def alike(one: bytes, other: bytes, shape: Shape) -> bool:
    """Whether two vectors of a store are equal; the store may have normalised one."""
    if one == other:
        return True
    if shape.is_sparse or len(one) != len(other) or len(one) != shape.size_bytes:
        return False
    np = load_numpy()
    left, right = _units(np, _decode(np, [one, other], shape).astype("f8"))
    return bool(left @ right >= _ALIKE)


def overlap(blobs: Sequence[bytes], shape: Shape) -> float | None:
    """Return the fraction of nearest neighbours that stays in another shape; None if there are too few vectors."""
    np = load_numpy()
    taken = blobs[:_MAX_MEASURED]
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
    """Return the places and cosines of the nearest vectors, unordered.

    A block is its first place, a bit for each place that says whether it has a vector, and the vectors; one is in
    memory at a time. All that tie with the last are included. The result must not depend on the place of a vector, so
    candidates are compared a second time, exactly.
    """
    np = load_numpy()
    wanted = _unit_query(np, query, shape)
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
    """Return the candidate rows of a block: scores near `floor` or above, or numbers too large or small for float32."""
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
    """Return the cosines of rows, each summed separately: equal for equal vectors, wherever they are."""
    rows = rows.astype("f8")
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.add.reduce(rows * rows, axis=1))
        scores = np.add.reduce(rows * wanted.astype("f8"), axis=1) / np.where(lengths == 0, 1, lengths)
    # a damaged vector may be NaN, which would sort first and hide all others
    return np.where(np.isfinite(scores), scores, -1).astype("f4")


def _unit_query(np: Any, query: Query, shape: Shape) -> Any:
    if isinstance(query, Mapping):
        raise Refused("the query is sparse, the vectors are not", hint="Search the channel of the sparse model.")
    vector = np.asarray(query, dtype="f4")
    if vector.ndim != 1 or vector.size < shape.dimension:
        raise Refused(
            f"the query has {vector.size} dimensions, the index {shape.dimension}", hint="Use the model of the index."
        )
    if not np.isfinite(vector).all():
        raise Refused("the query contains numbers that are not finite", hint="Check what the model returned.")
    return _unit(np, vector[: shape.dimension])


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
    elif datatype == "int8":  # scaled by its own maximum: a cosine does not depend on the length
        coded = np.rint(vector / (np.abs(vector).max() or 1.0) * 127).astype("i1")
    else:
        coded = np.packbits(vector > 0)
    return bytes(coded.tobytes())


def _decode(np: Any, blobs: Sequence[bytes], shape: Shape) -> Any:
    return _unpacked(np, b"".join(blobs), shape)


def _unpacked(np: Any, data: bytes | memoryview, shape: Shape) -> Any:
    """Return concatenated vectors as rows of float32."""
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
    """Import numpy, an optional dependency."""
    with Extra("indexing"):
        import numpy
    return numpy


_BITS = {
    "float64": 64, "float32": 32, "float": 32, "bfloat16": 16, "float16": 16,
    "int8": 8, "uint8": 8, "binary": 1, "ubinary": 1,
}  # fmt: skip


def datatype_bits(datatype: str) -> int | None:
    """Return the bits of a number of a datatype; None if it is unknown."""
    return _BITS.get(datatype.lower())


def same_datatype(one: str, other: str) -> bool:
    """Whether two names are the same datatype."""
    names = [{"float": "float32"}.get(name.lower(), name.lower()) for name in (one, other)]
    return names[0] == names[1]


def can_convert(new: str, old: str) -> bool:
    """Whether vectors can be converted from the old datatype to the new one: never to a finer one."""
    fine, coarse = datatype_bits(old), datatype_bits(new)
    return fine is not None and coarse is not None and coarse <= fine
