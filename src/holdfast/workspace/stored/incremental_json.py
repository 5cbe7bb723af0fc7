"""Encoding JSON in pieces: each in one short call, so that other threads can run in between (GIL)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.model import JSON
from holdfast.serde.types import is_plain

_MAX_COST = 20_000  # of a piece: a few milliseconds
_MOST_DEEP = 8  # levels of pieces; a value that contains itself would not end
_CHARS_PER_COST = 64  # characters that cost as much as one value


def encode_pieces(value: JSON, deep: int = 0) -> Iterator[bytes]:
    """Yield a value as JSON in pieces; joined they are the output of `json.dumps` without spaces.

    TypeError, ValueError or RecursionError if JSON cannot express it, or would read it back as something else.
    """
    if deep > _MOST_DEEP or _cost(value, _MAX_COST) < _MAX_COST:
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
        raise ValueError("JSON would read it back as something else")  # or as an equal value of another type
    return text.encode()


def _batches(items: list[JSON]) -> Iterator[list[JSON]]:
    """Yield items in batches of bounded cost; an expensive item alone."""
    batch: list[JSON] = []
    cost = 0
    for item in items:
        more = _cost(item, _MAX_COST)
        if batch and cost + more > _MAX_COST:
            yield batch
            batch, cost = [], 0
        batch.append(item)
        cost += more
    if batch:
        yield batch


def _parts(text: str) -> Iterator[str]:
    """Yield a long text in parts, never cut between two surrogates: JSON would join them unnoticed."""
    start = 0
    while start < len(text):
        end = start + _MAX_COST * _CHARS_PER_COST
        while "\ud800" <= text[end - 1 : end] <= "\udfff":
            end += 1
        yield text[start:end]
        start = end


def _cost(value: JSON, most: int) -> int:
    """Return how much work a value is, counted up to `most`."""
    cost, stack = 0, [value]
    while stack and cost < most:
        item = stack.pop()
        cost += 1
        if type(item) is str:
            cost += len(item) // _CHARS_PER_COST
        elif type(item) is list:
            cost += len(item)
            stack += item[:most]
        elif type(item) is dict:
            cost += len(item)
            stack += item.values() if len(item) < most else ()
    return min(cost, most)
