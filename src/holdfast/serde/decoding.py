"""Decoding: each number in the table of types has one function here, and nothing else is ever called (P7)."""

from __future__ import annotations

import decimal
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.serde import arrays, models, table, zones
from holdfast.serde.encoding import FACTORIES, IPS, PATHS
from holdfast.serde.kinds import UNSET
from holdfast.serde.msgpack import make_decoder
from holdfast.serde.registry import Registry, Unknown


class Decoder:
    """Turns MessagePack with extensions into values."""

    def __init__(self, registry: Registry, *, keep_unknown: bool) -> None:
        self._registry = registry
        self._keep_unknown = keep_unknown
        self.make: Callable[[bytes | memoryview], Any] = make_decoder(self._extension)

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == table.OBJECT:
            return self._object(self.make(data))
        way = _WAYS.get(code)
        if way is None:
            raise Refused(f"type {code} is not known to this version", hint="Read it with a newer Holdfast.")
        payload = self.make(data)
        try:
            return way(payload)
        except HoldfastError:
            raise
        except Exception as error:  # whatever forged bytes make of an innocent constructor
            raise Damaged(
                f"a stored {table.NAMES[code]} is malformed: {error}", hint="Use another checkpoint."
            ) from None

    def _object(self, payload: Any) -> Any:
        try:
            type_id, version, data = payload
            known = type(type_id) is str and type(version) is int and type(data) is bytes
        except (TypeError, ValueError):
            known = False
        if not known:
            raise Damaged("a stored object is malformed", hint="Use another checkpoint.")
        entry = self._registry.of_id(type_id)
        if entry is None or version > entry.version:
            if self._keep_unknown:
                return Unknown(type_id, version, data)
            what = (
                "is not registered" if entry is None else f"is stored in version {version}, known up to {entry.version}"
            )
            raise Refused(f"{type_id} {what}", hint="Register the class, or open with on_unknown='keep'.")
        missing = [number for number in range(version, entry.version) if number not in entry.upgrades]
        if version < 1 or missing:
            raise Refused(f"{type_id} is stored in version {version}", hint=f"Register upgrades from {missing}.")
        made = self.make(data)
        try:
            return entry.make(version, made)
        except HoldfastError:
            raise
        except Exception as error:  # code of the user, on data that may be forged
            raise Damaged(
                f"no {type_id} can be made of what is stored: {error!r}", hint="Look at its upgrades."
            ) from error


def _map(data: Any) -> dict[Any, Any]:
    return dict(zip(data[::2], data[1::2], strict=True))


def _counter(data: Any) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, _map(data))
    return made


def _path(data: Any) -> Any:
    flavour, text = data
    try:
        return PATHS[flavour](text)
    except NotImplementedError:
        raise Unavailable(f"{text} is a path of another system", hint="Read it there.") from None


def _uuid(data: Any) -> uuid.UUID:
    raw, safe = data if isinstance(data, list) else (data, None)
    return uuid.UUID(bytes=raw, is_safe=uuid.SafeUUID(safe))


def _pattern(data: Any) -> re.Pattern[Any]:
    text, flags = data
    if type(flags) is not int or flags & re.DEBUG:  # which would print
        raise ValueError(f"the flags of a pattern are {flags!r}")
    return re.compile(text, flags)


_WAYS: dict[int, Callable[[Any], Any]] = {
    table.TUPLE: tuple,
    table.SET: set,
    table.FROZENSET: frozenset,
    table.MAP: _map,
    table.BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    table.LONE_TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    table.COMPLEX: lambda data: complex(*data),
    table.DATETIME: zones.make_datetime,
    table.DATE: zones.make_date,
    table.TIME: zones.make_time,
    table.TIMEDELTA: zones.make_timedelta,
    table.DECIMAL: decimal.Decimal,
    table.UUID: _uuid,
    table.PATH: _path,
    table.DEQUE: lambda data: deque(data[1], data[0]),
    table.ORDERED_DICT: lambda data: OrderedDict(_map(data)),
    table.DEFAULT_DICT: lambda data: defaultdict(FACTORIES[data[0]], _map(data[1])),
    table.COUNTER: _counter,
    table.BYTEARRAY: bytearray,
    table.ARRAY: arrays.make_array,
    table.SCALAR: arrays.make_scalar,
    table.SECRET: models.make_secret,
    table.UNSET: lambda data: UNSET,
    table.RANGE: lambda data: range(*data),
    table.ZONE: zones.make_zone,
    table.IP: lambda data: IPS[data[0]](data[1]),
    table.PATTERN: _pattern,
}
