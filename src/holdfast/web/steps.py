"""A session of a flow store as a line of steps; where it went another way, or another session began, it branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.location import Item
from holdfast.web.graph import GraphRow, Lane, draw

FORKS_LOOKED_AT = 1_000
"""How many sessions of a store are looked at to find those that were forked from one."""


class StepRow(NamedTuple):
    """A step, or another session that was forked from the step below it."""

    item: Item | None
    fork: Any
    """A `StateFork`; None: it is a step."""
    lanes: list[Lane]

    @property
    def origin(self) -> tuple[str, str] | None:
        """The session and the checkpoint that this session was forked from, if it is its first step."""
        found = self.item.document.get("extra") if self.item else None
        origin = found.get("forked_from") if isinstance(found, dict) else None
        if not isinstance(origin, list | tuple) or len(origin) != 2:
            return None
        return str(origin[0]), str(origin[1])


def step_rows(items: Sequence[Item], forks: Sequence[Any], *, is_last: bool) -> list[StepRow]:
    """The rows of a page of steps, newest first; `is_last`: no older ones follow."""
    shown = list(_in_order(items, forks))
    lanes = draw([_step(items, *each, is_last=is_last) for each in shown])
    return [StepRow(item, fork, row) for (item, fork), row in zip(shown, lanes, strict=True)]


def _in_order(items: Sequence[Item], forks: Sequence[Any]) -> Iterator[tuple[Item | None, Any]]:
    """The steps, each below the sessions that were forked from it."""
    for item in items:
        for fork in forks:
            if (fork.place.namespace, fork.place.checkpoint_id) == _key(item.document):
                yield None, fork
        yield item, None


def _step(items: Sequence[Item], item: Item | None, fork: Any, *, is_last: bool) -> GraphRow:
    if item is None:
        return GraphRow([("", fork.session)], [(fork.place.namespace, fork.place.checkpoint_id)])
    key = _key(item.document)
    if parent := item.document.get("parent_id"):
        return GraphRow([key], [(key[0], parent)])
    at = next(at for at, each in enumerate(items) if each is item)
    older = next((_key(each.document) for each in items[at + 1 :] if each.document["namespace"] == key[0]), None)
    if older is None and not is_last:
        older = (key[0], "")  # on the next page
    return GraphRow([key], [] if older is None else [older])


def _key(document: dict[str, Any]) -> tuple[str, str]:
    return document["namespace"], document["checkpoint_id"]
