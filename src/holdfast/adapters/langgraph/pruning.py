"""What may go: all but the newest of each namespace, what delta channels are made of excepted.

A delta channel is stored as a snapshot now and then, and as the writes in between; its value at a checkpoint is found
by walking the parents back to a snapshot. To delete one of those would empty the channel without a word.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from holdfast.adapters.langgraph.rows import all_rows
from holdfast.adapters.langgraph.translating import to_langgraph, told_of
from holdfast.flow import Place, States
from holdfast.flow.store import Row

_COUNTERS = "counters_since_delta_snapshot"


def superseded(states: States, thread: str) -> list[Place]:
    """The checkpoints of a thread that are needed no longer."""
    by_namespace: dict[str, list[Row]] = defaultdict(list)
    for row in all_rows(states, thread, None):
        by_namespace[row.place.namespace].append(row)
    gone: list[Place] = []
    for rows in by_namespace.values():
        needed = _needed(states, rows)
        gone += [row.place for row in rows if row.place not in needed]
    return gone


def needed_of_runs(states: States, run_ids: Sequence[str]) -> list[Place]:
    """The checkpoints of these runs that delta channels of later checkpoints, of other runs, are made of."""
    gone = {row.place for run_id in run_ids for row in states.store.rows(None, None, run_id=run_id)}
    needed: list[Place] = []
    for thread, namespace in {place[:2] for place in gone}:
        rows = list(all_rows(states, thread, namespace))
        deltas = {channel for row in rows for channel in _counters(states, row)}
        for row in rows if deltas else ():
            parent = row.place._replace(checkpoint_id=row.parent_id or "")
            if row.place not in gone and parent in gone and _lacks(states, row.place, deltas):
                needed.append(parent)
    return needed


def _lacks(states: States, place: Place, deltas: set[str]) -> bool:
    """Whether a checkpoint has a delta channel without its value, which then is made of its parents."""
    found = _load(states, place)
    if found is None:
        return False
    return bool((deltas & found.checkpoint["channel_versions"].keys()) - found.checkpoint["channel_values"].keys())


def _needed(states: States, rows: list[Row]) -> set[Place]:
    latest = max((row.place for row in rows), key=lambda place: place.checkpoint_id)
    deltas = {channel for row in rows for channel in _counters(states, row)}
    found = _load(states, latest)
    if found is None:
        return {latest}
    present = found.checkpoint["channel_values"].keys()
    missing = (deltas & found.checkpoint["channel_versions"].keys()) - present
    needed = {latest}
    while missing and found is not None and found.parent_config is not None:
        parent = latest._replace(checkpoint_id=found.parent_config["configurable"]["checkpoint_id"])
        needed.add(parent)
        found = _load(states, parent)
        if found is not None:
            missing -= found.checkpoint["channel_values"].keys()
    return needed


def _counters(states: States, row: Row) -> dict[str, Any]:
    return told_of(states.sealer.metadata(row)).get(_COUNTERS) or {}


def _load(states: States, place: Place) -> CheckpointTuple | None:
    saved = states.load(place.session, place.checkpoint_id, namespace=place.namespace)
    return None if saved is None else to_langgraph(saved, [])
