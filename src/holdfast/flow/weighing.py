"""What each session takes. Only forks cost more than a question: their parts are looked at one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.flow.model import Weight
from holdfast.flow.store import WeightRow, names_in, size_of

if TYPE_CHECKING:
    from holdfast.flow.states import States


def weigh(states: States, sessions: Sequence[str]) -> list[Weight]:
    """The weights of sessions, in this order."""
    rows = states.store.weigh(sessions)
    forked = {row.family for row in rows if row.family_sessions > 1}
    families = {family: _Family(states, family) for family in forked}
    return [
        families[row.family].weight(row)
        if row.family in families
        else Weight(row.session, row.row_bytes + row.family_bytes, 0)
        for row in rows
    ]


class _Family:
    """Sessions that share parts: which of them needs which."""

    def __init__(self, states: States, family: int) -> None:
        members = [row.session for row in states.store.sessions() if row.family == family]
        self._needed = {session: _needed(states, session, family) for session in members}
        self._sharers = Counter(name for names in self._needed.values() for name in names)
        parts = states.store.parts(family, list(self._sharers))
        self._sizes = {part[0]: size_of(part) for part in parts}

    def weight(self, row: WeightRow) -> Weight:
        names = self._needed.get(row.session, set())
        own = sum(self._sizes.get(name, 0) for name in names if self._sharers[name] == 1)
        shared = sum(self._sizes.get(name, 0) for name in names if self._sharers[name] > 1)
        return Weight(row.session, row.row_bytes + own, shared)


def _needed(states: States, session: str, family: int) -> set[bytes]:
    """The names of all parts that a session needs."""
    needed: set[bytes] = set()
    level = {name for row in states.store.rows(session, None, whole=True) for name in names_in(row.refs)}
    while level:
        needed |= level
        found = states.store.groups(family, list(level))
        level = {name for refs in found.values() for name in names_in(refs)} - needed
    return needed
