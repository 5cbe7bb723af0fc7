"""Encoding: whatever is in the table of types becomes MessagePack with extensions, anything else is refused."""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import pathlib
import re
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.serde import arrays, models, table, zones
from holdfast.serde.cannot import Cannot
from holdfast.serde.kinds import Unset
from holdfast.serde.msgpack import Ext, encode
from holdfast.serde.registry import Registry, Unknown
from holdfast.serde.subclasses import plainly

FACTORIES: dict[str, Any] = {
    "none": None,
    "list": list,
    "dict": dict,
    "set": set,
    "frozenset": frozenset,
    "tuple": tuple,
    "int": int,
    "float": float,
    "complex": complex,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "bytearray": bytearray,
    "deque": deque,
    "counter": Counter,
    "ordered_dict": OrderedDict,
}
"""What a defaultdict may make new values with."""

PATHS: dict[str, type[pathlib.PurePath]] = {
    "posix": pathlib.PosixPath,
    "windows": pathlib.WindowsPath,
    "pure_posix": pathlib.PurePosixPath,
    "pure_windows": pathlib.PureWindowsPath,
}
_FACTORY_NAMES = {factory: name for name, factory in FACTORIES.items()}
_PATH_NAMES = {cls: name for name, cls in PATHS.items()}
_IPS = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface")
IPS: dict[str, type] = {name: getattr(ipaddress, name) for name in _IPS}
_ATOMS = frozenset({type(None), bool, float, bytes})
_MOSTLY_ATOMS = _ATOMS | {int, str}
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class Encoder:
    """Turns values into what MessagePack can say.

    careful: look at each number and text. Without it, a number beyond 64 bits or a text with lone surrogates is passed
    on as it is, and MessagePack raises OverflowError or UnicodeEncodeError for it.
    """

    def __init__(self, registry: Registry, *, careful: bool) -> None:
        self._registry = registry
        self._atoms = _ATOMS if careful else _MOSTLY_ATOMS
        self._is_key = _is_text if careful else _is_str
        self._ways: dict[type, Callable[[Any, int], Any]] = {
            int: take_int,
            str: take_text,
            list: self._take_list,
            dict: self._take_dict,
            tuple: self._ext(table.TUPLE, list),
            set: self._take_set(table.SET),
            frozenset: self._take_set(table.FROZENSET),
            deque: self._ext(table.DEQUE, lambda value: [value.maxlen, list(value)]),
            OrderedDict: self._ext(table.ORDERED_DICT, _pairs),
            Counter: self._ext(table.COUNTER, _pairs),
            defaultdict: self._ext(table.DEFAULT_DICT, _take_defaultdict),
            Unknown: self._take_unknown,
        }
        self._subclasses: WeakKeyDictionary[type, Callable[[Any, int], Any]] = WeakKeyDictionary()
        for kind, (code, take) in _SIMPLE.items():
            self._ways[kind] = self._ext(code, take)

    def take(self, value: Any, depth: int = 0) -> Any:
        """What stands for a value; Cannot, with the way to it, if nothing does."""
        kind = type(value)
        if kind in self._atoms:
            return value
        if depth > table.MAX_DEPTH:
            raise Cannot(f"it is nested more than {table.MAX_DEPTH} deep, or holds itself")
        entry = self._registry.of_class(kind)
        if entry is not None:
            data = self._fields(entry.kind.take(value), depth + 1)
            return Ext(table.OBJECT, encode([entry.id, entry.version, encode(data)]))
        way = self._ways.get(kind) or self._find(kind)
        return way(value, depth)

    def check(self, kind: type) -> None:
        """Cannot if no object of a class can be stored."""
        if kind not in self._atoms and kind not in self._ways and self._registry.of_class(kind) is None:
            self._find(kind)

    def _find(self, kind: type) -> Callable[[Any, int], Any]:
        """The way of a type that is seldom met."""
        if (known := self._subclasses.get(kind)) is not None:
            return known
        if arrays.is_array(kind):
            way = self._ext(table.ARRAY, arrays.take_array)
        elif arrays.is_scalar(kind):
            way = self._ext(table.SCALAR, arrays.take_scalar)
        elif models.is_secret(kind):
            way = self._ext(table.SECRET, models.take_secret)
        elif (plain := plainly(kind)) is not None:
            return self._subclasses.setdefault(kind, self._plain(plain))
        else:
            raise Cannot(f"its type is {kind.__module__}.{kind.__qualname__}, which is not registered")
        self._ways[kind] = way
        return way

    def _ext(self, code: int, take: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
        return lambda value, depth: Ext(code, encode(self.take(take(value), depth + 1)))

    def _plain(self, plain: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
        return lambda value, depth: self.take(plain(value), depth)

    def _take_list(self, values: list[Any], depth: int) -> list[Any]:
        if self._atoms.issuperset(map(type, values)):
            return values
        taken: list[Any] = []
        try:
            for value in values:
                taken.append(self.take(value, depth + 1))
        except Cannot as cannot:
            raise cannot.inside(f"[{len(taken)}]") from None
        return taken

    def _take_dict(self, values: dict[Any, Any], depth: int) -> Any:
        if not all(map(self._is_key, values)):
            pairs = self._take_pairs(values, depth + 1)
            if pairs and all(map(_is_str, pairs[::2])):  # of subclasses of str: the same bytes as after a round trip
                return dict(zip(pairs[::2], pairs[1::2], strict=True))
            return Ext(table.MAP, encode(pairs))
        if self._atoms.issuperset(map(type, values.values())):
            return values
        taken: dict[str, Any] = {}
        key = ""
        try:
            for key, value in values.items():
                taken[key] = self.take(value, depth + 1)
        except Cannot as cannot:
            raise cannot.inside(f"[{key!r}]") from None
        return taken

    def _fields(self, data: Any, depth: int) -> Any:
        """Data of an object; the steps into it are written as attributes."""
        if type(data) is not dict or not all(map(self._is_key, data)):
            return self.take(data, depth)
        if self._atoms.issuperset(map(type, data.values())):
            return data
        taken: dict[str, Any] = {}
        name = ""
        try:
            for name, value in data.items():
                taken[name] = self.take(value, depth)
        except Cannot as cannot:
            raise cannot.inside(f".{name}") from None
        return taken

    def _take_pairs(self, values: dict[Any, Any], depth: int) -> list[Any]:
        taken: list[Any] = []
        key: Any = None
        try:
            for key, value in values.items():
                taken += [self.take(key, depth), self.take(value, depth)]
        except Cannot as cannot:
            raise cannot.inside(f"[{key!r}]") from None
        return taken

    def _take_set(self, code: int) -> Callable[[Any, int], Any]:
        def take(values: Iterable[Any], depth: int) -> Any:
            """In the order of their bytes: equal sets are stored equally."""
            items = sorted(map(encode, self._take_items(values, depth + 1)))
            return Ext(code, _array_header(len(items)) + b"".join(items))

        return take

    def _take_items(self, values: Iterable[Any], depth: int) -> Iterator[Any]:
        try:
            for value in values:
                yield self.take(value, depth)
        except Cannot as cannot:
            raise cannot.inside("{…}") from None

    @staticmethod
    def _take_unknown(value: Unknown, depth: int) -> Any:
        return Ext(table.OBJECT, encode([value.id, value.version, value.data]))


def _array_header(length: int) -> bytes:
    return encode([None] * length)[:-length] if length else b"\x90"


def take_int(value: int, depth: int) -> Any:
    if _LEAST <= value <= _MOST:
        return value
    return Ext(table.BIG_INT, encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))


def take_text(value: str, depth: int) -> Any:
    return value if _is_text(value) else Ext(table.LONE_TEXT, encode(value.encode("utf-8", "surrogatepass")))


def _is_str(value: Any) -> bool:
    return type(value) is str


def _is_text(value: Any) -> bool:
    """Whether this is text that UTF-8 can say."""
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pairs(value: dict[Any, Any]) -> list[Any]:
    if getattr(value, "__dict__", None):
        raise Cannot("it has attributes of its own")
    return [part for pair in value.items() for part in pair]


def _take_defaultdict(value: defaultdict[Any, Any]) -> Any:
    factory = value.default_factory
    try:
        return [_FACTORY_NAMES[factory], _pairs(value)]
    except (KeyError, TypeError):
        raise Cannot(f"its default_factory is {factory!r}") from None


def _take_uuid(value: uuid.UUID) -> Any:
    """Its bytes, and whether it is safe where that is known, as of those that `uuid1` makes."""
    return value.bytes if value.is_safe is uuid.SafeUUID.unknown else [value.bytes, value.is_safe.value]


def _take_path(value: pathlib.PurePath) -> Any:
    """Its flavour and its text; Cannot of a path of Windows, such as `./c:a`, whose text says another one."""
    text = str(value)
    if isinstance(value, pathlib.PureWindowsPath) and type(value)(text).parts != value.parts:
        raise Cannot(f"it is written {text!r}, which is another path")
    return [_PATH_NAMES[type(value)], text]


def _take_pattern(value: re.Pattern[Any]) -> Any:
    """Its text or bytes, and its flags; Cannot of one that prints what it is made of each time it is made."""
    if value.flags & re.DEBUG:
        raise Cannot("it was compiled with re.DEBUG")
    return [value.pattern, value.flags]


_SIMPLE: dict[type, tuple[int, Callable[[Any], Any]]] = {
    complex: (table.COMPLEX, lambda value: [value.real, value.imag]),
    datetime.datetime: (table.DATETIME, zones.take_datetime),
    datetime.date: (table.DATE, datetime.date.isoformat),
    datetime.time: (table.TIME, zones.take_time),
    datetime.timedelta: (table.TIMEDELTA, zones.take_timedelta),
    datetime.timezone: (table.ZONE, zones.take_zone),
    zoneinfo.ZoneInfo: (table.ZONE, zones.take_zone),
    decimal.Decimal: (table.DECIMAL, str),
    uuid.UUID: (table.UUID, _take_uuid),
    bytearray: (table.BYTEARRAY, bytes),
    range: (table.RANGE, lambda value: [value.start, value.stop, value.step]),
    re.Pattern: (table.PATTERN, _take_pattern),
    Unset: (table.UNSET, lambda value: None),
    **dict.fromkeys(PATHS.values(), (table.PATH, _take_path)),
    **{cls: (table.IP, lambda value: [type(value).__name__, str(value)]) for cls in IPS.values()},
}
