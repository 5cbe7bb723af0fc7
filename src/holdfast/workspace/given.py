"""What callers give, checked before anything is done with it: a wrong one is Refused, and the message names it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from holdfast.errors import Refused


def a_count(value: int | None, what: str, *, optional: bool = True) -> int | None:
    """How many of something, as SQLite can hold it; None, where that is allowed, is all."""
    if value is None and optional:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(f"{what} is not a whole number", hint=f"It is of type {type(value).__name__}.")
    if value < 0:
        raise Refused(f"{what} is negative", hint=f"Give 0 or more{', or None for all' if optional else ''}.")
    return min(value, sys.maxsize)


def a_text(value: str | None, what: str) -> str | None:
    """Text, or nothing."""
    if value is not None and not isinstance(value, str):
        raise Refused(f"{what} is not text", hint=f"It is of type {type(value).__name__}.")
    return value


def a_path(value: object, what: str) -> str:
    """A path that a file system can have, as text."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise Refused(f"{what} is of type {type(value).__name__}", hint="Give a path, as text or as a Path.")
    text = os.fsdecode(value)
    if not text:
        raise Refused(f"{what} is empty", hint="Name a path.")
    if "\0" in text or not _can_be_a_name(text):
        raise Refused(f"{what} {text!r} cannot be a path", hint="A path has no NUL and no half of a character.")
    return text


def patterns(values: Iterable[str]) -> list[str]:
    """Patterns as in an ignore file."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise Refused(f"exclude_patterns is a single {type(values).__name__}", hint="Give a list of patterns.")
    found = list(values)
    for each in found:
        if not isinstance(each, str) or "\n" in each or "\0" in each or not _can_be_a_name(each):
            raise Refused(
                f"exclude_patterns has {each!r}, which is not a pattern", hint="Give one pattern in each item."
            )
    return found


def _can_be_a_name(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True
