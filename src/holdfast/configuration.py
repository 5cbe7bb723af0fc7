"""Configuration files: find `holdfast.toml` or `[tool.holdfast]`, and check a table against a msgspec struct.

Reading is bounded and never waits (a pipe, a device, gigabytes, a thousand tables in each other are refused at once),
because a command that goes back to a checkpoint reads the same files. An error names the file, the line and the key.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from holdfast import durable
from holdfast.errors import Refused, Unavailable

OWN, SHARED = "holdfast.toml", "pyproject.toml"
_MAX_BYTES = 1 << 20
_MAX_READ_BYTES = 16 << 20  # of a pyproject.toml, to see whether it mentions us
_MAX_SHOWN_CHARS = 200
_MAX_SEARCHED_LINES = 5_000
_MAX_PARSES = 100

_T = TypeVar("_T")


def find_configuration(folder: Path) -> ConfigTable | None:
    """Return the configuration of a folder; None if it has none. Refused if both files have one."""
    own = _read(folder / OWN, ())
    shared = _read(folder / SHARED, ("tool", "holdfast"))
    if own is not None and shared is not None:
        raise Refused(
            f"{OWN} and [tool.holdfast] in {SHARED} both configure {folder}", hint="Keep one and remove the other."
        )
    return own or shared


class ConfigTable:
    """A table of a TOML file. No dataclass: making one is felt in the start of a command."""

    def __init__(self, file: str, root: tuple[str, ...], values: Mapping[str, Any], data: bytes) -> None:
        self.file = file
        self.values = values
        self._root = root  # where the table is in the file: ("tool", "holdfast"), or () for the whole file
        self._data = data  # of the file, to find the lines of keys

    def decode(self, kind: type[_T], *path: str) -> _T:
        """Return the value at `path` as the struct `kind`; Refused, with file, line and key, if it is not valid."""
        import msgspec  # start-up cost, only for folders that have a configuration

        value = _value_at(self.values, path)
        try:
            return msgspec.convert(value, kind, dec_hook=_decode_unit)
        except RecursionError:
            raise self.error(path, f"{'.'.join(path) or 'the file'} is nested too deeply") from None
        except msgspec.ValidationError as error:
            words, steps = _split_error(str(error))
            try:
                raise self._invalid(path, _named(value, kind, steps), words, kind) from None
            except (AttributeError, LookupError, StopIteration, TypeError):  # a key that looks like a path of msgspec
                raise self.error(path, words) from None

    def error(self, path: tuple[str, ...], message: str, hint: str = "") -> Refused:
        """Return an error about the key at `path`, with the file and, if it is certain, the line."""
        line = _line_of(self._data, (*self._root, *path))
        where = self.file if line is None else f"{self.file}:{line}"
        return Refused(f"{where}: {message}", hint=hint)

    def _invalid(self, above: tuple[str, ...], steps: tuple[str, ...], words: str, kind: type) -> Refused:
        path = (*above, *steps)
        keys, choices = _keys_and_choices(kind, steps)
        value = _value_at(self.values, path)
        if words.startswith("Object contains unknown field"):
            key = next(key for key in value if key not in keys)
            table = "".join(f"{part}." for part in path)
            return self.error((*path, key), f"unknown key {_shown(table + key)}", _nearest(key, keys, table))
        if words.startswith("Invalid enum value"):
            words = f"Write one of: {', '.join(choices)}"
        return self.error(path, f"{'.'.join(path)} is {_shown(value)}", f"{words}.")


# types of values


class ByteSize(int):
    """A number of bytes, written as a number or as `"2 GiB"`."""

    @classmethod
    def decode(cls, value: object) -> ByteSize:
        if isinstance(value, str):
            return cls(parse_size(value, "it"))
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Refused("it is not a size", hint="Write a whole number of bytes, 0 or more, or a size such as 2 GiB.")
        return cls(value)


class Duration(timedelta):
    """A time span, written as `"30d"`."""

    @classmethod
    def decode(cls, value: object) -> Duration:
        span = parse_span(value if isinstance(value, str) else "", "it")
        return cls(days=span.days, seconds=span.seconds, microseconds=span.microseconds)


def parse_size(text: str, what: str) -> int:
    """Return the bytes of `1048576`, `500 MB` or `2 GiB`. Refused, naming `what`, for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?b|b|)", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise Refused(
            f"{what} is {text!r}, which is not a size", hint="Write a number of bytes, or a size such as 500 MB, 2 GiB."
        )
    unit = match[2].lower()
    base = 1024 if "i" in unit else 1000
    return int(float(match[1]) * base ** " kmgt".index(unit.rstrip("ib") or " "))


def parse_span(text: str, what: str) -> timedelta:
    """Return the time span of `30d`, `12h` or `2w`. Refused, naming `what`, for any other text."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip(), re.ASCII)
    if match is None:
        raise Refused(
            f"{what} is {text!r}, which is not a duration", hint="Write a number and s, m, h, d or w, such as 30d."
        )
    try:
        return timedelta(**{units[match[2]]: float(match[1])})
    except OverflowError:
        raise Refused(f"{what} is {text!r}, which is too long", hint="Leave it out to keep for ever.") from None


def _decode_unit(kind: type, value: object) -> object:
    """Decode the types above for msgspec, which adds the key to a ValueError."""
    try:
        return kind.decode(value)  # type: ignore[attr-defined]
    except Refused as error:
        raise ValueError(error.hint.rstrip(".")) from None


# reading


def _read(path: Path, root: tuple[str, ...]) -> ConfigTable | None:
    """Return a table of a file; None if either does not exist. A file that does not mention us is not even parsed."""
    try:
        data = durable.read_file(path, max_bytes=_MAX_READ_BYTES)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _too_large(path) from None
        message = f"{path.name} cannot be read: {error.strerror}"
        if error.errno == errno.EINVAL:
            raise Refused(message, hint="Replace it with a regular file, or remove it.") from None
        raise Unavailable(message, hint="Check the permissions of the file and its folder.") from error
    if not all(key.encode() in data for key in root):
        return None
    if len(data) > _MAX_BYTES:
        raise _too_large(path)
    try:
        table: Any = durable.parse_toml(data)
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        raise Refused(f"{path.name} is not TOML: {error}", hint="Fix that line.") from None
    for key in root:
        if key not in table:
            return None
        table = table[key]
        if not isinstance(table, dict):
            raise Refused(f"{path.name}: {key} is {_shown(table)}", hint="It is a table: [tool.holdfast].")
    return ConfigTable(path.name, root, table, data)


def _too_large(path: Path) -> Refused:
    return Refused(f"{path.name} is larger than 1 MiB", hint=f"Move the configuration to a file of its own, {OWN}.")


def _line_of(data: bytes, path: tuple[str, ...]) -> int | None:
    """Return the line of the statement that sets a key; None if that would take long to find.

    tomllib has no positions. The first lines of a file are valid TOML exactly if they end where a statement ends: the
    shortest such beginning with the key ends with its statement, which starts after the longest without the key.
    """
    lines = data.splitlines(keepends=True)
    if not path or len(lines) > _MAX_SEARCHED_LINES:
        return None
    left = _MAX_PARSES

    def valid_up_to(end: int) -> tuple[int, bool]:
        """Return how many of the first `end` lines are valid TOML, and whether they have the key."""
        nonlocal left
        for count in range(end, 0, -1):
            left -= 1
            if left < 0:
                raise TimeoutError
            try:
                return count, _has(durable.parse_toml(b"".join(lines[:count])), path)
            except ValueError:
                continue  # ends inside a statement
        return 0, False

    try:
        without, having = 0, len(lines) if valid_up_to(len(lines))[1] else 0
        while having - without > 1:
            middle = (without + having) // 2
            if valid_up_to(middle)[1]:
                having = middle
            else:
                without = middle
        return valid_up_to(without)[0] + 1 if having else None
    except TimeoutError:
        return None


# values


def _has(value: Any, path: tuple[str, ...]) -> bool:
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return False
        value = value[step]
    return True


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _with_only(value: Any, path: tuple[str, ...], entry: Any) -> Any:
    """Return a copy of nested tables in which the table that contains `path` has that entry and no other."""
    if len(path) == 1:
        return {path[0]: entry}
    return {**value, path[0]: _with_only(value[path[0]], path[1:], entry)}


def _shown(value: Any) -> str:
    """Return a value for a message; of one that is long, the beginning."""
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…"


def _nearest(key: str, keys: list[str], above: str) -> str:
    """Return a hint for an unknown key."""
    import difflib  # start-up cost, only for a misspelt key

    near = difflib.get_close_matches(key, keys, n=1)
    return f"Did you mean {above}{near[0]}?" if near else f"The keys are {', '.join(above + name for name in keys)}."


# errors and types of msgspec


def _split_error(text: str) -> tuple[str, list[str]]:
    """Split an error of msgspec, such as "Expected … - at `$.retention.types[...]`", into its words and the path."""
    match = re.fullmatch(r"(.*) - at `\$((?:\.\w+|\[\.\.\.\])*)(?:\[\d+\])*`", text, re.DOTALL)  # of a list, the whole
    words, path = (text, "") if match is None else (match[1], match[2])
    words = re.sub(r"\bobject\b", "table", words).replace(" | null", "")  # as TOML has it
    return words, re.findall(r"\w+|\.\.\.", path)


def _named(value: Any, kind: type, steps: list[str]) -> tuple[str, ...]:
    """Replace each `...`, which is how msgspec names any entry of a mapping, by the first entry that is not valid."""
    import msgspec

    for at, step in enumerate(steps):
        if step != "...":
            continue
        for name, entry in _value_at(value, tuple(steps[:at])).items():
            try:
                msgspec.convert(_with_only(value, (*steps[:at], name), entry), kind, dec_hook=_decode_unit)
            except msgspec.ValidationError:
                steps[at] = name
                break
    return tuple(steps)


def _keys_and_choices(kind: type, path: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the keys that a table at `path` may have, and what to write where a list of texts is allowed."""
    from msgspec import inspect

    nodes: list[Any] = [inspect.type_info(kind)]
    for step in (*path, None):
        nodes = [each for node in nodes for each in getattr(node, "types", [node])]  # of a union, each
        if step is None:
            break
        fields = (field for node in nodes for field in getattr(node, "fields", ()) if field.encode_name == step)
        entries = (node.value_type for node in nodes if isinstance(node, inspect.DictType))
        nodes = [*(field.type for field in fields), *entries]
    keys = [field.encode_name for node in nodes for field in getattr(node, "fields", ())]
    texts = [repr(value) for node in nodes for value in getattr(node, "values", ())]
    others = {inspect.IntType: "a whole number", inspect.StructType: "a table"}
    return keys, [*texts, *(word for node in nodes for kind, word in others.items() if isinstance(node, kind))]
