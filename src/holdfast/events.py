"""Events and their listeners. A listener that fails never breaks the code that it listens to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")
_log = logging.getLogger("holdfast")


class Listeners(Generic[E]):
    """Handlers by kind of event, called in the order in which they were added."""

    def __init__(self) -> None:
        self._handlers: dict[object, list[Callable[[E], object]]] = {}

    def on(self, kind: object, handler: Callable[[E], object]) -> Callable[[], None]:
        """Call `handler` with each event of a kind. Returns a function that removes it."""
        handlers = self._handlers.setdefault(kind, [])
        handlers.append(handler)

        def off() -> None:
            if handler in handlers:
                handlers.remove(handler)

        return off

    def tell(self, kind: object, event: E) -> list[object]:
        """Call every handler; return what each returned (perhaps an awaitable), without those that failed."""
        answers = []
        for handler in list(self._handlers.get(kind, ())):
            try:
                answers.append(handler(event))
            except Exception:
                _log.exception("a handler of %s failed", kind)
        return answers
