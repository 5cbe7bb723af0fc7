"""What a back end is: rows and parts, and one atomic step for each change. It knows nothing of values.

A **row** is a checkpoint: its place (tenant, session, namespace, id), its number, and three sealed byte strings. A
**part** is a piece of a state, named by its content; rows and parts name the parts that they need in `refs`, 16 bytes
each. A **family** is the sessions that share parts: one session and what was forked from it.

What every back end promises, and `holdfast.testing.flow_contract` holds it to:

1. A change is whole or not there, also after `kill -9` (P3). Parts are there before a row that needs them can be seen.
2. A row's number is greater than every number given before in its store, and is never given again (P10).
3. A part that a row needs, directly or through other parts, stays; one that none needs goes with the last that did.
4. Threads and processes use one store at once; none loses a change or sees half of one (P9).
5. Nothing of another tenant is seen or touched; `tenants` alone tells that there are others.
6. What is asked for with a limit is read up to that limit, not read whole and then cut (P8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from struct import unpack
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

NAME_BYTES = 16


class Anything(Enum):
    """The parent that is expected, where none is."""

    ANYTHING = 0


ANYTHING = Anything.ANYTHING


class Stale(Exception):
    """What was looked at before is not so any more: look again, and begin anew."""


class Place(NamedTuple):
    """Where a checkpoint is, within its tenant."""

    session: str
    namespace: str
    checkpoint_id: str


class Row(NamedTuple):
    """A checkpoint as it is stored."""

    place: Place
    sequence: int
    """0 until the store has given one."""
    parent_id: str | None
    run_id: str | None
    saved_at: int
    """Microseconds since 1970, by the clock of whoever saved it; only time-to-live looks at it."""
    digest: bytes
    """Of all it holds: equal means equal."""
    meta: bytes
    refs: bytes = b""
    shape: bytes = b""
    family: int = 0
    hint: Any = None
    """Where the store would look for its parts first; only the store knows what it means."""


class Part(NamedTuple):
    """A piece of a state."""

    name: bytes
    refs: bytes
    data: bytes


PartRow: TypeAlias = tuple[bytes, bytes, bytes]
"""A part as it is read: there may be thousands, and a bare tuple is made in a third of the time."""


class Base(NamedTuple):
    """The row whose parts a save builds on."""

    sequence: int
    digest: bytes


class WriteRow(NamedTuple):
    """A pending write as it is stored."""

    task_id: str
    idx: int
    task_path: str
    channel: str
    data: bytes


class Copy(NamedTuple):
    """A row for another session, of which the base has all parts, and the writes that come with it."""

    row: Row
    base: Base
    writes: Sequence[WriteRow] = ()


class SessionRow(NamedTuple):
    """A session as it is stored."""

    session: str
    family: int
    latest: int
    checkpoints: int
    saved_at: int
    """The latest of those of its rows: a clock that steps back makes no session older."""
    is_deleted: bool


class WeightRow(NamedTuple):
    """What a session takes, in bytes."""

    session: str
    row_bytes: int
    """Of its checkpoints and writes."""
    family: int
    family_bytes: int
    """Of the parts of its family."""
    family_sessions: int
    """How many sessions of the family have checkpoints."""


class UsageRow(NamedTuple):
    """Counts of a tenant."""

    sessions: int
    tombstones: int
    checkpoints: int
    parts: int
    part_bytes: int
    row_bytes: int
    sequence: int


class StateStore(Protocol):
    """One tenant of one back end. Calls are synchronous and may come from any thread."""

    @property
    def tenant(self) -> str: ...

    def commit(
        self,
        row: Row,
        parts: Sequence[Part],
        *,
        base: Base | None = None,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
    ) -> int:
        """Add a row and the parts that its base does not have, and give it a number.

        In this order: the same place with the same digest is there already: its number, and nothing is changed.
        Conflict if the session was deleted; if the place holds something else and `replace` is not asked for (replaced,
        it keeps its number); if the newest row of the namespace is not `expected_parent` (None: there is none). Stale
        if `base` is not there as it was, or the session is of another family than the row.
        """

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        """Begin a session with copies of rows of one family, in this order, all of them or none; their numbers.

        Conflict if there is a session of that name, or was one, unless a deleted one is to be reopened. Stale if a base
        is not there as it was.
        """

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        """One row, or the newest of the namespace."""

    def rows(
        self,
        session: str | None,
        namespace: str | None,
        *,
        before: int | None = None,
        limit: int | None = None,
        run_id: str | None = None,
        whole: bool = False,
    ) -> list[Row]:
        """Rows, newest first, numbered below `before`; without `refs` and `shape` unless they are asked for."""

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[Row]:
        """Rows of a namespace by their ids, the greatest first, below `before`; without `refs` and `shape`."""

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        """Those of these parts that are there, and perhaps others.

        `hint` is that of a row that needs them, and `count` how many parts it needs in all.
        """

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The refs of those of these parts that are there; empty where one names no others."""

    def session(self, session: str) -> SessionRow | None: ...

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        """Those that are not deleted, the one with the newest row first; `before` is the number of its newest row."""

    def delete(self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = ()) -> int:
        """Remove rows with their writes, free the parts that nothing needs any more; how many rows there were.

        Stale, and nothing is changed, if something was saved into one of `if_are` since it was that.
        """

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        """Remove all of a session; with a tombstone, later commits to it are Conflict until it is reopened.

        With `if_is`, only if nothing was saved into it since it was that; else 0, and nothing is changed.
        """

    def reopen(self, session: str) -> bool:
        """Take a tombstone away; whether there was one."""

    def tombstones(self) -> list[str]:
        """The sessions that were deleted and are not to be raised."""

    def bury(self, session: str) -> bool:
        """Leave a tombstone where there is no session of that name; whether one was left."""

    def clear(self) -> None:
        """Remove everything of the tenant, tombstones too. Numbers go on from where they were."""

    def add_writes(
        self, place: Place, writes: Sequence[WriteRow], *, replace: bool, patience_seconds: float = 0.0
    ) -> None:
        """Attach writes to a checkpoint, which need not be there yet.

        A write with the task and index of one that is there replaces it, or is left out. Conflict if the session was
        deleted. They are stored when this returns; a back end may wait up to `patience_seconds` for a commit by another
        thread that stores them at no cost.
        """

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        """The writes of these checkpoints, by task path, task and index."""

    def usage(self) -> UsageRow: ...

    def weigh(self, sessions: Sequence[str]) -> list[WeightRow]:
        """What these sessions take; those that are not there are left out."""

    def tenants(self) -> list[str]:
        """Who has a session or a write in this back end, by name: for whoever keeps the whole of it."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_still(now: SessionRow | None, before: SessionRow) -> bool:
    """Whether nothing was saved into a session since it was that."""
    return now is not None and (now.latest, now.saved_at, now.is_deleted) == (before.latest, before.saved_at, False)


def names_in(refs: bytes) -> list[bytes]:
    """The names that lie in a row's or part's refs; none in what is damaged."""
    if type(refs) is not bytes:
        return []
    count, rest = divmod(len(refs), NAME_BYTES)
    if rest:  # damaged: no part has such a name
        return [refs[at : at + NAME_BYTES] for at in range(0, len(refs), NAME_BYTES)]
    return list(unpack(f"{NAME_BYTES}s" * count, refs))


def size_of(part: PartRow) -> int:
    """How many bytes a part takes; of one that is damaged, those that it has."""
    return sum(len(each) for each in part[1:] if type(each) is bytes)


def live_names(roots: Iterable[bytes], groups: Mapping[bytes, bytes]) -> set[bytes]:
    """All names that are needed: those in the refs of rows, and in the refs of what those name."""
    live: set[bytes] = set()
    level = {name for refs in roots for name in names_in(refs)}
    while level:
        live |= level
        level = {name for group in level if (refs := groups.get(group)) for name in names_in(refs)} - live
    return live
