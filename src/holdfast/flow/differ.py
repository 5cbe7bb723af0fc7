"""What differs between two values, place by place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.flow.model import Change


def changes(before: Any, after: Any, encode: Callable[[Any], bytes], path: str = "") -> list[Change]:
    """Every place in which two values differ, in order; dicts and lists are looked into."""
    return list(_changes(before, after, encode, path))


def _changes(before: Any, after: Any, encode: Callable[[Any], bytes], path: str) -> Iterator[Change]:
    if type(before) is dict and type(after) is dict:
        yield from _dicts(before, after, encode, path)
    elif type(before) is list and type(after) is list:
        yield from _lists(before, after, encode, path)
    elif encode(before) != encode(after):
        yield Change(path, "changed", before, after)


def _dicts(
    before: dict[Any, Any], after: dict[Any, Any], encode: Callable[[Any], bytes], path: str
) -> Iterator[Change]:
    old, new = _by_name(before, encode), _by_name(after, encode)
    for name, (key, value) in old.items():
        if name in new:
            yield from _changes(value, new[name][1], encode, f"{path}[{key!r}]")
        else:
            yield Change(f"{path}[{key!r}]", "removed", before=value)
    for name, (key, value) in new.items():
        if name not in old:
            yield Change(f"{path}[{key!r}]", "added", after=value)


def _by_name(values: dict[Any, Any], encode: Callable[[Any], bytes]) -> dict[bytes, tuple[Any, Any]]:
    """Keys and values by how the key is stored: 1 is not True, and what is no number is the same as itself."""
    named: dict[bytes, tuple[Any, Any]] = {}
    for key, value in values.items():
        name = encode(key)
        while name in named:  # there may be several that are no number
            name += b"\0"
        named[name] = key, value
    return named


def _lists(before: list[Any], after: list[Any], encode: Callable[[Any], bytes], path: str) -> Iterator[Change]:
    """What is the same at both ends is left out; what lies between is compared in order."""
    old, new = list(map(encode, before)), list(map(encode, after))
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    both = min(len(old), len(new)) - end
    for at in range(start, both):
        yield from _changes(before[at], after[at], encode, f"{path}[{at}]")
    yield from (Change(f"{path}[{at}]", "removed", before=before[at]) for at in range(both, len(old) - end))
    yield from (Change(f"{path}[{at}]", "added", after=after[at]) for at in range(both, len(new) - end))
