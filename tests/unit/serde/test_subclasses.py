"""Subclasses of plain types are stored as the plain type where they carry nothing else, and refused where they do."""

from __future__ import annotations

import enum
import gc
import pathlib
import time as clock
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID, uuid1

import numpy as np
import pytest

from holdfast.errors import Refused
from holdfast.serde import Registry, Serde

SERDE = Serde()
T = TypeVar("T")

PLAIN: list[Any] = [
    "text", "half \ud800 a character", "", 7, 1 << 70, 2.5, 1 + 2j, b"bytes", bytearray(b"more"), [1, "a"], (1, 2),
    {"a": 1}, {1: 2}, {1, 2}, frozenset({3}), deque([1, 2], 3), OrderedDict(b=1, a=2), Counter("aab"),
    defaultdict(list, a=[1]), datetime(2026, 1, 2, 3, 4, 5, 6, UTC, fold=1), date(2026, 1, 2), time(1, 2, fold=1),
    timedelta(1, 2, 3), Decimal("1.10"), uuid1(), pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("c:/a"),
    pathlib.Path("a/../b"),
]  # fmt: skip


def _sub(value: Any, **more: Any) -> Any:
    """The same value of a class of its own."""
    cls: Any = type("Sub", (type(value),), more)
    match value:
        case deque():
            return cls(value, value.maxlen)
        case defaultdict():
            return cls(list, value)
        case timedelta():
            return cls(value.days, value.seconds, value.microseconds)
        case datetime():
            return cls(*value.timetuple()[:6], value.microsecond, tzinfo=value.tzinfo, fold=value.fold)
        case date():
            return cls(*value.timetuple()[:3])
        case time():
            return cls(value.hour, value.minute, fold=value.fold)
        case UUID():
            return cls(int=value.int, is_safe=value.is_safe)
    return cls(value)


def _stored(value: Any) -> Any:
    return SERDE.decode(SERDE.encode(value))


@pytest.mark.parametrize("plain", PLAIN, ids=lambda value: type(value).__name__)
class TestPlain:
    def test_comes_back_as_the_plain_type(self, plain: Any) -> None:
        for value in (_sub(plain), _sub(plain, shout=lambda self: 1), _sub(_sub(plain))):
            assert SERDE.encode(value) == SERDE.encode(plain)
            back = _stored([value, {"in": value}])
            assert back == [plain, {"in": plain}]
            assert type(back[0]) is type(plain)

    def test_with_an_attribute_is_refused(self, plain: Any) -> None:
        value = _sub(plain)
        object.__setattr__(value, "more", 1)
        with pytest.raises(Refused, match=r"state\['a'\] cannot be stored: .*Sub, a \w+ that has an attribute 'more'"):
            SERDE.encode({"a": value}, "state")

    def test_that_reads_otherwise_is_refused(self, plain: Any) -> None:
        value = _sub(plain, __eq__=lambda self, other: True, __hash__=lambda self: 1)
        with pytest.raises(Refused, match=r"its own '__eq__'"):
            SERDE.encode(value)


@pytest.mark.parametrize(
    ("plain", "name", "told"),
    [
        (datetime(2026, 1, 2), "year", 1999),
        (datetime(2026, 1, 2), "tzinfo", UTC),
        (date(2026, 1, 2), "day", 3),
        (time(1, 2), "hour", 3),
        (timedelta(1), "days", 3),
        (deque([1, 2]), "maxlen", 1),
        (defaultdict(list), "default_factory", int),
    ],
)
def test_a_part_that_reads_otherwise_is_refused(plain: Any, name: str, told: Any) -> None:
    value = _sub(plain, **{name: property(lambda self: told)})
    with pytest.raises(Refused, match=f"its own '{name}'"):
        SERDE.encode(value)


def test_a_windows_path_that_its_text_misspells_is_refused() -> None:
    for value in (pathlib.PureWindowsPath("./c:a"), _sub(pathlib.PureWindowsPath("x")).__class__("./c:a")):
        if type(value)(str(value)).parts == value.parts:  # Python 3.12 and later write it as it is
            assert _stored(value).parts == value.parts
            continue
        with pytest.raises(Refused, match="another path"):
            SERDE.encode(value)


class Slotted(dict[str, int]):
    __slots__ = ("more",)


class Upper(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


class Asking(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


class Pair(NamedTuple):
    one: int
    two: int


class Colour(enum.StrEnum):
    RED = "red"


class Bits(enum.IntFlag):
    ONE = 1


def _slotted() -> Slotted:
    value = Slotted(a=1)
    value.more = 1
    return value


class Float64(np.float64):
    pass


@pytest.mark.parametrize(
    "value",
    [_slotted(), Upper("a"), Asking(a=1), Pair(1, 2), Colour.RED, Bits.ONE, clock.gmtime(0), Float64(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_more_than_plain_is_refused(value: Any) -> None:
    with pytest.raises(Refused) as refused:
        SERDE.encode(value)
    assert "register" in refused.value.hint
    assert "str(value)" in refused.value.hint


class Listed(list[T], Generic[T]):
    default = "d"

    @cached_property
    def total(self) -> int:
        return len(self)


class Attributed(dict[str, int]):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.__dict__ = self  # type: ignore[assignment]  # a known trick


def test_attributes_that_say_nothing_are_no_obstacle() -> None:
    listed = Listed[int]([1])
    assert listed.total == 1
    listed.default = Listed.default
    assert _stored(listed) == [1]
    assert _stored(Attributed({"a": 1})) == {"a": 1}
    assert _stored(Slotted(a=1)) == {"a": 1}
    listed.default = "other"
    with pytest.raises(Refused, match="'default'"):
        SERDE.encode(listed)


def test_a_registered_subclass_comes_back_as_itself() -> None:
    registry = Registry()
    registry.add(Upper, "Upper", encode=lambda value: str.__str__(value), decode=Upper)
    back = Serde(registry).decode(Serde(registry).encode([Upper("a")]))
    assert type(back[0]) is Upper


def test_keys_come_back_as_plain_text() -> None:
    back = _stored({_sub("a"): 1, "b": 2})
    assert back == {"a": 1, "b": 2}
    assert {type(key) for key in back} == {str}
    for value in ({_sub("a"): 1, "b": [2]}, {_sub("half \ud800"): 1}):
        assert SERDE.encode(value) == SERDE.encode({str.__str__(key): each for key, each in value.items()})


def test_a_class_that_was_stored_once_can_go() -> None:
    value = _sub("a")
    gone = weakref.ref(type(value))
    SERDE.encode(value)
    del value
    gc.collect()
    assert gone() is None
