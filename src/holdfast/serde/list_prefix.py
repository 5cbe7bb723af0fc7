"""Whether a list still begins with the values it had, checked with C loops and without encoding it (P8).

Values can be changed in place, so that the same list is no proof of the same content. The proof is that each container
in it, however deep, holds the very same objects in the same order, down to values that cannot change. All of them are
kept alive here, so that none can be freed and another be made at its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import add, attrgetter, call, is_
from typing import Any

_FIXED = frozenset({type(None), bool, int, float, str, bytes})
_MOST_LEVELS = 64
_MOST_ON_A_LEVEL = 1 << 20
_flat = chain.from_iterable

Shown = Callable[[Any], tuple[Any, ...]]
"""Brings all that the encoding of an object depends on: always as many things, in the same order."""


@dataclass(slots=True)
class ListPrefix:
    """The values of a list at one moment, level by level."""

    items: list[Any]
    dicts: list[dict[Any, Any]] = field(default_factory=list)
    dict_sizes: list[int] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    lists: list[list[Any]] = field(default_factory=list)
    list_sizes: list[int] = field(default_factory=list)
    listed: list[Any] = field(default_factory=list)
    empty: list[Any] = field(default_factory=list)
    """Empty dicts and lists; there are many of them in messages."""
    sets: list[set[Any]] = field(default_factory=list)
    set_sizes: list[int] = field(default_factory=list)
    members: list[Any] = field(default_factory=list)
    """In the order in which each set brings them, which stays while nobody changes it."""
    objects: list[Any] = field(default_factory=list)
    kinds: list[type] = field(default_factory=list)
    shows: list[Shown] = field(default_factory=list)
    shown: list[Any] = field(default_factory=list)

    def still(self, values: list[Any]) -> bool:
        """Whether a list begins with the same values, and none of them changed."""
        try:
            return len(values) >= len(self.items) and _same(self.items, values) and self._hold()
        except RuntimeError:  # another thread is changing it
            return False

    def plus(self, other: ListPrefix) -> ListPrefix:
        """The values of both, in this order."""
        return ListPrefix(*map(add, _all_of(self), _all_of(other)))

    def _hold(self) -> bool:
        return (
            not any(self.empty)
            and list(map(len, self.dicts)) == self.dict_sizes
            and _same(_flat(self.dicts), self.keys)
            and _same(_flat(map(dict.values, self.dicts)), self.values)
            and list(map(len, self.lists)) == self.list_sizes
            and _same(_flat(self.lists), self.listed)
            and list(map(len, self.sets)) == self.set_sizes
            and _same(_flat(self.sets), self.members)
            and _same(map(type, self.objects), self.kinds)
            and _same(_flat(map(call, self.shows, self.objects)), self.shown)
        )

    def _look(self, level: list[Any], show: Callable[[type], Shown | None]) -> list[Any] | None:
        """Take in the values of one level: those of the next, or None if some of them cannot be proved by this."""
        inner: list[Any] = []
        for kind in set(map(type, level)) - _FIXED:
            own: list[Any] = [value for value in level if type(value) is kind]
            if kind is dict:
                inner += self._take_dicts(own)
            elif kind is list:
                inner += self._take_lists(own)
            elif kind is tuple:
                inner += _flat(own)
            elif kind is set:
                self.sets += own
                self.set_sizes += map(len, own)
                self.members += (members := list(_flat(own)))
                inner += members
            elif (way := show(kind)) is not None:
                self.objects += own
                self.kinds += [kind] * len(own)
                self.shows += [way] * len(own)
                self.shown += (shown := list(_flat(map(way, own))))
                inner += shown
            else:
                return None
        return inner

    def _take_dicts(self, dicts: list[dict[Any, Any]]) -> list[Any]:
        filled = self._filled(dicts)
        keys, values = list(_flat(filled)), list(_flat(map(dict.values, filled)))
        self.dicts += filled
        self.dict_sizes += map(len, filled)
        self.keys += keys
        self.values += values
        return keys + values

    def _take_lists(self, lists: list[list[Any]]) -> list[Any]:
        filled = self._filled(lists)
        values = list(_flat(filled))
        self.lists += filled
        self.list_sizes += map(len, filled)
        self.listed += values
        return values

    def _filled(self, containers: list[Any]) -> list[Any]:
        self.empty += (each for each in containers if not each)
        return [each for each in containers if each]


_all_of = attrgetter(*(each.name for each in fields(ListPrefix)))


def look(values: list[Any], show: Callable[[type], Shown | None]) -> ListPrefix | None:
    """A snapshot of a list; None if it contains something that could change unnoticed, or too much."""
    seen = ListPrefix(list(values))
    level = seen.items
    try:
        for _ in range(_MOST_LEVELS):
            inner = seen._look(level, show)
            if not inner:
                return None if inner is None else seen
            if len(inner) > _MOST_ON_A_LEVEL:
                return None
            level = inner
    except RuntimeError:  # another thread is changing it
        pass
    return None


def _same(ones: Iterable[Any], others: Iterable[Any]) -> bool:
    return all(map(is_, ones, others))
