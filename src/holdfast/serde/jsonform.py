"""Encoded values as JSON, for people and for programs in other languages: lossless, and made without any class.

JSON's own types stand for themselves. Everything else is tagged: an object with one key that begins with `$`, such as
`{"$tuple": [1, 2]}`. This is the one JSON form of values: states of a workspace are stored in it, flow states are shown
in it, and values in a training run use it for everything but the plainest ones (`training.stored.leaves` says why).

What `--json` and the MCP tools print is another job: fields of known results, which contain no user-defined types.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

from holdfast.errors import Damaged, Refused
from holdfast.serde import types
from holdfast.serde.codec import take_int, take_text
from holdfast.serde.msgpack import Ext, decode, encode

_MALFORMED = (ValueError, struct.error, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
_CODES = {name: code for code, name in types.NAMES.items()}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MOST_BITS = 2_000  # of a number that Python reads from text whatever its limit is set to
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_PLAIN = frozenset({type(None), bool, int, str})
_BITS = struct.Struct(">d")


def to_json(data: bytes, *, indent: int | None = None) -> str:
    """Encoded bytes (of `Serde.encode`) as JSON; Damaged if they are not such bytes."""
    return json.dumps(to_tagged(data), ensure_ascii=False, allow_nan=False, indent=indent)


def from_json(text: str) -> bytes:
    """JSON (of `to_json`) as encoded bytes; Damaged if it is not such JSON."""
    try:
        value = json.loads(text)
    except _MALFORMED as error:
        raise Damaged(f"not a value in JSON: {error}", hint="Give what `to_json` made.") from None
    return from_tagged(value)


def to_tagged(data: bytes, *, readable: bool = False) -> Any:
    """Encoded bytes as values of JSON's own types, in which everything else is tagged.

    `readable`: bytes that are text stand as `{"$utf8": text}`, and whatever text and number JSON can spell in ASCII
    stands for itself, so that it can be searched for.
    """
    try:
        return _Shower(readable).show(decode(data))
    except RecursionError:
        raise Refused("the value is nested too deeply to show as JSON", hint="Save a flatter state.") from None


def from_tagged(value: Any) -> bytes:
    """What `to_tagged` gave as encoded bytes; Damaged if it is nothing of the kind."""
    try:
        return encode(_read(value))
    except _MALFORMED as error:
        raise Damaged(f"not a value in JSON: {error}", hint="Give what `to_json` made.") from None


class _Shower:
    """Turns MessagePack with extensions into tagged JSON."""

    def __init__(self, readable: bool) -> None:
        self._readable = readable

    def show(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if isinstance(value, dict):
            if any(not isinstance(key, str) or key.startswith("$") for key in value):
                return {"$dict": [[self.show(key), self.show(item)] for key, item in value.items()]}
            return {key: self.show(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.show(item) for item in value]
        if isinstance(value, bytes):
            return self._bytes(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": _float_name(value)}
        if isinstance(value, Ext):
            return self._extension(value.code, bytes(value.data))
        # MessagePack's own times, and lists as keys: `Serde.encode` makes neither
        raise Damaged(f"stored state is corrupt: it contains a {type(value).__name__}", hint="Use another checkpoint.")

    def _bytes(self, value: bytes) -> Any:
        text = _text(value) if self._readable else None
        return {"$bytes": base64.b64encode(value).decode()} if text is None else {"$utf8": text}

    def _extension(self, code: int, data: bytes) -> Any:
        if code not in types.NAMES:
            return {"$ext": [code, base64.b64encode(data).decode()]}
        payload = decode(data)
        if code == types.OBJECT:
            if not _is_object(payload):
                return {"$ext": [code, base64.b64encode(data).decode()]}
            return {"$object": [payload[0], payload[1], self.show(decode(payload[2]))]}
        if self._readable and code in (types.BIG_INT, types.LONE_TEXT) and isinstance(payload, bytes):
            plain = _number(payload) if code == types.BIG_INT else _lone_text(payload)
            if plain is not None:
                return plain
        return {f"${types.NAMES[code]}": self.show(payload)}


def _is_object(payload: Any) -> bool:
    return isinstance(payload, list) and [*map(type, payload)] == [str, int, bytes]


def _float_name(value: float) -> str:
    """What is no number by its name, or by its bits where the name would not bring them back."""
    bits = _BITS.pack(value)
    return next((name for name, known in _FLOATS.items() if _BITS.pack(known) == bits), bits.hex())


def _named_float(name: str) -> float:
    return _FLOATS[name] if name in _FLOATS else float(_BITS.unpack(bytes.fromhex(name))[0])


def _text(value: bytes) -> str | None:
    """Bytes as the text that they are; None if they are none, or one that JSON would blow up."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def _number(payload: bytes) -> int | None:
    value = int.from_bytes(payload, "big", signed=True)
    return value if _same(take_int(value, 0), types.BIG_INT, payload) and value.bit_length() < _MOST_BITS else None


def _lone_text(payload: bytes) -> str | None:
    """A text with lone surrogates, if it comes back from JSON, where two halves of a character would be joined."""
    try:
        value = payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    comes_back = json.loads(json.dumps(value)) == value
    return value if comes_back and _same(take_text(value, 0), types.LONE_TEXT, payload) else None


def _same(taken: Any, code: int, payload: bytes) -> bool:
    """Whether a value would be stored with these very bytes."""
    return isinstance(taken, Ext) and taken.code == code and bytes(taken.data) == encode(payload)


def _read(value: Any) -> Any:
    if isinstance(value, str):
        return take_text(value, 0)
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return take_int(value, 0) if type(value) is int else value
    tag = types.tag_of(value)
    if tag is None:
        return {key: _read(item) for key, item in value.items()}
    item = value[tag]
    return _READERS[tag](item) if tag in _READERS else Ext(_CODES[tag[1:]], encode(_read(item)))


_READERS: dict[str, Callable[[Any], Any]] = {
    "$dict": lambda item: {_read(key): _read(inner) for key, inner in item},
    "$bytes": lambda item: base64.b64decode(item, validate=True),
    "$utf8": str.encode,
    "$float": _named_float,
    "$ext": lambda item: Ext(item[0], base64.b64decode(item[1], validate=True)),
    "$object": lambda item: Ext(types.OBJECT, encode([item[0], item[1], encode(_read(item[2]))])),
}
