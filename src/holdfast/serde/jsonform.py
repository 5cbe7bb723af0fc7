"""The same values as JSON, for people and for programs in other languages: lossless, and made without any class.

JSON's own types stand for themselves. Everything else is an object with one key that begins with `$`, such as
`{"$tuple": [1, 2]}`.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from holdfast.errors import Damaged
from holdfast.serde import table
from holdfast.serde.msgpack import Ext, decode, encode

_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
_CODES = {name: code for code, name in table.NAMES.items()}


def to_json(data: bytes, *, indent: int | None = None) -> str:
    """Encoded bytes (of `Serde.encode`) as JSON."""
    return json.dumps(_shown(decode(data)), ensure_ascii=False, allow_nan=False, indent=indent)


def from_json(text: str) -> bytes:
    """JSON (of `to_json`) as encoded bytes; Damaged if it is not such JSON."""
    try:
        return encode(_read(json.loads(text)))
    except _MALFORMED as error:
        raise Damaged(f"this is not a value in JSON: {error}", hint="Give what `to_json` made.") from None


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            return {"$dict": [[_shown(key), _shown(item)] for key, item in value.items()]}
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    if isinstance(value, Ext):
        return _shown_extension(value.code, bytes(value.data))
    return value


def _shown_extension(code: int, data: bytes) -> Any:
    if code not in table.NAMES:
        return {"$ext": [code, base64.b64encode(data).decode()]}
    payload = decode(data)
    if code == table.OBJECT and isinstance(payload, list) and len(payload) == 3 and isinstance(payload[2], bytes):
        return {"$object": [payload[0], payload[1], _shown(decode(payload[2]))]}
    return {f"${table.NAMES[code]}": _shown(payload)}


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: _read(item) for key, item in value.items()}
    [(mark, item)] = value.items()
    if mark == "$dict":
        return {_read(key): _read(inner) for key, inner in item}
    if mark == "$bytes":
        return base64.b64decode(item, validate=True)
    if mark == "$float":
        return float(item)
    if mark == "$ext":
        return Ext(item[0], base64.b64decode(item[1], validate=True))
    if mark == "$object":
        return Ext(table.OBJECT, encode([item[0], item[1], encode(_read(item[2]))]))
    return Ext(_CODES[mark[1:]], encode(_read(item)))
