"""Tables of a configuration in TOML: each key has a check, and what is wrong is said with the file and the key."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Refused, Unavailable

OWN, SHARED = "holdfast.toml", "pyproject.toml"
_MOST_BYTES = 1 << 20
_MOST_READ_BYTES = 16 << 20  # of others, to see whether they mention us
_MOST_SHOWN = 200

Checks = Mapping[str, Callable[[Any, str], Any]]
"""By key, what makes of a value what is stored. It is given the value and the name of the key, and raises Refused."""


def find_table(folder: Path) -> tuple[Mapping[str, Any], str] | None:
    """The configuration of a folder, and the file that has it; None where there is none. Refused where two have it."""
    own = _table(folder / OWN, ())
    shared = _table(folder / SHARED, ("tool", "holdfast"))
    if own is not None and shared is not None:
        raise Refused(
            f"{OWN} and [tool.holdfast] in {SHARED} both configure {folder}", hint="Keep one and remove the other."
        )
    if own is not None:
        return own, OWN
    return None if shared is None else (shared, SHARED)


def checked(table: Mapping[str, Any], keys: Checks, file: str, above: str) -> Any:
    """The values of a table. Refused, with the nearest valid one, for a key that is not known."""
    values = {}
    for key, value in table.items():
        if key not in keys:
            raise Refused(f"{file}: there is no key {above + key!r}", hint=nearest(key, keys, above))
        try:
            values[key] = keys[key](value, above + key)
        except Refused as error:
            raise Refused(f"{file}: {error.message}", hint=error.hint) from None
    return values


def nearest(key: str, keys: Mapping[str, object], above: str) -> str:
    """A hint for a key that is not known."""
    import difflib  # start-up cost, for a misspelt key only

    near = difflib.get_close_matches(key, keys, n=1)
    return f"Did you mean {above}{near[0]}?" if near else f"The keys are {', '.join(above + name for name in keys)}."


def shown(value: Any) -> str:
    """A value for a message: of one that is long or deep, the beginning."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def texts(value: Any, what: str) -> list[str]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Refused(f"{what} is {shown(value)}", hint='Write a list of texts, such as ["*.log", "data/"].')
    return value


def switch(value: Any, what: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Refused(f"{what} is {shown(value)}", hint="Write true or false.")
    return value


def number(value: Any, what: str) -> int:
    """A whole number, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(f"{what} is {shown(value)}", hint="Write a whole number, 0 or more.")
    return value


def text(value: Any, what: str) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise Refused(f"{what} is {shown(value)}", hint="Write a text.")
    return value


# reading


def _table(path: Path, keys: tuple[str, ...]) -> Mapping[str, Any] | None:
    """A table of a file; None if either is not there. A file that does not mention us is not even parsed."""
    try:
        data = durable.read_file(path, max_bytes=_MOST_READ_BYTES)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _above(path) from None
        if error.errno == errno.EINVAL:
            raise Refused(
                f"{path.name} cannot be read: {error.strerror}", hint="Put a file in its place, or nothing."
            ) from None
        raise Unavailable(
            f"{path.name} cannot be read: {error.strerror}",
            hint="See whether you may enter the folder and read the file.",
        ) from error
    if keys and not all(key.encode() in data for key in keys):
        return None
    if len(data) > _MOST_BYTES:
        raise _above(path)
    try:
        table = durable.parse_toml(data)
    except ValueError as error:  # no TOML, no UTF-8, or a number of thousands of digits
        raise Refused(f"{path.name} is not TOML: {error}", hint="Fix that line.") from None
    for key in keys:
        if key not in table:
            return None
        table = table[key]
        if not isinstance(table, dict):
            raise Refused(f"{path.name}: {key} is {shown(table)}", hint="It is a table: [tool.holdfast].")
    return table


def _above(path: Path) -> Refused:
    return Refused(f"{path.name} is above 1 MiB", hint=f"Keep the configuration in a file of its own, {OWN}.")
