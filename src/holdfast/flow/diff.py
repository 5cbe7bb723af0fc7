"""What differs between two values, place by place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.flow.model import StateChange


def changes(before: Any, after: Any, encode: Callable[[Any], bytes], path: str = "") -> Iterator[StateChange]:
    """Every place in which two values differ, in order, inside dicts and lists, too."""
    if type(before) is dict and type(after) is dict:
        yield from _dicts(before, after, encode, path)
    elif type(before) is list and type(after) is list:
        yield from _lists(before, after, encode, path)
    elif encode(before) != encode(after):
        yield StateChange(path, "changed", before, after)


def _dicts(
    before: dict[Any, Any], after: dict[Any, Any], encode: Callable[[Any], bytes], path: str
) -> Iterator[StateChange]:
    old, new = _by_name(before, encode), _by_name(after, encode)
    for name, (key, value) in old.items():
        if name in new:
            yield from changes(value, new[name][1], encode, f"{path}[{key!r}]")
        else:
            yield StateChange(f"{path}[{key!r}]", "removed", before=value)
    for name, (key, value) in new.items():
        if name not in old:
            yield StateChange(f"{path}[{key!r}]", "added", after=value)


def _by_name(values: dict[Any, Any], encode: Callable[[Any], bytes]) -> dict[bytes, tuple[Any, Any]]:
    """Keys and values by the encoded key: 1 is not True, and NaN equals itself."""
    named: dict[bytes, tuple[Any, Any]] = {}
    for key, value in values.items():
        name = encode(key)
        while name in named:  # there may be several NaN
            name += b"\0"
        named[name] = key, value
    return named


def _lists(before: list[Any], after: list[Any], encode: Callable[[Any], bytes], path: str) -> Iterator[StateChange]:
    """Skip the elements that are equal at both ends, and compare those between in order."""
    old, new = list(map(encode, before)), list(map(encode, after))
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    both = min(len(old), len(new)) - end
    for at in range(start, both):
        yield from changes(before[at], after[at], encode, f"{path}[{at}]")
    yield from (StateChange(f"{path}[{at}]", "removed", before=before[at]) for at in range(both, len(old) - end))
    yield from (StateChange(f"{path}[{at}]", "added", after=after[at]) for at in range(both, len(new) - end))
