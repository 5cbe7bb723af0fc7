"""Digests: BLAKE3, or SHA-256 if the `blake3` package is not installed. The manifest says which.

If `xxhash` is installed, also a *fingerprint* (XXH3, 128 bits) at a tenth of the cost. It detects accidental damage,
but not an attacker; nor does a digest, because a person who can change the tensors can change the manifest, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from holdfast.errors import Damaged, Unavailable

_MANY_THREADS_FROM_BYTES = 8 << 20
_PIECES = 16
_PIECE_BYTES = 4096
SAMPLED_FROM_BYTES = _PIECES * _PIECE_BYTES
"""The sample of larger data covers only a part of it."""


class Hasher(Protocol):
    """A hash object of `hashlib`, `blake3` or `xxhash`."""

    def update(self, data: Any, /) -> Any: ...

    def hexdigest(self) -> str: ...


@cache
def preferred() -> str:
    """Return the best algorithm that is installed."""
    return "sha256" if _blake3() is None else "blake3"


def new(algorithm: str) -> Hasher:
    """Return a new hasher. Unavailable if its package is missing, Damaged if the algorithm is unknown."""
    if algorithm == "sha256":
        return hashlib.sha256()
    if algorithm != "blake3":
        raise Damaged(f"unknown digest algorithm: {algorithm!r}", hint="Use another checkpoint.")
    made = _blake3()
    if made is None:
        raise Unavailable(
            "this checkpoint has BLAKE3 digests, and the package blake3 is not installed",
            hint="pip install blake3, or pass verify=False to load it unverified.",
        )
    hasher: Hasher = made()
    return hasher


def digest(data: bytes | memoryview, algorithm: str) -> str:
    """Return the digest of some bytes; uses all cores if they are many."""
    if algorithm == "blake3" and (made := _blake3()) is not None:
        whole: str = made(data, max_threads=made.AUTO if len(data) >= _MANY_THREADS_FROM_BYTES else 1).hexdigest()
        return whole
    hasher = new(algorithm)
    hasher.update(data)
    return hasher.hexdigest()


def sample(data: memoryview, algorithm: str) -> str:
    """Return the digest of a few evenly spaced pieces: if two samples differ, so do the data."""
    if len(data) <= SAMPLED_FROM_BYTES:
        return sample_of_digest(digest(data, algorithm))
    hasher = new(algorithm)
    for number in range(_PIECES):
        start = (len(data) - _PIECE_BYTES) * number // (_PIECES - 1)
        hasher.update(data[start : start + _PIECE_BYTES])
    return sample_of_digest(hasher.hexdigest())


def sample_of_digest(whole: str) -> str:
    """Return the sample of data up to SAMPLED_FROM_BYTES, which covers all of it."""
    return whole[:32]


def fingerprint(data: bytes | memoryview) -> str:
    """Return the fingerprint of some bytes; empty if `xxhash` is not installed."""
    function = fingerprint_function()
    return "" if function is None else function(data)


def fingerprint_function() -> Callable[[bytes | memoryview], str] | None:
    """Return the function that computes fingerprints, for loops; None if `xxhash` is not installed."""
    made = _xxh3()
    return None if made is None else made.xxh3_128_hexdigest


def new_fingerprint() -> Hasher | None:
    """Return a new fingerprint hasher; None if `xxhash` is not installed."""
    made = _xxh3()
    if made is None:
        return None
    hasher: Hasher = made.xxh3_128()
    return hasher


@cache
def _xxh3() -> Any:
    try:
        import xxhash  # an extra: without it the digest is compared
    except ImportError:
        return None
    return xxhash


@cache
def _blake3() -> Any:
    try:
        from blake3 import blake3  # an extra: without it SHA-256 is used
    except ImportError:
        return None
    return blake3
