"""Whether a value is exactly JSON-like (and bytes), found out at the speed of C, level by level."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_PLAIN = _SCALARS | {list, dict}
_TEXT = frozenset({str})
_MOST_LEVELS = 64
_MOST_ON_A_LEVEL = 1 << 24
_CROWDED = 1 << 14


def is_plain(value: Any, *, most_levels: int = _MOST_LEVELS) -> bool:
    """Whether MessagePack alone brings a value back exactly: no subclass, no tuple, no key but text anywhere in it.

    False also of what is very deep or very wide, which the slower way looks at more closely.
    """
    if type(value) in _SCALARS:
        return True
    kinds, level = {type(value)}, [value]
    for _ in range(most_levels):
        if kinds <= _SCALARS:
            return True
        if not kinds <= _PLAIN:
            return False
        dicts = [item for item in level if type(item) is dict] if dict in kinds else []
        if not _TEXT.issuperset(map(type, chain.from_iterable(dicts))):
            return False
        lists = [item for item in level if type(item) is list] if list in kinds else []
        kinds = set(map(type, _held(dicts, lists)))
        if not kinds <= _SCALARS:
            level = list(islice(_held(dicts, lists), _MOST_ON_A_LEVEL + 1))
            if len(level) > _MOST_ON_A_LEVEL:
                return False
            if len(level) > _CROWDED:  # what is met twice is looked at once: it may hold itself, in two places
                level = list({id(item): item for item in level}.values())
    return False


def _held(dicts: list[dict[str, Any]], lists: list[list[Any]]) -> Iterator[Any]:
    return chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists))
