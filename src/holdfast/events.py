"""Events: something happened, and those who asked are told. A listener that fails never breaks what it listens to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")
_log = logging.getLogger("holdfast")


class Listeners(Generic[E]):
    """Who is to be told of which kind of event, in the order in which they asked."""

    def __init__(self) -> None:
        self._handlers: dict[object, list[Callable[[E], object]]] = {}

    def on(self, kind: object, handler: Callable[[E], object]) -> Callable[[], None]:
        """Tell `handler` of each event of a kind; returns what ends that."""
        handlers = self._handlers.setdefault(kind, [])
        handlers.append(handler)

        def off() -> None:
            if handler in handlers:
                handlers.remove(handler)

        return off

    def tell(self, kind: object, event: E) -> list[object]:
        """Tell everybody; what each handler returned (an awaitable, perhaps), without those that failed."""
        answers = []
        for handler in list(self._handlers.get(kind, ())):
            try:
                answers.append(handler(event))
            except Exception:
                _log.exception("a handler of %s failed", kind)
        return answers
