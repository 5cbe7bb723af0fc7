"""What may go: all but the newest of each namespace, what delta channels are made of excepted.

A delta channel is stored as a snapshot now and then, and as the writes in between; its value at a checkpoint is found
by walking the parents back to a snapshot. To delete one of those would empty the channel without a word.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from holdfast.adapters.langgraph.rows import all_rows
from holdfast.adapters.langgraph.translating import COUNTERS, to_langgraph, told_of
from holdfast.errors import Unavailable
from holdfast.flow import Place, States
from holdfast.flow.store import Row, Stale

_TRIES = 10


def prune(states: States, thread: str) -> None:
    """Delete the checkpoints of a thread that are needed no longer."""
    for _ in range(_TRIES):
        seen = states.store.session(thread)
        gone, deltas = _superseded(states, thread)
        if not gone or seen is None:
            return
        states.forget(thread)
        with contextlib.suppress(Stale):  # what was saved meanwhile may be made of these: look again
            states.store.delete(gone, if_are=[seen] if deltas else [])
            return
    raise Unavailable("others keep saving into this thread", hint="Try again.")


def _superseded(states: States, thread: str) -> tuple[list[Place], set[str]]:
    """The checkpoints of a thread that are needed no longer, and its delta channels."""
    by_namespace: dict[str, list[Row]] = defaultdict(list)
    for row in all_rows(states, thread, None):
        by_namespace[row.place.namespace].append(row)
    gone: list[Place] = []
    all_deltas: set[str] = set()
    for rows in by_namespace.values():
        deltas = {channel for row in rows for channel in _counters(states, row)}
        needed = _needed(states, rows, deltas)
        gone += [row.place for row in rows if row.place not in needed]
        all_deltas |= deltas
    return gone, all_deltas


def _needed(states: States, rows: list[Row], deltas: set[str]) -> set[Place]:
    latest = max((row.place for row in rows), key=lambda place: place.checkpoint_id)
    found = _load(states, latest)
    if found is None:  # just deleted by others, who may not be done
        return {row.place for row in rows}
    needed, missing = {latest}, _lacks(found, deltas)
    while missing and found is not None and found.parent_config is not None:
        parent = latest._replace(checkpoint_id=found.parent_config["configurable"]["checkpoint_id"])
        if parent in needed:  # a parent that names itself, or those on top of it
            break
        needed.add(parent)
        found = _load(states, parent)
        if found is not None:  # it stays, so that what it is made of itself does, too
            missing = missing - found.checkpoint["channel_values"].keys() | _lacks(found, deltas)
    return needed


def _lacks(found: CheckpointTuple, deltas: set[str]) -> set[str]:
    """The delta channels of a checkpoint without their values, which then are made of its parents."""
    return (deltas & found.checkpoint["channel_versions"].keys()) - found.checkpoint["channel_values"].keys()


def _counters(states: States, row: Row) -> dict[str, Any]:
    return told_of(states.sealer.metadata(row)).get(COUNTERS) or {}


def _load(states: States, place: Place) -> CheckpointTuple | None:
    saved = states.load(place.session, place.checkpoint_id, namespace=place.namespace)
    return None if saved is None else to_langgraph(saved, [])
