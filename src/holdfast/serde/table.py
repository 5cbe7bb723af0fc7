"""The closed table of types: each has a number in MessagePack's extensions and a name in the JSON form.

A number is never given to another type. What is not in the table is not written, and refused when read (P7).
"""

from __future__ import annotations

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
