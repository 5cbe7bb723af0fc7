"""The closed table of types: each has a number in MessagePack's extensions and a name in the JSON form.

A number is never given to another type. What is not in the table is not written, and refused when read (P7).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

TUPLE = 1
SET = 2
FROZENSET = 3
MAP = 4  # a dict with other keys than text: [key, value, key, value, …]
BIG_INT = 5
LONE_TEXT = 6  # text with lone surrogates
COMPLEX = 7
DATETIME = 8
DATE = 9
TIME = 10
TIMEDELTA = 11
DECIMAL = 12
UUID = 13
PATH = 14
DEQUE = 15
ORDERED_DICT = 16
DEFAULT_DICT = 17
COUNTER = 18
BYTEARRAY = 19
ARRAY = 20  # numpy
SCALAR = 21  # numpy
OBJECT = 22  # of a registered class: [id, version, data]
SECRET = 23  # pydantic's SecretStr and SecretBytes
UNSET = 24  # a field that has no value
RANGE = 25
ZONE = 26  # a timezone or ZoneInfo by itself
IP = 27
PATTERN = 28  # a compiled regular expression

NAMES = {
    TUPLE: "tuple",
    SET: "set",
    FROZENSET: "frozenset",
    MAP: "map",
    BIG_INT: "int",
    LONE_TEXT: "text",
    COMPLEX: "complex",
    DATETIME: "datetime",
    DATE: "date",
    TIME: "time",
    TIMEDELTA: "timedelta",
    DECIMAL: "decimal",
    UUID: "uuid",
    PATH: "path",
    DEQUE: "deque",
    ORDERED_DICT: "ordered_dict",
    DEFAULT_DICT: "defaultdict",
    COUNTER: "counter",
    BYTEARRAY: "bytearray",
    ARRAY: "array",
    SCALAR: "scalar",
    OBJECT: "object",
    SECRET: "secret",
    UNSET: "unset",
    RANGE: "range",
    ZONE: "zone",
    IP: "ip",
    PATTERN: "pattern",
}

MAX_DEPTH = 150
"""How deeply values may be nested: what is saved can be read back from any ordinary stack."""


def tag_of(value: dict[str, Any]) -> str | None:
    """The tag of an object in the JSON form (`jsonform`): its only key, if that begins with `$`."""
    key = next(iter(value), "")
    return key if len(value) == 1 and key.startswith("$") else None


class Unstorable(Exception):
    """Why a value cannot be stored, and where it is inside another: the path grows on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def inside(self, step: str) -> Unstorable:
        """Note one more step on the way to the value."""
        self.steps.append(step)
        return self

    @property
    def path(self) -> str:
        return "".join(reversed(self.steps))


_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN = _SCALARS | {list, dict}
_TEXT = frozenset({str})
_MOST_LEVELS = 64
_MOST_ON_A_LEVEL = 1 << 24
_CROWDED = 1 << 14


def is_plain(value: Any, *, most_levels: int = _MOST_LEVELS) -> bool:
    """Whether MessagePack alone brings a value back exactly: no subclass, no tuple, no key but text anywhere in it.

    Checked level by level with C loops. False also for what is very deep or very wide, which the encoder checks.
    """
    if type(value) in _SCALARS:
        return True
    kinds, level = {type(value)}, [value]
    for _ in range(most_levels):
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        dicts = [item for item in level if type(item) is dict] if dict in kinds else []
        if not _TEXT.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        lists = [item for item in level if type(item) is list] if list in kinds else []
        kinds = set(map(type, _held(dicts, lists)))
        if not kinds <= _SCALARS:
            level = list(islice(_held(dicts, lists), _MOST_ON_A_LEVEL + 1))
            if len(level) > _MOST_ON_A_LEVEL:
                return False
            if (
                len(level) > _CROWDED
            ):  # each object once: a list that contains itself twice would double with every level
                level = list({id(item): item for item in level}.values())
    return False


def _held(dicts: list[dict[str, Any]], lists: list[list[Any]]) -> Iterator[Any]:
    return chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))
