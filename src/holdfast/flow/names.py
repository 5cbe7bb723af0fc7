"""Names that a caller gives: any text, within reason, written so that every back end can hold it."""

from __future__ import annotations

import re
from typing import Any

from holdfast.errors import Damaged, Refused

_MOST_BYTES = 500
"""PostgreSQL takes up to 2,704 in one entry of an index, and five names make up one."""
_MOST_EACH = 6
"""Bytes that a character can become."""
_UNSAYABLE = re.compile("[\x00%\ud800-\udfff]")
_ESCAPED = re.compile("%([0-9a-f]{2}|u[0-9a-f]{4})")


def check_name(value: Any, what: str, *, empty: bool = False, most: int = _MOST_BYTES) -> str:
    """A name as it was given; Refused if it is none."""
    if type(value) is not str:
        raise Refused(f"{what} is a {type(value).__name__}, not text", hint="Give a str.")
    if not value and not empty:
        raise Refused(f"{what} is empty", hint="Give it at least one character.")
    if len(value) * _MOST_EACH > most and len(escape(value).encode()) > most:
        raise Refused(f"{what} has more than {most} bytes", hint="Give a shorter one.")
    return value


def check_limit(limit: Any) -> int | None:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise Refused(f"limit is {limit!r}", hint="Give a whole number, 0 or more, or None for all.")
    return None if limit is None else min(limit, (1 << 63) - 1)


def escape(name: str) -> str:
    """Write a name without NUL and lone surrogates; most names stay as they are."""
    if name.isascii() and "%" not in name and "\0" not in name:
        return name
    return _UNSAYABLE.sub(_escaped, name)


def unescape(written: str) -> str:
    try:
        is_plain = "%" not in written
    except TypeError:  # SQLite holds bytes in a column of texts, if somebody puts them there
        raise Damaged("a stored name is not text", hint="Use another copy, or delete its session.") from None
    return written if is_plain else _ESCAPED.sub(lambda match: chr(int(match[1].removeprefix("u"), 16)), written)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"%{code:02x}" if code < 256 else f"%u{code:04x}"
