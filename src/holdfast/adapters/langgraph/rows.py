"""Rows in LangGraph's order: of a thread that of their ids, the greatest first; of all threads that of saving."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.flow import Place, States
from holdfast.flow.store import Row

_PAGE = 256


def newest(states: States, thread: str, namespace: str) -> Place | None:
    """The checkpoint of a namespace with the greatest id."""
    return next((row.place for row in states.store.rows_by_id(thread, namespace, limit=1)), None)


def rows_of(
    states: States, thread: str | None, namespace: str | None, *, before: str | None = None, page: int | None = None
) -> Iterator[Row]:
    """Rows without their states, whose ids are smaller than `before`, a page at a time; the first may be a small one.

    No lock is held between pages.
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


def _by_id(states: States, thread: str, namespace: str, before: str | None, page: int) -> Iterator[Row]:
    while True:
        rows = states.store.rows_by_id(thread, namespace, before=before, limit=page)
        yield from rows
        if len(rows) < page:
            return
        before, page = rows[-1].place.checkpoint_id, _PAGE


def all_rows(states: States, thread: str | None, namespace: str | None, *, page: int = _PAGE) -> Iterator[Row]:
    """Rows without their states, the one saved last first, a page at a time; no lock is held between pages."""
    before = None
    while True:
        rows = states.store.rows(thread, namespace, before=before, limit=page)
        yield from rows
        if len(rows) < page:
            return
        before, page = rows[-1].sequence, _PAGE
