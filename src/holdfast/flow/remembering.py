"""What a process remembers between calls, so that the next save costs what changed and the next load what is new.

Nothing here is needed: parts never change under their names, and a base is looked up again when it is committed on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.flow.rope import Held
from holdfast.flow.store import Base
from holdfast.flow.weaving import Woven


class Memory(NamedTuple):
    """The last state of a namespace that this process saved or looked up."""

    family: int
    base: Base | None
    known: frozenset[bytes]
    """Parts that are there as long as the base is."""
    woven: Woven | None = None
    encoded: tuple[bytes, ...] = ()
    """The state, encoded, in pieces that follow each other."""


class Remembered:
    """The memories of the namespaces used last, up to so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[str, str], Memory] = OrderedDict()

    def get(self, key: tuple[str, str]) -> Memory | None:
        with self._lock:
            memory = self._held.get(key)
            if memory is not None:
                self._held.move_to_end(key)
            return memory

    def put(self, key: tuple[str, str], memory: Memory) -> None:
        with self._lock:
            self._drop(key)
            self._held[key] = memory
            self._bytes += _cost(memory)
            while self._bytes > self._max_bytes and self._held:
                self._drop(next(iter(self._held)))

    def forget(self, session: str | None = None) -> None:
        """Forget a session, or everything."""
        with self._lock:
            for key in [key for key in self._held if session is None or key[0] == session]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        memory = self._held.pop(key, None)
        if memory is not None:
            self._bytes -= _cost(memory)


def _cost(memory: Memory) -> int:
    """About so many bytes; the state counts twice, as its values are held on to (see `holdfast.serde.unchanged`)."""
    return 2 * sum(map(len, memory.encoded)) + 100 * len(memory.known) + 1000


class PartCache:
    """Parts that were read or written last, opened, up to so many bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._held: dict[int, dict[bytes, Held]] = {}

    def of_family(self, family: int) -> Mapping[bytes, Held]:
        """What is here of a family; it may grow while it is looked at, and never changes otherwise."""
        return self._held.get(family, {})

    def clear(self) -> None:
        with self._lock:
            self._held, self._bytes = {}, 0

    def put(self, family: int, parts: dict[bytes, Held]) -> None:
        size = sum([len(data) for _, data in parts.values()])
        with self._lock:
            if self._bytes + size > self._max_bytes:
                self._held = {}  # a new one: a reader may hold on to the old
                self._bytes = 0
            if size <= self._max_bytes:
                self._held.setdefault(family, {}).update(parts)
                self._bytes += size
