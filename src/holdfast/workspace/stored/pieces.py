"""JSON in pieces: each is spelled and checked in one short call, and other threads may run between two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.model import JSON
from holdfast.serde.plain import is_plain

_MOST_WEIGHT = 20_000  # of a piece: some milliseconds
_MOST_DEEP = 8  # within one another; a value that contains itself would have no end
_TEXT_WEIGHT = 64  # characters that weigh as much as one value


def encode_pieces(value: JSON, deep: int = 0) -> Iterator[bytes]:
    """A value as JSON, piece by piece; together they are what `json.dumps` spells, without spaces.

    TypeError, ValueError or RecursionError if it cannot be spelled, or would come back different.
    """
    if deep > _MOST_DEEP or _weight(value, _MOST_WEIGHT) < _MOST_WEIGHT:
        yield _spelled(value)
    elif type(value) is list:
        yield b"["
        for number, batch in enumerate(_batches(value)):
            yield b"," * (number > 0)
            if len(batch) == 1:
                yield from encode_pieces(batch[0], deep + 1)
            else:
                yield _spelled(batch)[1:-1]
        yield b"]"
    elif type(value) is dict:
        yield b"{"
        for number, (key, item) in enumerate(value.items()):
            if not isinstance(key, str):
                raise TypeError(f"a key is of type {type(key).__name__}")
            yield b"," * (number > 0) + _spelled(key) + b":"
            yield from encode_pieces(item, deep + 1)
        yield b"}"
    elif type(value) is str:
        yield b'"'
        for part in _parts(value):
            yield _spelled(part)[1:-1]
        yield b'"'
    else:
        yield _spelled(value)


def _spelled(value: JSON) -> bytes:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    if json.loads(text) != value or not is_plain(value, most_levels=len(text)):
        raise ValueError("it would come back different")  # or equal, and of another type
    return text.encode()


def _batches(items: list[JSON]) -> Iterator[list[JSON]]:
    """Items that are light enough together; a heavy one alone."""
    batch: list[JSON] = []
    weight = 0
    for item in items:
        more = _weight(item, _MOST_WEIGHT)
        if batch and weight + more > _MOST_WEIGHT:
            yield batch
            batch, weight = [], 0
        batch.append(item)
        weight += more
    if batch:
        yield batch


def _parts(text: str) -> Iterator[str]:
    """A long text, never cut between two halves of a character: that they would come back as one must be noticed."""
    start = 0
    while start < len(text):
        end = start + _MOST_WEIGHT * _TEXT_WEIGHT
        while "\ud800" <= text[end - 1 : end] <= "\udfff":
            end += 1
        yield text[start:end]
        start = end


def _weight(value: JSON, most: int) -> int:
    """How much work a value is, counted no further than `most`."""
    weight, stack = 0, [value]
    while stack and weight < most:
        item = stack.pop()
        weight += 1
        if type(item) is str:
            weight += len(item) // _TEXT_WEIGHT
        elif type(item) is list:
            weight += len(item)
            stack += item[:most]
        elif type(item) is dict:
            weight += len(item)
            stack += item.values() if len(item) < most else ()
    return min(weight, most)
