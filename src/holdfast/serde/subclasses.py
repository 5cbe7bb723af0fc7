"""Subclasses of plain types: stored as the plain type where they carry nothing else, refused where they do.

`message.text` of LangChain is a `str` with a method more; to store it as a `str` loses nothing that is data. A `float`
with a currency, or a `dict` that brings other items than it holds, is not the plain value that would be stored.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import pathlib
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import Any

from holdfast.serde import msgpack, pydantic_models
from holdfast.serde.registry import OF_TYPING, UNSET, own, slots, static
from holdfast.serde.types import Unstorable

Plainly = Callable[[Any], Any]

_MISSING = "__missing__"  # dict has none, and calls it
_READING = frozenset({
    "__eq__", "__ne__", "__hash__", "__str__", "__bytes__", "__int__", "__index__", "__float__", "__complex__",
    "__bool__", "__fspath__", "__iter__", "__reversed__", "__len__", "__getitem__", "__contains__", "__getattribute__",
    _MISSING, "keys", "values", "items", "get", "isoformat", "utcoffset", "bytes", "hex", "int", "real", "imag",
    "parts", "year", "month", "day", "hour", "minute", "second", "microsecond", "tzinfo", "fold", "days", "seconds",
    "microseconds", "maxlen", "default_factory", "is_safe",
})  # fmt: skip
"""What brings the content of a plain value: a class with its own may bring another one than is stored."""
_HEAP_TYPE = 1 << 9  # of `__flags__`: made by a class statement. Others are written in C, and may contain anything
_POINTER_BYTES = tuple.__itemsize__


def _counter(value: Counter[Any]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, dict.items(value))
    return made


def _datetime(value: datetime.datetime) -> datetime.datetime:
    parts = value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    return datetime.datetime(*parts, tzinfo=value.tzinfo, fold=value.fold)


def _time(value: datetime.time) -> datetime.time:
    parts = value.hour, value.minute, value.second, value.microsecond
    return datetime.time(*parts, tzinfo=value.tzinfo, fold=value.fold)


def _path(cls: type[pathlib.PurePath]) -> Plainly:
    def make(value: Any) -> Any:
        """The same path; Unstorable of a path of Windows, such as `./c:a`, whose text says another one (P2)."""
        text = pathlib.PurePath.__str__(value)
        made = cls(text)
        if made.parts != value.parts:
            raise Unstorable(f"it is written {text!r}, which is another path")
        return made

    return make


_PATHS: tuple[type[pathlib.PurePath], ...] = (
    pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path,
    pathlib.PurePath,
)  # fmt: skip
_PLAINLY: dict[type, Plainly] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    bytearray: lambda value: bytearray(memoryview(value)),
    list: lambda value: list.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    dict: dict.copy,
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    deque: lambda value: deque(deque.__iter__(value), value.maxlen),
    OrderedDict: lambda value: OrderedDict(OrderedDict.items(value)),
    defaultdict: lambda value: defaultdict(value.default_factory, dict.items(value)),
    Counter: _counter,
    datetime.datetime: _datetime,
    datetime.date: lambda value: datetime.date(value.year, value.month, value.day),
    datetime.time: _time,
    datetime.timedelta: lambda value: datetime.timedelta(value.days, value.seconds, value.microseconds),
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: lambda value: uuid.UUID(int=value.int, is_safe=value.is_safe),
    **{cls: _path(cls) for cls in _PATHS},
}
"""Make the plain value from an object of a subclass, without running code of the subclass."""


def plainly(kind: type) -> Plainly | None:
    """What makes the plain value of an object of a class; None if that has no plain base, or fields or members.

    The function raises Unstorable if the object carries anything else; so does this if all objects of the class may.
    """
    base = next((each for each in kind.__mro__ if each in _PLAINLY), None)
    if base is None or _has_names(kind):
        return None
    added = kind.__mro__[: kind.__mro__.index(base)]
    what = f"its type is {kind.__module__}.{kind.__qualname__}, a {base.__name__} that has"
    for each in added:
        if not each.__flags__ & _HEAP_TYPE:
            raise Unstorable(f"{what} content of its own")
        if reading := sorted(name for name in _READING & vars(each).keys() if hasattr(base, name) or name == _MISSING):
            raise Unstorable(f"{what} its own {reading[0]!r}")
    held = list(slots(added))
    if kind.__basicsize__ > base.__basicsize__ + _POINTER_BYTES * (len(held) + _pointers(kind, base)):
        raise Unstorable(f"{what} content of its own")
    make = _PLAINLY[base]

    def made(value: Any) -> Any:
        for name in held:
            if hasattr(value, name):
                raise Unstorable(f"{what} an attribute {name!r}")
        for name, attribute in own(value).items() if own(value) is not value else ():
            default = static(type(value), name, UNSET)
            if name not in OF_TYPING and not isinstance(default, cached_property) and default is not attribute:
                raise Unstorable(f"{what} an attribute {name!r}")
        return make(value)

    return made


def _has_names(kind: type) -> bool:
    """Whether its objects have fields, or are members of an enum: such a class must be registered."""
    return (
        issubclass(kind, Enum)
        or hasattr(kind, "_fields")
        or hasattr(kind, "n_sequence_fields")  # such as time.struct_time
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        or pydantic_models.is_model(kind)
        or msgpack.is_struct(kind)
    )


def _pointers(kind: type, base: type) -> int:
    """How many pointers a class statement adds: to the attributes, and to the weak references."""
    return (kind.__dictoffset__ != base.__dictoffset__) + (kind.__weakrefoffset__ != base.__weakrefoffset__)
