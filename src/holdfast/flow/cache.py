"""What a process remembers between calls, so that the next save costs what changed and the next load what is new.

All of it can be lost: parts never change under their names, and a commit looks its base up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.flow.chunking import ChunkedValue
from holdfast.flow.segments import PartContent
from holdfast.flow.store import Base


class SaveBase(NamedTuple):
    """What the next save into a namespace builds on: the last state that this process saved or looked up."""

    family: int
    base: Base | None
    known: frozenset[bytes]
    """Parts that exist as long as the base does."""
    chunked: ChunkedValue | None = None
    encoded: tuple[bytes, ...] = ()
    """The encoded state in consecutive pieces."""


class Remembered:
    """The bases of the namespaces used last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], SaveBase] = OrderedDict()

    def get(self, key: tuple[str, str]) -> SaveBase | None:
        with self._lock:
            memory = self._entries.get(key)
            if memory is not None:
                self._entries.move_to_end(key)
            return memory

    def put(self, key: tuple[str, str], memory: SaveBase) -> None:
        with self._lock:
            self._drop(key)
            self._entries[key] = memory
            self._bytes += _cost(memory)
            while self._bytes > self._max_bytes and self._entries:
                self._drop(next(iter(self._entries)))

    def forget(self, session: str | None = None) -> None:
        """Forget a session, or everything."""
        with self._lock:
            for key in [key for key in self._entries if session is None or key[0] == session]:
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        memory = self._entries.pop(key, None)
        if memory is not None:
            self._bytes -= _cost(memory)


def _cost(memory: SaveBase) -> int:
    """Approximate size in bytes. The state counts twice: its values stay alive, too (`holdfast.serde.list_prefix`)."""
    return 2 * sum(map(len, memory.encoded)) + 100 * len(memory.known) + 1000


class PartCache:
    """Decoded parts that were read or written last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: dict[int, dict[bytes, PartContent]] = {}

    def of_family(self, family: int) -> Mapping[bytes, PartContent]:
        """The parts of a family; the mapping may grow meanwhile, and never changes otherwise."""
        return self._entries.get(family, {})

    def clear(self) -> None:
        with self._lock:
            self._entries, self._bytes = {}, 0

    def put(self, family: int, parts: dict[bytes, PartContent]) -> None:
        size = sum([len(data) for _, data in parts.values()])
        with self._lock:
            if self._bytes + size > self._max_bytes:
                self._entries = {}  # a new dict: a reader may be using the old one
                self._bytes = 0
            if size <= self._max_bytes:
                self._entries.setdefault(family, {}).update(parts)
                self._bytes += size
