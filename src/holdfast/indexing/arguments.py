"""Validation of paths and names that constructors are given."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.errors import Refused

MEMORY = ":memory:"
"""In the place of a path: a database that lasts as long as its connection, and has no files."""


def place_of(given: object, what: str, *, in_memory: bool = False) -> Path:
    """The absolute path of a store or a ledger: a program may change its directory. Refused if it is none.

    `:memory:` is given back as it is if there is something that can be `in_memory`. A URI of SQLite is refused: it
    would be a file of that very name, and so would be the lock beside it.
    """
    if not isinstance(given, str | os.PathLike) or not (text := os.fsdecode(given)) or "\0" in text:
        raise Refused(f"{given!r} is no path for {what}", hint="Give a path.")
    if text == MEMORY:
        if not in_memory:
            raise Refused(f"{what} cannot be in memory", hint="Give the path of a folder, or use a FlatStore.")
        return Path(text)
    if text.startswith("file:"):
        raise Refused(f"{text} is a URI, not a path for {what}", hint="Give the path; put ./ before such a name.")
    return Path(os.path.abspath(text))


def texts_of(given: object, what: str) -> tuple[str, ...]:
    """Texts or paths: one, or a list, tuple or set of some. Refused for anything else."""
    if isinstance(given, str | os.PathLike):
        return (os.fspath(given),)
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray | memoryview | Mapping):
        raise Refused(f"{what} is {given!r}", hint="Give a text, or a list of texts.")
    found = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in given]
    for each in found:
        if not isinstance(each, str):
            raise Refused(f"{what} has {each!r} in it", hint="Give a text, or a list of texts.")
    return tuple(sorted(found) if isinstance(given, set | frozenset) else found)
