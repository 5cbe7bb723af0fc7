"""Tagged JSON that is not decoded: its texts, and copies without some of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from holdfast.model import JSON
from holdfast.serde.types import tag_of

_ITEMS = frozenset({"$tuple", "$set", "$frozenset", "$map", "$dict", "$ordered_dict", "$counter"})
_TEXTS = frozenset({"$utf8", "$secret", "$bytearray"})
_SECOND = frozenset({"$deque", "$defaultdict", "$path"})  # the first item is a type, not content
_OPAQUE = frozenset({"$bytes", "$ext"})


@dataclass(frozen=True, slots=True)
class Tagged:
    """A state that is not decoded: JSON with tags. It can be saved again, unchanged."""

    form: JSON


def texts_of(value: JSON, is_tagged: bool) -> Iterator[str]:
    """Yield all texts of a state, names and values, in order, with numbers as in JSON; no tags, and no encoded
    bytes."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            mark = tag_of(item) if is_tagged else None
            if mark is None:
                stack += [each for pair in reversed(item.items()) for each in reversed(pair)]
            elif mark not in _OPAQUE:
                stack.append(item[mark])
        elif isinstance(item, list):
            stack += reversed(item)
        else:
            yield item if isinstance(item, str) else json.dumps(item)


class Cut:
    """Cuts texts out of JSON, tagged or not, so that the rest can still be read.

    A value that could not be decoded with a text cut out of its middle (a date, an array, the id or a field name of an
    object) is removed as a whole.
    """

    def __init__(self, cut: Callable[[str], str], instead: str) -> None:
        self._cut = cut
        self._instead = instead

    def without(self, value: JSON, is_tagged: bool) -> JSON:
        """Return a value without the texts."""
        if isinstance(value, str):
            return self._cut(value)
        if isinstance(value, list):
            return [self.without(item, is_tagged) for item in value]
        if isinstance(value, dict):
            mark = tag_of(value) if is_tagged else None
            if mark is not None:
                return self._without_inside(mark, value[mark])
            return self._without_in_object(value, is_tagged)
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = json.dumps(value)  # a number may be the secret
            return value if self._cut(text) == text else self._instead
        return value

    def _without_in_object(self, value: dict[str, JSON], is_tagged: bool) -> dict[str, JSON]:
        """Cut keys and values; if two keys become the same, keep both values (P1)."""
        out: dict[str, JSON] = {}
        for key, item in value.items():
            name = cut = self._cut(key)
            for number in count(2) if cut != key else ():
                if name not in out and name not in value:
                    break
                name = f"{cut} {number}"
            out[name] = self.without(item, is_tagged)
        return out

    def _without_inside(self, mark: str, inner: Any) -> JSON:
        cut = self.without(inner, True)
        if cut == inner or mark in _ITEMS or mark in _TEXTS:
            return {mark: cut}
        is_held = mark in _SECOND and cut[0] == inner[0]
        if mark == "$object":
            is_held = cut[0] == inner[0] and isinstance(inner[2], dict) and not self._has_cut_key(inner[2])
        return {mark: cut} if is_held else self._instead

    def _has_cut_key(self, value: JSON) -> bool:
        """Whether a key would be cut; it may be a field name."""
        if isinstance(value, list):
            return any(map(self._has_cut_key, value))
        return isinstance(value, dict) and any(self._cut(key) != key or self._has_cut_key(value[key]) for key in value)
