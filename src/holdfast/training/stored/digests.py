"""Digests: BLAKE3, or SHA-256 where the `blake3` package is not installed. A manifest says which.

Beside it, where `xxhash` is installed, a *fingerprint* (XXH3, 128 bits) that costs a tenth: it finds whatever an
accident does to bytes, and is no proof against somebody who means it. A manifest is none either: whoever can write it
can write both.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Protocol

from holdfast.errors import Damaged, Unavailable

_MANY_THREADS_FROM_BYTES = 8 << 20
_PIECES = 16
_PIECE_BYTES = 4096
SAMPLED_FROM_BYTES = _PIECES * _PIECE_BYTES
"""Of what is greater, the sample is of a part."""


class Hasher(Protocol):
    """Takes bytes and gives their digest."""

    def update(self, data: Any, /) -> Any: ...

    def hexdigest(self) -> str: ...


@cache
def preferred() -> str:
    """The best algorithm that is installed."""
    return "sha256" if _blake3() is None else "blake3"


def new(algorithm: str) -> Hasher:
    """Begin a digest. Unavailable if its package is missing, Damaged if nobody knows it."""
    if algorithm == "sha256":
        return hashlib.sha256()
    if algorithm != "blake3":
        raise Damaged(f"there is no digest {algorithm!r}", hint="Use another checkpoint.")
    made = _blake3()
    if made is None:
        raise Unavailable(
            "this checkpoint is verified with BLAKE3, which is not installed",
            hint="pip install blake3, or pass verify=False to load it unverified.",
        )
    hasher: Hasher = made()
    return hasher


def digest(data: bytes | memoryview, algorithm: str) -> str:
    """The digest of some bytes, with all cores where that pays."""
    if algorithm == "blake3" and (made := _blake3()) is not None:
        whole: str = made(data, max_threads=made.AUTO if len(data) >= _MANY_THREADS_FROM_BYTES else 1).hexdigest()
        return whole
    hasher = new(algorithm)
    hasher.update(data)
    return hasher.hexdigest()


def sample(data: memoryview, algorithm: str) -> str:
    """The digest of a few pieces, spread evenly: two contents whose samples differ differ."""
    if len(data) <= SAMPLED_FROM_BYTES:
        return sample_of_digest(digest(data, algorithm))
    hasher = new(algorithm)
    for number in range(_PIECES):
        start = (len(data) - _PIECE_BYTES) * number // (_PIECES - 1)
        hasher.update(data[start : start + _PIECE_BYTES])
    return sample_of_digest(hasher.hexdigest())


def sample_of_digest(whole: str) -> str:
    """The sample of what is not greater than SAMPLED_FROM_BYTES, which is all of it."""
    return whole[:32]


def fingerprint(data: bytes | memoryview) -> str:
    """The fingerprint of some bytes; empty where `xxhash` is not installed."""
    made = _xxh3()
    if made is None:
        return ""
    found: str = made.xxh3_128_hexdigest(data)
    return found


def new_fingerprint() -> Hasher | None:
    """Begin a fingerprint; None where `xxhash` is not installed."""
    made = _xxh3()
    if made is None:
        return None
    hasher: Hasher = made.xxh3_128()
    return hasher


@cache
def _xxh3() -> Any:
    try:
        import xxhash  # an extra; without it the digest does its work
    except ImportError:
        return None
    return xxhash


@cache
def _blake3() -> Any:
    try:
        from blake3 import blake3  # an extra; without it everything works, more slowly
    except ImportError:
        return None
    return blake3
