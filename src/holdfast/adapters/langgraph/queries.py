"""Which checkpoints a listing or a prune is about.

LangGraph lists the checkpoints of a thread by id, the greatest first, and those of all threads by when they were saved.

A prune deletes all but the newest of each namespace, except what delta channels need: a delta channel is stored as a
snapshot now and then, and as the writes in between; its value at a checkpoint is found by walking the parents back to a
snapshot. Deleting one of those would silently empty the channel.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from holdfast.adapters.langgraph.translate import COUNTERS, metadata_of, to_langgraph
from holdfast.errors import Unavailable
from holdfast.flow import Place, States
from holdfast.flow.store import CheckpointRow, Stale

_PAGE = 256


def newest(states: States, thread: str, namespace: str) -> Place | None:
    """The checkpoint of a namespace with the greatest id."""
    return next((row.place for row in states.store.rows_by_id(thread, namespace, limit=1)), None)


def rows_of(
    states: States, thread: str | None, namespace: str | None, *, before: str | None = None, page: int | None = None
) -> Iterator[CheckpointRow]:
    """Rows without their states, whose ids are smaller than `before`, a page at a time; the first may be a small one.

    Nothing is locked between pages.
    """
    if thread is not None and namespace is not None:
        yield from _by_id(states, thread, namespace, before, min(page or _PAGE, _PAGE))
        return
    rows = all_rows(states, thread, namespace, page=min(page or _PAGE, _PAGE))
    found = (row for row in rows if before is None or row.place.checkpoint_id < before)
    if thread is None:
        yield from found
    else:
        yield from sorted(found, key=lambda row: row.place.checkpoint_id, reverse=True)


def _by_id(states: States, thread: str, namespace: str, before: str | None, page: int) -> Iterator[CheckpointRow]:
    while True:
        rows = states.store.rows_by_id(thread, namespace, before=before, limit=page)
        yield from rows
        if len(rows) < page:
            return
        before, page = rows[-1].place.checkpoint_id, _PAGE


def all_rows(
    states: States, thread: str | None, namespace: str | None, *, page: int = _PAGE
) -> Iterator[CheckpointRow]:
    """Rows without their states, the one saved last first, a page at a time; nothing is locked between pages."""
    before = None
    while True:
        rows = states.store.rows(thread, namespace, before=before, limit=page)
        yield from rows
        if len(rows) < page:
            return
        before, page = rows[-1].sequence, _PAGE


_TRIES = 10


def prune(states: States, thread: str) -> None:
    """Delete the checkpoints of a thread that are needed no longer."""
    for _ in range(_TRIES):
        seen = states.store.session(thread)
        gone, deltas = _superseded(states, thread)
        if not gone or seen is None:
            return
        states.forget(thread)
        with contextlib.suppress(Stale):  # what was saved meanwhile may need these: check again
            states.store.delete(gone, if_are=[seen] if deltas else [])
            return
    raise Unavailable("other writers keep saving into this thread", hint="Try again.")


def _superseded(states: States, thread: str) -> tuple[list[Place], set[str]]:
    """The checkpoints of a thread that are needed no longer, and its delta channels."""
    by_namespace: dict[str, list[CheckpointRow]] = defaultdict(list)
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


def _needed(states: States, rows: list[CheckpointRow], deltas: set[str]) -> set[Place]:
    latest = max((row.place for row in rows), key=lambda place: place.checkpoint_id)
    found = _load(states, latest)
    if found is None:  # another process just deleted it, and may not be done
        return {row.place for row in rows}
    needed, missing = {latest}, _lacks(found, deltas)
    while missing and found is not None and found.parent_config is not None:
        parent = latest._replace(checkpoint_id=found.parent_config["configurable"]["checkpoint_id"])
        if parent in needed:  # a loop of parents
            break
        needed.add(parent)
        found = _load(states, parent)
        if found is not None:  # it stays, so what it needs stays, too
            missing = missing - found.checkpoint["channel_values"].keys() | _lacks(found, deltas)
    return needed


def _lacks(found: CheckpointTuple, deltas: set[str]) -> set[str]:
    """The delta channels whose values are not in a checkpoint: they need its parents."""
    return (deltas & found.checkpoint["channel_versions"].keys()) - found.checkpoint["channel_values"].keys()


def _counters(states: States, row: CheckpointRow) -> dict[str, Any]:
    return metadata_of(states.codec.metadata(row)).get(COUNTERS) or {}


def _load(states: States, place: Place) -> CheckpointTuple | None:
    saved = states.load(place.session, place.checkpoint_id, namespace=place.namespace)
    return None if saved is None else to_langgraph(saved, [])
