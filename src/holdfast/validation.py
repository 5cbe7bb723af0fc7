"""Checks of the arguments that callers pass, before anything is done with them.

Each returns the value in the type that the rest of the code uses. A wrong one is Refused, and the message names it.
What only one surface takes (names of flow states, steps of a training run) is checked in that surface.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.errors import Refused, UnknownOption

T = TypeVar("T")


def check_int(value: object, what: str) -> int:
    """A whole number; True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(f"{what} is {value!r:.80}", hint=f"Give a whole number, not a {type(value).__name__}.")
    return value


def check_count(value: object, what: str, *, least: int = 0) -> int:
    """A whole number that is not too small, capped at what SQLite can store."""
    return _count(value, what, least, f"Give a whole number, {least} or more.")


def check_limit(value: object, what: str = "limit", *, least: int = 0) -> int | None:
    """A count, or None for no limit."""
    hint = f"Give a whole number, {least} or more, or None for no limit."
    return None if value is None else _count(value, what, least, hint)


def check_flag(value: object, what: str) -> bool:
    """True or False, and nothing that is merely truthy."""
    if not isinstance(value, bool):
        raise Refused(f"{what} is {value!r:.80}", hint="Give True or False.")
    return value


def check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{what} is not text", hint=f"It is of type {type(value).__name__}.")
    return value


def check_optional_text(value: object, what: str) -> str | None:
    return None if value is None else check_text(value, what)


def check_texts(value: object, what: str) -> Sequence[str]:
    """A list or tuple of texts; a single text is none, though Python could iterate over it."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise Refused(f"{what} is not a list of str", hint="Give a list or tuple of str.")
    return value


def check_mapping(value: object, what: str) -> Mapping[str, Any]:
    """A mapping of names to values."""
    if not isinstance(value, Mapping):
        raise Refused(f"{what} is not a mapping", hint=f"Give a dict with str keys, not a {type(value).__name__}.")
    for key in value:
        if not isinstance(key, str):
            raise Refused(f"{what} has the key {key!r:.80}", hint="Give a dict with str keys.")
    return value


def check_path(value: object, what: str) -> str:
    """A path that a file system can have, as text."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise Refused(f"{what} is of type {type(value).__name__}", hint="Give a path, as text or as a Path.")
    text = os.fsdecode(value)
    if not text:
        raise Refused(f"{what} is empty", hint="Name a path.")
    if not _can_be_a_path(text):
        raise Refused(
            f"{what} {text!r} cannot be a path", hint="A path has no NUL and no characters that it cannot encode."
        )
    return text


def check_place(value: object, what: str) -> str:
    """A path of a file or folder anywhere, as text, with `~` as the home folder; `./~` is a file of that name."""
    return os.path.expanduser(check_path(value, what))


_DRIVER = r"(?<=^sqlite)\+\w+(?=:)|(?<=^postgres)\+\w+(?=:)|(?<=^postgresql)\+\w+(?=:)"


def without_driver(url: str) -> str:
    """A URL of a database without the driver that SQLAlchemy takes in it: `sqlite+aiosqlite:///f.db` and the like."""
    return re.sub(_DRIVER, "", url, count=1)


def check_known(options: Mapping[str, object], known: Iterable[str], what: str) -> None:
    """Refuse an option that a call does not have, before anything is done: it would have no effect, or fail later."""
    unknown = sorted(options.keys() - set(known))
    if not unknown:
        return
    from difflib import get_close_matches  # start-up cost, for this error only

    names = sorted(name for name in known if not name.startswith("_"))
    near = get_close_matches(unknown[0], names, 1)
    hint = f"Did you mean {near[0]}?" if near else f"The options are {', '.join(names)}."
    raise UnknownOption(f"{what} has no option {unknown[0]!r}", hint=hint)


def checked_options(cls: type[T]) -> type[T]:
    """Make a constructor raise UnknownOption at the call, in place of Python's TypeError. A class decorator."""
    inner: Any = cls.__init__
    known = frozenset(parameters_of(inner))

    def construct(self: Any, /, *args: Any, **options: Any) -> None:
        if not options.keys() <= known:
            check_known(options, known, cls.__name__)
        inner(self, *args, **options)

    construct.__wrapped__ = inner  # type: ignore[attr-defined]  # for `inspect.signature` and `parameters_of`
    construct.__name__, construct.__qualname__ = "__init__", inner.__qualname__
    construct.__doc__, construct.__module__ = inner.__doc__, inner.__module__
    cls.__init__ = construct  # type: ignore[method-assign,assignment]
    return cls


def parameters_of(function: Callable[..., object]) -> list[str]:
    """The names of the parameters of a function, without `self` and without what it collects as `**options`."""
    code = getattr(function, "__wrapped__", function).__code__  # `inspect` takes longer to import than this
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [name for name in names if name != "self"]


def check_patterns(values: object, what: str = "exclude_patterns") -> list[str]:
    """Patterns as in an ignore file, one in each item."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise Refused(f"{what} is a single {type(values).__name__}", hint="Give a list of patterns.")
    found = list(values)
    for each in found:
        if not isinstance(each, str) or "\n" in each or not _can_be_a_path(each):
            raise Refused(f"{what} has {each!r}, which is not a pattern", hint="Give one pattern in each item.")
    return found


def _count(value: object, what: str, least: int, hint: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{what} is {value!r:.80}", hint=hint)
    return min(value, sys.maxsize)


def _can_be_a_path(text: str) -> bool:
    """Whether the system can encode it: a lone surrogate that stands for no byte has no encoding."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
