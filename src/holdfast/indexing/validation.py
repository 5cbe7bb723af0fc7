"""Validation of paths and names that callers pass."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.errors import Refused
from holdfast.validation import check_place

MEMORY = ":memory:"
"""Instead of a path: a database that lasts as long as its connection and has no files."""
REBUILD_HINT = "Move it away and apply a plan: the ledger has every vector."
"""What to do with a vector store that cannot be used."""


def resolve_path(value: object, what: str, *, in_memory: bool = False) -> Path:
    """Return the absolute path of a store or a ledger: the program may change its directory. Refused if it is invalid.

    `:memory:` is returned unchanged if `in_memory` allows it. A URI of SQLite is refused: we would create a file with
    that very name, and a lock file next to it.
    """
    text = check_place(value, what)
    if text == MEMORY:
        if not in_memory:
            raise Refused(f"{what} cannot be in memory", hint="Give the path of a folder, or use a FlatStore.")
        return Path(text)
    if text.startswith("file:"):
        raise Refused(f"{text} is a URI, not a path for {what}", hint="Give the path; put ./ before such a name.")
    return Path(os.path.abspath(text))


def is_text(text: str) -> bool:
    """Whether it can be encoded: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_texts(value: object, what: str) -> tuple[str, ...]:
    """Return texts or paths as a tuple: one, or a list, tuple or set of them. Refused for anything else."""
    if isinstance(value, str | os.PathLike):
        return (os.fspath(value),)
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray | memoryview | Mapping):
        raise Refused(f"invalid {what}: {value!r}", hint="Give a text, or a list of texts.")
    found = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
    for each in found:
        if not isinstance(each, str):
            raise Refused(f"{what} contains {each!r}", hint="Give a text, or a list of texts.")
    return tuple(sorted(found) if isinstance(value, set | frozenset) else found)
