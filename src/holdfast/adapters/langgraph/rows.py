"""Rows in LangGraph's order, which is that of their ids: the newest is the one whose id is the greatest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from holdfast.flow import States
from holdfast.flow.store import Row

_PAGE = 256
_FEW = 8
_REMEMBERED = 4096


def all_rows(states: States, thread: str | None, namespace: str | None, *, page: int = _PAGE) -> Iterator[Row]:
    """Rows without their states, the one saved last first, a page at a time; no lock is held between pages."""
    before = None
    while True:
        rows = states.store.rows(thread, namespace, before=before, limit=page)
        yield from rows
        if len(rows) < page:
            return
        before, page = rows[-1].sequence, _PAGE


class Newest:
    """Remembers the greatest id of each namespace, so that only rows saved since need be looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, str], tuple[int, str]] = OrderedDict()

    def find(self, states: States, thread: str, namespace: str) -> str | None:
        """The greatest id; it may have been deleted meanwhile, and then `forget` it and ask again."""
        key = thread, namespace
        with self._lock:
            seen, best = self._seen.get(key, (0, ""))
        top = seen
        for row in all_rows(states, thread, namespace, page=_FEW if seen else _PAGE):
            if row.sequence <= seen:
                break
            top, best = max(top, row.sequence), max(best, row.place.checkpoint_id)
        with self._lock:
            self._seen[key] = top, best
            self._seen.move_to_end(key)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return best or None

    def forget(self, thread: str, namespace: str) -> None:
        with self._lock:
            self._seen.pop((thread, namespace), None)
