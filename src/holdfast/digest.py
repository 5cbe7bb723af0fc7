"""BLAKE3 digests of values, the same in every process, on every machine, for every order of a set.

A digest says by which algorithm it was made (`b3:…`). There is no fallback: with two algorithms, everything would look
changed when a package is installed or removed.
"""

from __future__ import annotations

import enum
import functools
import math
import os
import unicodedata
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from holdfast.errors import Extra, Refused

_LENGTH_BYTES = 8
_HASHED_AT_ONCE = 64 * 1024
"""BLAKE3 takes four times as long for a byte if it gets few at once."""


def digest(*values: object) -> str:
    """The digest of values, in this order. Refused, with the path of the value, if one has no canonical form."""
    return f"b3:{digest_bytes(canonical(values))}"


def digest_bytes(data: bytes) -> str:
    """The BLAKE3 digest of bytes, in hexadecimal."""
    found: str = _hasher()(data).hexdigest()
    return found


class RunningDigest:
    """The digest of many texts, one after the other, without having them all at once."""

    def __init__(self) -> None:
        self._hash = _hasher()()
        self._waiting = bytearray()

    def add(self, *texts: str) -> None:
        """Add texts. Where one ends counts: "ab", "c" is not "a", "bc"."""
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._waiting += len(data).to_bytes(_LENGTH_BYTES, "big")
            self._waiting += data
            if len(self._waiting) >= _HASHED_AT_ONCE:
                self._hash_waiting()

    def _hash_waiting(self) -> None:
        self._hash.update(self._waiting)
        self._waiting.clear()

    def value(self) -> str:
        """The digest of all that was added."""
        self._hash_waiting()
        return f"b3:{self._hash.hexdigest()}"


@functools.cache
def _hasher() -> Any:
    with Extra("indexing"):
        from blake3 import blake3
    return blake3


def canonical(value: object, where: str = "") -> bytes:
    """The canonical form of a value: every part with its kind and its length before it.

    Text is compared as people read it (NFC); lists and tuples are the same; so are equal numbers of one kind.
    """
    kind, parts = _encode(value, where)
    body = b"".join(parts)
    return kind + len(body).to_bytes(_LENGTH_BYTES, "big") + body


def _encode(value: object, where: str) -> tuple[bytes, list[bytes]]:
    if isinstance(value, enum.Enum):
        return _encode(value.value, where)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        pairs = [(canonical(key, where), canonical(each, f"{where}.{key}")) for key, each in value.items()]
        return b"m", [part for pair in sorted(pairs) for part in pair]
    if isinstance(value, Set):
        return b"S", sorted(canonical(each, f"{where}{{}}") for each in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return b"l", [canonical(each, f"{where}[{place}]") for place, each in enumerate(value)]
    return _encode_scalar(value, where)


def _encode_scalar(value: object, where: str) -> tuple[bytes, list[bytes]]:
    if value is None:
        return b"n", []
    if isinstance(value, bool):
        return b"b", [b"1" if value else b"0"]
    if isinstance(value, int):
        return b"i", [str(value).encode()]
    if isinstance(value, float):
        if math.isnan(value):
            raise Refused(f"{where.lstrip('.') or 'the value'} is not a number", hint="Use None in place of NaN.")
        return b"f", [value.hex().encode()]
    if isinstance(value, str):
        return b"s", [unicodedata.normalize("NFC", value).encode("utf-8", "surrogatepass")]
    if isinstance(value, bytes | bytearray | memoryview):
        return b"y", [bytes(value)]
    if isinstance(value, os.PathLike):
        return b"s", [os.fsencode(value).replace(os.sep.encode(), b"/")]
    if isinstance(value, datetime | date | time):
        return b"t", [value.isoformat().encode()]
    if isinstance(value, timedelta):
        return b"d", [f"{value.days} {value.seconds} {value.microseconds}".encode()]
    if isinstance(value, Decimal | UUID):
        return b"s", [str(value).encode()]
    raise Refused(
        f"{where.lstrip('.') or 'the value'} is of type {type(value).__name__}, which has no canonical form",
        hint="Use plain values: numbers, text, lists, sets, mappings, dataclasses.",
    )
