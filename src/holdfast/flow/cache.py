"""What a process remembers between calls, so that the next save costs what changed and the next load what is new.

All of it can be lost: parts never change under their names, and a commit looks its base up again. Only a late writer of
a deleted session that names no parent is recognised by what is remembered here (`KnownGenerations`).
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from holdfast.flow.chunking import ChunkedValue
from holdfast.flow.segments import PartContent
from holdfast.flow.store import Base, PartRow


class SaveBase(NamedTuple):
    """What the next save into a namespace builds on: the last state that this process saved or looked up."""

    family: int
    base: Base | None
    known: Set[bytes]
    """Parts that exist as long as the base does. Not changed any more."""
    chunked: ChunkedValue | None = None
    encoded: tuple[bytes, ...] = ()
    """The encoded state in consecutive pieces."""
    reopens: bool = False
    """Whether the session was deleted, and this save begins it again."""


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


class KnownGenerations:
    """The generation of each session that this process last read or saved into.

    A deleted session that is begun again is another generation, with another family. Sessions that were used longest
    ago are forgotten.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: OrderedDict[str, int] = OrderedDict()
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def see(self, session: str, family: int) -> None:
        with self._lock:
            _put(self._families, session, family)

    def known(self, session: str) -> int | None:
        """The family of the generation that is known."""
        with self._lock:
            return self._families.get(session)

    def is_outdated(self, session: str, family: int, *, is_deleted: bool) -> bool:
        """Whether another process deleted the generation that is known, and perhaps began the session again."""
        known = self.known(session)
        return known is not None and (is_deleted or known != family)

    def note_deleted(self, session: str) -> None:
        """Note that this process deletes a session: it knows that what it saves from now on begins it again."""
        with self._lock:
            self._families.pop(session, None)
            _put(self._deleted, session, None)

    def was_deleted_here(self, session: str) -> bool:
        with self._lock:
            return session in self._deleted

    def forget(self, session: str) -> bool:
        """Forget the generation of a session: this process read it, and found nothing. Return whether it was known."""
        with self._lock:
            return self._families.pop(session, None) is not None

    def reopen(self, session: str | None) -> None:
        """Forget everything about a session, or about all."""
        with self._lock:
            for each in (self._families, self._deleted):
                each.clear() if session is None else each.pop(session, None)


def new_family(*, again: bool) -> int:
    """A random family for a new session; `again`: it was deleted before, and the family says so."""
    return secrets.randbits(_FAMILY_BITS) | (again << _FAMILY_BITS)


def is_begun_again(family: int) -> bool:
    """Whether a session of this family was deleted and begun again, as its greatest bit says."""
    return bool(family >> _FAMILY_BITS)


_FAMILY_BITS = 62
_MOST_GENERATIONS = 1 << 16
V = TypeVar("V")


def _put(known: OrderedDict[str, V], session: str, value: V) -> None:
    known[session] = value
    known.move_to_end(session)
    if len(known) > _MOST_GENERATIONS:
        known.popitem(last=False)


class PartCache:
    """Parts that were read or written last, up to a number of bytes: decoded, or the rows that a first load read."""

    def __init__(
        self, max_bytes: int, open_parts: Callable[[Iterable[PartRow], int], dict[bytes, PartContent]]
    ) -> None:
        """`open_parts` decodes the parts in rows of a family."""
        self._max_bytes = max_bytes
        self._open_parts = open_parts
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: dict[int, dict[bytes, PartContent]] = {}
        self._rows: dict[int, Sequence[PartRow]] = {}

    def of_family(self, family: int) -> Mapping[bytes, PartContent]:
        """The parts of a family; the mapping may grow meanwhile, and never changes otherwise."""
        with self._lock:
            rows = self._rows.pop(family, None)
        if rows is not None:
            self._drop(rows)
            self.put(family, self._open_parts(rows, family))
        return self._entries.get(family, {})

    def rows(self, family: int) -> Sequence[PartRow]:
        """The rows of a family that were put here, if its parts have not been asked for since."""
        return self._rows.get(family, ())

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        # new dicts: a reader may be using the old ones
        self._entries, self._rows, self._bytes = {}, {}, 0

    def put(self, family: int, parts: dict[bytes, PartContent]) -> None:
        with self._lock:
            if self._has_room(sum([len(data) for _, data in parts.values()])):
                self._entries.setdefault(family, {}).update(parts)

    def put_rows(self, family: int, rows: Sequence[PartRow]) -> None:
        """Keep rows of a family that has none here; their parts are decoded when they are asked for."""
        with self._lock:
            if family not in self._rows and self._has_room(_row_bytes(rows)):
                self._rows[family] = rows

    def _has_room(self, size: int) -> bool:
        """Count more bytes, if they are not too many; what else is here makes room for them."""
        if self._bytes + size > self._max_bytes:
            self._clear()
        if size > self._max_bytes:
            return False
        self._bytes += size
        return True

    def _drop(self, rows: Sequence[PartRow]) -> None:
        with self._lock:
            self._bytes = max(0, self._bytes - _row_bytes(rows))


def _row_bytes(rows: Sequence[PartRow]) -> int:
    return sum([len(data) for _, _, data in rows])
