"""The serializer: values to MessagePack and back, exactly or not at all.

What is in the table of types (`types`) or of a registered class (`registry`) is encoded; anything else is refused.
Decoding calls one function for each number in the table, and nothing else (P7).
"""

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
from contextlib import suppress
from typing import Any, Literal
from weakref import WeakKeyDictionary

from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.serde import arrays, pydantic_models, types
from holdfast.serde.list_prefix import ListPrefix, Shown, look
from holdfast.serde.msgpack import Ext, encode, make_decoder
from holdfast.serde.registry import UNSET, Registry, Unknown, Unset, default_registry
from holdfast.serde.subclasses import plainly
from holdfast.serde.types import Unstorable, is_plain
from holdfast.validation import checked_options

_HINT = "Register its class with holdfast.serde.register, or convert it to a plain value first, as with str(value)."

_FACTORIES: dict[str, Any] = {
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

_PATHS: dict[str, type[pathlib.PurePath]] = {
    "posix": pathlib.PosixPath,
    "windows": pathlib.WindowsPath,
    "pure_posix": pathlib.PurePosixPath,
    "pure_windows": pathlib.PureWindowsPath,
}
_FACTORY_NAMES = {factory: name for name, factory in _FACTORIES.items()}
_PATH_NAMES = {cls: name for name, cls in _PATHS.items()}
_IPS: dict[str, type] = {
    f"IPv{version}{what}": getattr(ipaddress, f"IPv{version}{what}")
    for version in (4, 6)
    for what in ("Address", "Network", "Interface")
}
_ATOMS = frozenset({type(None), bool, float, bytes})
_MOSTLY_ATOMS = _ATOMS | {int, str}
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


@checked_options
class Serde:
    """Values of a closed table of types, and of registered classes, as MessagePack.

    What comes back is equal and of the same types. An object that occurs twice comes back as two; a value that contains
    itself is refused.
    """

    def __init__(
        self, registry: Registry = default_registry, *, on_unknown: Literal["raise", "keep"] = "raise"
    ) -> None:
        """`on_unknown="keep"`: objects of classes that are not registered are read as opaque `Unknown`."""
        if on_unknown not in ("raise", "keep"):
            raise Refused(f"invalid on_unknown {on_unknown!r}", hint="Use 'raise' or 'keep'.")
        self.registry = registry
        self._encoders = (Encoder(registry, careful=False), Encoder(registry, careful=True))
        self._decoder = Decoder(registry, keep_unknown=on_unknown == "keep")
        self.decode = self._decoder.make
        """Read a value. Damaged if the bytes are no value, Refused if they name a class that is not registered."""

    def encode(self, value: Any, where: str = "value") -> bytes:
        """Write a value. Refused, with the path of what cannot be stored; `where` is the name of the whole."""
        if is_plain(value):
            try:
                return encode(value)
            except (OverflowError, UnicodeEncodeError, RecursionError):
                pass  # a large number or a lone surrogate: has an extension
        try:
            return self._encode_any(value)
        except Unstorable as error:
            path, reason = error.path, error.reason
        except RecursionError:
            path, reason = "", "it is nested too deeply"
        raise Refused(f"{where}{path} cannot be stored: {reason}", hint=_HINT)

    def encode_parted(self, values: list[Any], where: str = "value") -> bytes:
        """`encode` of a short list whose first value needs an extension, and the others mostly none: the same bytes."""
        first, *rest = values
        if type(first) is datetime.datetime and is_plain(rest):
            with suppress(OverflowError, UnicodeEncodeError, Unstorable, RecursionError):
                return encode([self._encoders[0].take(first), *rest])
        return self.encode(values, where)

    def why_not(self, cls: type) -> str | None:
        """Why objects of a class cannot be stored; None if they can, as far as the class tells."""
        try:
            self._encoders[0].check(cls)
        except Unstorable as error:
            return error.reason
        return None

    def look(self, values: list[Any]) -> ListPrefix | None:
        """A snapshot that shows later whether a list still begins with the same values; None if none is possible."""
        return look(values, self._shown)

    def _shown(self, kind: type) -> Shown | None:
        entry = self.registry.of_class(kind)
        return None if entry is None else entry.shown

    def _encode_any(self, value: Any) -> bytes:
        quick, careful = self._encoders
        try:
            return encode(quick.take(value))
        except (OverflowError, UnicodeEncodeError):
            return encode(careful.take(value))


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
            tuple: self._ext(types.TUPLE, list),
            set: self._take_set(types.SET),
            frozenset: self._take_set(types.FROZENSET),
            deque: self._ext(types.DEQUE, lambda value: [value.maxlen, list(value)]),
            OrderedDict: self._ext(types.ORDERED_DICT, _pairs),
            Counter: self._ext(types.COUNTER, _pairs),
            defaultdict: self._ext(types.DEFAULT_DICT, _take_defaultdict),
            Unknown: self._take_unknown,
        }
        self._subclasses: WeakKeyDictionary[type, Callable[[Any, int], Any]] = WeakKeyDictionary()
        for kind, (code, take) in _ENCODERS.items():
            self._ways[kind] = self._ext(code, take)

    def take(self, value: Any, depth: int = 0) -> Any:
        """The encoded form of a value; Unstorable, with its path, if there is none."""
        kind = type(value)
        if kind in self._atoms:
            return value
        if depth > types.MAX_DEPTH:
            raise Unstorable(f"it is nested more than {types.MAX_DEPTH} deep, or contains itself")
        entry = self._registry.of_class(kind)
        if entry is not None:
            data = self._fields(entry.kind.take(value), depth + 1)
            return Ext(types.OBJECT, encode([entry.id, entry.version, encode(data)]))
        way = self._ways.get(kind) or self._find(kind)
        return way(value, depth)

    def check(self, kind: type) -> None:
        """Unstorable if no object of a class can be stored."""
        if kind not in self._atoms and kind not in self._ways and self._registry.of_class(kind) is None:
            self._find(kind)

    def _find(self, kind: type) -> Callable[[Any, int], Any]:
        """The encoder of a type that is not in the table."""
        if (known := self._subclasses.get(kind)) is not None:
            return known
        if arrays.is_array(kind):
            way = self._ext(types.ARRAY, arrays.take_array)
        elif arrays.is_scalar(kind):
            way = self._ext(types.SCALAR, arrays.take_scalar)
        elif pydantic_models.is_secret(kind):
            way = self._ext(types.SECRET, pydantic_models.take_secret)
        elif (plain := plainly(kind)) is not None:
            return self._subclasses.setdefault(kind, self._plain(plain))
        else:
            raise Unstorable(f"its type is {kind.__module__}.{kind.__qualname__}, which is not registered")
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
        except Unstorable as error:
            raise error.inside(f"[{len(taken)}]") from None
        return taken

    def _take_dict(self, values: dict[Any, Any], depth: int) -> Any:
        if not all(map(self._is_key, values)):
            pairs = self._take_pairs(values, depth + 1)
            if pairs and all(map(_is_str, pairs[::2])):  # of subclasses of str: the same bytes as after a round trip
                return dict(zip(pairs[::2], pairs[1::2], strict=True))
            return Ext(types.MAP, encode(pairs))
        if self._atoms.issuperset(map(type, values.values())):
            return values
        taken: dict[str, Any] = {}
        key = ""
        try:
            for key, value in values.items():
                taken[key] = self.take(value, depth + 1)
        except Unstorable as error:
            raise error.inside(f"[{key!r}]") from None
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
        except Unstorable as error:
            raise error.inside(f".{name}") from None
        return taken

    def _take_pairs(self, values: dict[Any, Any], depth: int) -> list[Any]:
        taken: list[Any] = []
        key: Any = None
        try:
            for key, value in values.items():
                taken += [self.take(key, depth), self.take(value, depth)]
        except Unstorable as error:
            raise error.inside(f"[{key!r}]") from None
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
        except Unstorable as error:
            raise error.inside("{…}") from None

    @staticmethod
    def _take_unknown(value: Unknown, depth: int) -> Any:
        return Ext(types.OBJECT, encode([value.id, value.version, value.data]))


def _array_header(length: int) -> bytes:
    return encode([None] * length)[:-length] if length else b"\x90"


def take_int(value: int, depth: int) -> Any:
    if _LEAST <= value <= _MOST:
        return value
    return Ext(types.BIG_INT, encode(value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))


def take_text(value: str, depth: int) -> Any:
    return value if _is_text(value) else Ext(types.LONE_TEXT, encode(value.encode("utf-8", "surrogatepass")))


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
        raise Unstorable("it has attributes of its own")
    return [part for pair in value.items() for part in pair]


def _take_defaultdict(value: defaultdict[Any, Any]) -> Any:
    factory = value.default_factory
    try:
        return [_FACTORY_NAMES[factory], _pairs(value)]
    except (KeyError, TypeError):
        raise Unstorable(f"its default_factory is {factory!r}") from None


def _take_uuid(value: uuid.UUID) -> Any:
    """Its bytes, and whether it is safe where that is known, as of those that `uuid1` makes."""
    return value.bytes if value.is_safe is uuid.SafeUUID.unknown else [value.bytes, value.is_safe.value]


def _take_path(value: pathlib.PurePath) -> Any:
    """Its flavour and its text; Unstorable of a path of Windows, such as `./c:a`, whose text says another one."""
    text = str(value)
    if isinstance(value, pathlib.PureWindowsPath) and type(value)(text).parts != value.parts:
        raise Unstorable(f"it is written {text!r}, which is another path")
    return [_PATH_NAMES[type(value)], text]


def _take_pattern(value: re.Pattern[Any]) -> Any:
    """Its text or bytes, and its flags; Unstorable if compiled with DEBUG, which prints whenever it is compiled."""
    if value.flags & re.DEBUG:
        raise Unstorable("it was compiled with re.DEBUG")
    return [value.pattern, value.flags]


class Decoder:
    """Turns MessagePack with extensions into values."""

    def __init__(self, registry: Registry, *, keep_unknown: bool) -> None:
        self._registry = registry
        self._keep_unknown = keep_unknown
        self.make: Callable[[bytes | memoryview], Any] = make_decoder(self._extension)

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == types.OBJECT:
            return self._object(self.make(data))
        way = _DECODERS.get(code)
        if way is None:
            raise Refused(f"type {code} is unknown to this version of Holdfast", hint="Read it with a newer Holdfast.")
        payload = self.make(data)
        try:
            return way(payload)
        except HoldfastError:
            raise
        except Exception as error:  # whatever forged bytes make of an innocent constructor
            raise Damaged(f"a stored {types.NAMES[code]} is corrupt: {error}", hint="Use another checkpoint.") from None

    def _object(self, payload: Any) -> Any:
        try:
            type_id, version, data = payload
            known = type(type_id) is str and type(version) is int and type(data) is bytes
        except (TypeError, ValueError):
            known = False
        if not known:
            raise Damaged("a stored object is corrupt", hint="Use another checkpoint.")
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
                f"cannot rebuild {type_id} from what is stored: {error!r}",
                hint="Check its decode function and upgrades.",
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
        return _PATHS[flavour](text)
    except NotImplementedError:
        raise Unavailable(f"{text} is a path of another operating system", hint="Read it on that system.") from None


def _uuid(data: Any) -> uuid.UUID:
    raw, safe = data if isinstance(data, list) else (data, None)
    return uuid.UUID(bytes=raw, is_safe=uuid.SafeUUID(safe))


def _pattern(data: Any) -> re.Pattern[Any]:
    text, flags = data
    if type(flags) is not int or flags & re.DEBUG:  # which would print
        raise ValueError(f"the flags of a pattern are {flags!r}")
    return re.compile(text, flags)


def _take_zone(zone: datetime.tzinfo | None) -> Any:
    """None, the key of a zone, or an offset in microseconds with its name where it has one of its own."""
    if zone is None:
        return None
    if zone is datetime.UTC:
        return [0]
    if type(zone) is datetime.timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # the name only if one was given
        return [offset // datetime.timedelta(microseconds=1), *name]
    if type(zone) is zoneinfo.ZoneInfo and zone.key is not None and _is_known_by_key(zone):
        return zone.key
    raise Unstorable(f"its zone is of type {type(zone).__module__}.{type(zone).__qualname__}")


def _is_known_by_key(zone: zoneinfo.ZoneInfo) -> bool:
    """Whether the key stands for it. One that was read from a file may have any key, and refuses to be taken apart."""
    try:
        zone.__reduce__()
    except Exception:  # a PicklingError, which has no business in here
        return False
    return True


def _make_zone(data: Any) -> datetime.tzinfo | None:
    if data is None:
        return None
    if isinstance(data, str):
        try:
            return zoneinfo.ZoneInfo(data)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise Unavailable(f"the time zone {data!r} is unknown on this machine", hint="Install `tzdata`.") from None
    offset, *name = data
    return datetime.timezone(datetime.timedelta(microseconds=offset), *name)


def _take_time(value: datetime.datetime | datetime.time) -> Any:
    """To the microsecond, with the fold and the zone."""
    return [value.replace(tzinfo=None).isoformat(), value.fold, _take_zone(value.tzinfo)]


def _make_datetime(data: Any) -> datetime.datetime:
    text, fold, zone = data
    return datetime.datetime.fromisoformat(text).replace(tzinfo=_make_zone(zone), fold=fold)


def _make_time(data: Any) -> datetime.time:
    text, fold, zone = data
    return datetime.time.fromisoformat(text).replace(tzinfo=_make_zone(zone), fold=fold)


def _take_timedelta(value: datetime.timedelta) -> Any:
    return [value.days, value.seconds, value.microseconds]


def _make_timedelta(data: Any) -> datetime.timedelta:
    days, seconds, microseconds = data
    return datetime.timedelta(days, seconds, microseconds)


_ENCODERS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    complex: (types.COMPLEX, lambda value: [value.real, value.imag]),
    datetime.datetime: (types.DATETIME, _take_time),
    datetime.date: (types.DATE, datetime.date.isoformat),
    datetime.time: (types.TIME, _take_time),
    datetime.timedelta: (types.TIMEDELTA, _take_timedelta),
    datetime.timezone: (types.ZONE, _take_zone),
    zoneinfo.ZoneInfo: (types.ZONE, _take_zone),
    decimal.Decimal: (types.DECIMAL, str),
    uuid.UUID: (types.UUID, _take_uuid),
    bytearray: (types.BYTEARRAY, bytes),
    range: (types.RANGE, lambda value: [value.start, value.stop, value.step]),
    re.Pattern: (types.PATTERN, _take_pattern),
    Unset: (types.UNSET, lambda value: None),
    **dict.fromkeys(_PATHS.values(), (types.PATH, _take_path)),
    **{cls: (types.IP, lambda value: [type(value).__name__, str(value)]) for cls in _IPS.values()},
}

_DECODERS: dict[int, Callable[[Any], Any]] = {
    types.TUPLE: tuple,
    types.SET: set,
    types.FROZENSET: frozenset,
    types.MAP: _map,
    types.BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    types.LONE_TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    types.COMPLEX: lambda data: complex(*data),
    types.DATETIME: _make_datetime,
    types.DATE: datetime.date.fromisoformat,
    types.TIME: _make_time,
    types.TIMEDELTA: _make_timedelta,
    types.DECIMAL: decimal.Decimal,
    types.UUID: _uuid,
    types.PATH: _path,
    types.DEQUE: lambda data: deque(data[1], data[0]),
    types.ORDERED_DICT: lambda data: OrderedDict(_map(data)),
    types.DEFAULT_DICT: lambda data: defaultdict(_FACTORIES[data[0]], _map(data[1])),
    types.COUNTER: _counter,
    types.BYTEARRAY: bytearray,
    types.ARRAY: arrays.make_array,
    types.SCALAR: arrays.make_scalar,
    types.SECRET: pydantic_models.make_secret,
    types.UNSET: lambda data: UNSET,
    types.RANGE: lambda data: range(*data),
    types.ZONE: _make_zone,
    types.IP: lambda data: _IPS[data[0]](data[1]),
    types.PATTERN: _pattern,
}
