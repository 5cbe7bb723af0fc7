"""How the types that are not JSON's are written for people, from what `holdfast.serde.to_json` makes of them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from datetime import timedelta, timezone
from typing import Any

_DIGITS_BITS = 10_000


def _int(inner: Any) -> str:
    number = int.from_bytes(_bytes(inner), "big", signed=True)
    return str(number) if number.bit_length() <= _DIGITS_BITS else hex(number)  # Python refuses longer ones


def _uuid(inner: Any) -> str:
    return str(uuid.UUID(bytes=_bytes(inner)))


def _bytes(inner: Any) -> bytes:
    return base64.b64decode(inner["$bytes"])


def _moment(inner: Any) -> str:
    text, _, zone = inner
    if zone is None:
        return str(text)
    if isinstance(zone, str):
        return f"{text} {zone}"
    return f"{text} {timezone(timedelta(microseconds=zone[0]))}"


def _span(inner: Any) -> str:
    days, seconds, micros = inner
    return str(timedelta(days, seconds, micros))


def _array(inner: Any) -> str:
    dtype, shape = inner[:2]
    return f"of {dtype}, {' × '.join(map(str, shape))}"


KINDS: dict[str, Callable[[Any], str]] = {
    "int": _int,
    "float": str,
    "decimal": str,
    "uuid": _uuid,
    "date": str,
    "datetime": _moment,
    "time": _moment,
    "timedelta": _span,
    "path": lambda inner: str(inner[1]),
    "array": _array,
    "ip": lambda inner: str(inner[1]),
    "pattern": lambda inner: str(inner[0]),
    "range": lambda inner: ", ".join(map(str, inner)),
}
