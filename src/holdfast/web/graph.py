"""The line beside a list of states: where work went on from an older one, and what was left behind."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

LANES_MAX = 5


class GraphRow(NamedTuple):
    """What the graph needs to know of a row."""

    ids: Collection[Hashable]
    """Its checkpoints; none for a row that is no state of its own."""
    parents: Collection[Hashable]
    """What these came from, apart from each other."""


class Lane(NamedTuple):
    """What one lane shows in one row."""

    up: bool
    down: bool
    node: bool
    across: bool
    """Part of a line from a node to another lane."""


_EMPTY = Lane(up=False, down=False, node=False, across=False)


def draw(steps: Sequence[GraphRow]) -> list[list[Lane]]:
    """Return the lanes of each row, all rows as wide as the widest.

    A lane continues until the state that its newest row came from.
    """
    lanes: list[set[Hashable]] = []
    seen: set[Hashable] = set()
    drawn = []
    for step in steps:
        above = [bool(lane) for lane in lanes]
        if not step.ids:
            drawn.append([Lane(up, up, node=False, across=False) for up in above])
            continue
        seen.update(step.ids)
        meeting = [at for at, lane in enumerate(lanes) if lane & set(step.ids)]
        waiting: set[Hashable] = set()
        for at in meeting:
            waiting |= lanes[at] - set(step.ids)
            lanes[at] = set()
        node = meeting[0] if meeting else next((at for at, lane in enumerate(lanes) if not lane), len(lanes))
        if node == len(lanes):
            lanes.append(set())
            above.append(False)
        lanes[node] = (waiting | set(step.parents)) - seen
        drawn.append(_row(above, lanes, node, meeting))
        while lanes and not lanes[-1]:
            lanes.pop()
    width = min(max(map(len, drawn), default=0), LANES_MAX)
    return [(row + [_EMPTY] * width)[:width] for row in drawn]


def _row(above: Sequence[bool], lanes: Sequence[set[Hashable]], node: int, meeting: Sequence[int]) -> list[Lane]:
    last = max(meeting, default=node)
    return [
        Lane(up=above[at], down=bool(lanes[at]), node=at == node, across=node < at <= last) for at in range(len(lanes))
    ]
