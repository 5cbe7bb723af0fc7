"""Values that are neither tensors nor containers of them, as JSON: exact or refused, and no code from data (P7).

JSON's own types stand for themselves; everything else is an object with one key that begins with `$`.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import pathlib
import uuid
from typing import Any

from holdfast.errors import Damaged, Refused

_HINT = "Save something else in its place: tensors, numbers, text, lists, dicts and the like."


def encode(value: Any, where: str) -> Any:
    """What stands for a value in JSON; Refused, with its path, if nothing does."""
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is str:
        return value if _is_text(value) else {"$str": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind in (bytes, bytearray):
        return {f"${kind.__name__}": base64.b64encode(value).decode()}
    if kind is complex:
        return {"$complex": [encode(value.real, where), encode(value.imag, where)]}
    if kind in (set, frozenset):
        return {f"${kind.__name__}": sorted((encode(item, f"{where}{{…}}") for item in value), key=repr)}
    if kind is tuple:
        return {"$tuple": [encode(item, f"{where}[{at}]") for at, item in enumerate(value)]}
    if kind in _BY_TEXT:
        name, write, _ = _BY_TEXT[kind]
        return {f"${name}": write(value)}
    raise Refused(f"{where} cannot be saved: its type is {kind.__module__}.{kind.__qualname__}", hint=_HINT)


def decode(mark: str, value: Any) -> Any:
    """The value of an object with one key `mark`; Damaged if it is none that `encode` makes."""
    try:
        return _decode(mark, value)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise Damaged(f"{mark} does not hold what it should: {error}", hint="Use another checkpoint.") from None


def _decode(mark: str, value: Any) -> Any:
    if mark == "$str":
        return base64.b64decode(value, validate=True).decode("utf-8", "surrogatepass")
    if mark == "$float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
    if mark == "$bytes":
        return base64.b64decode(value, validate=True)
    if mark == "$bytearray":
        return bytearray(base64.b64decode(value, validate=True))
    if mark == "$complex":
        return complex(_inner(value[0]), _inner(value[1]))
    if mark in ("$set", "$frozenset", "$tuple"):
        items = [_inner(item) for item in value]
        return set(items) if mark == "$set" else frozenset(items) if mark == "$frozenset" else tuple(items)
    for name, _, read in _BY_TEXT.values():
        if mark == f"${name}":
            return read(value)
    raise Damaged(f"there is no value {mark}", hint="Use the version of Holdfast that wrote it, or a newer one.")


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        [(mark, inner)] = value.items()
        return _decode(mark, inner)
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_BY_TEXT: dict[type, tuple[str, Any, Any]] = {
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.timedelta: (
        "timedelta",
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda value: datetime.timedelta(*value),
    ),
    decimal.Decimal: ("decimal", str, decimal.Decimal),
    uuid.UUID: ("uuid", str, uuid.UUID),
    pathlib.PosixPath: ("path", str, pathlib.Path),
    pathlib.PurePosixPath: ("pure_path", str, pathlib.PurePosixPath),
}
