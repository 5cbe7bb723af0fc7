"""Datatypes of vectors: which can be made of which."""

from __future__ import annotations

_BITS = {
    "float64": 64, "float32": 32, "float": 32, "bfloat16": 16, "float16": 16,
    "int8": 8, "uint8": 8, "binary": 1, "ubinary": 1,
}  # fmt: skip


def bits(datatype: str) -> int | None:
    """How many bits a number of it takes; None if the name is not known."""
    return _BITS.get(datatype.lower())


def same(one: str, other: str) -> bool:
    """Whether two names mean one datatype."""
    names = [{"float": "float32"}.get(name.lower(), name.lower()) for name in (one, other)]
    return names[0] == names[1]


def can_be_made(new: str, old: str) -> bool:
    """Whether vectors of one datatype can be made of those of another that are there: never a finer one."""
    fine, coarse = bits(old), bits(new)
    return fine is not None and coarse is not None and coarse <= fine
