"""The interface of a back end: it stores rows and parts, each change atomic, and knows nothing of values.

A **row** is a checkpoint: its place (tenant, session, namespace, id), its number, and encoded bytes. A **part** is a
piece of a state, named by its content; rows and parts list the parts that they need in `refs`, 16 bytes each. A
**family** is the sessions that share parts: one session and its forks.

Every back end guarantees, and `holdfast.testing.flow_contract` tests:

1. A change is complete or absent, also after `kill -9` (P3). Parts exist before a row that needs them is visible.
2. A row's number is greater than every number given before in its store, and is never given again (P10).
3. A part that a row needs, directly or through other parts, stays; it is freed with the last row that needs it.
4. Threads and processes use one store at once; none loses a change or sees half of one (P9).
5. A tenant's calls neither see nor change another tenant's data, except that `tenants` lists them.
6. A query with a limit reads up to that limit, rather than everything (P8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from struct import unpack
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from holdfast.errors import Conflict

NAME_BYTES = 16


class Anything(Enum):
    """Stands for any expected parent."""

    ANYTHING = 0


ANYTHING = Anything.ANYTHING


class Stale(Exception):
    """What was read before has changed: read again, and start over."""


class Place(NamedTuple):
    """Where a checkpoint is, within its tenant."""

    session: str
    namespace: str
    checkpoint_id: str


class CheckpointRow(NamedTuple):
    """A checkpoint as it is stored."""

    place: Place
    sequence: int
    """0 until the store assigns one."""
    parent_id: str | None
    run_id: str | None
    saved_at: int
    """Microseconds since 1970, by the clock of the process that saved it; only time-to-live looks at it."""
    digest: bytes
    """Of the whole checkpoint: equal digests mean equal checkpoints."""
    meta: bytes
    refs: bytes = b""
    shape: bytes = b""
    family: int = 0
    hint: Any = None
    """Where its parts are likely to be; only the store that gave it understands it."""


class StatePart(NamedTuple):
    """A piece of a state."""

    name: bytes
    refs: bytes
    data: bytes


PartRow: TypeAlias = tuple[bytes, bytes, bytes]
"""A part as it is read: there may be thousands, and a bare tuple takes a third of the time."""


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
    """A row for another session whose parts the base has, and the writes that come with it."""

    row: CheckpointRow
    base: Base
    writes: Sequence[WriteRow] = ()


class SessionRow(NamedTuple):
    """A session as it is stored."""

    session: str
    family: int
    latest: int
    checkpoints: int
    saved_at: int
    """The latest of its rows: a clock that steps back does not make a session older."""
    is_deleted: bool


class SizeRow(NamedTuple):
    """The size of a session, in bytes."""

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
    def tenant(self) -> str:
        """Whose sessions these are; no other tenant's are seen."""
        ...

    def commit(
        self,
        row: CheckpointRow,
        parts: Sequence[StatePart],
        *,
        base: Base | None = None,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
        reopen: bool = False,
    ) -> int:
        """Add a row and the parts that its base does not have, and give it a number.

        Checked in this order: if the place has a row with the same digest, return its number and change nothing.
        Conflict if the session was deleted (with `reopen`, only if the row is of the family of the deleted session: one
        of another family begins the session again, in place of the tombstone); if the place has another row and
        `replace` is False (a replaced row keeps its number); if the newest row of the namespace is not
        `expected_parent` (None: there is no row). Stale if `base` has changed, or the session is of another family than
        the row.
        """

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        """Create a session with copies of rows of one family, in this order, all or none; return their numbers.

        Conflict if the session exists, or was deleted and `reopen` is False. Stale if a base has changed.
        """

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
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
    ) -> list[CheckpointRow]:
        """Rows, newest first, numbered below `before`; without `refs` and `shape` unless `whole`."""

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[CheckpointRow]:
        """Rows of a namespace by their ids, the greatest first, below `before`; without `refs` and `shape`."""

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        """Rows that have those of these parts that exist, and perhaps others; several parts may share a row, a pack
        (`holdfast.flow.packs`).

        `hint` is that of a row that needs them. With a hint, parts may be left out: the caller asks for those again
        without one. `count`: how many parts the caller lacks, with those that these need themselves; 0 if only these.
        """

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        """The refs of those of these parts that exist; empty for a part that is not a group."""

    def session(self, session: str) -> SessionRow | None:
        """The row of a session, or None if there is no such session."""

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        """Sessions that are not deleted, newest first; `before`: only those whose newest row has a smaller number."""

    def delete(
        self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = (), families: Mapping[str, int] | None = None
    ) -> int:
        """Delete rows with their writes, and the parts that nothing needs any more; return how many rows there were.

        Stale, and nothing is changed, if one of the sessions `if_are` was saved into since it was read. `families`:
        the family that a session must have; if it has another, it was begun again, and its rows and writes stay.
        """

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        """Delete a session; with a tombstone, later commits to it are Conflict until it is reopened.

        With `if_is`, only if nothing was saved into it since it was read; else 0, and nothing is changed.
        """

    def reopen(self, session: str, *, family: int | None = None, saved_at: int = 0) -> bool:
        """Remove a tombstone; return whether there was one.

        With `family`, a session of that family without checkpoints takes its place in the same step, so that writers
        of the deleted one are still refused.
        """

    def tombstones(self) -> list[str]:
        """The sessions that were deleted and not reopened."""

    def add_tombstone(self, session: str) -> bool:
        """Add a tombstone if there is no session of that name; return whether it was added."""

    def clear(self) -> None:
        """Delete everything of the tenant, tombstones too. Numbers continue from where they were."""

    def add_writes(
        self,
        place: Place,
        writes: Sequence[WriteRow],
        *,
        replace: bool,
        family: int | None = None,
        max_wait_seconds: float = 0.0,
    ) -> None:
        """Attach writes to a checkpoint, which need not exist yet.

        A write with the task and index of an existing one replaces it, or is ignored. Conflict if the session was
        deleted, or is of another family than `family` (None: any): it was deleted and begun again. The writes are
        stored when this returns; a back end may wait up to `max_wait_seconds` for a commit by another thread that can
        store them, too.
        """

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        """The writes of these checkpoints, by task path, task and index."""

    def usage(self) -> UsageRow:
        """Count sessions, checkpoints and bytes."""

    def sizes(self, sessions: Sequence[str]) -> list[SizeRow]:
        """The sizes of these sessions; missing ones are left out."""

    def tenants(self) -> list[str]:
        """The names of all tenants that have a session or a write in this back end."""

    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def is_still(now: SessionRow | None, before: SessionRow) -> bool:
    """Whether nothing was saved into a session since `before` was read."""
    return now is not None and (now.latest, now.saved_at, now.is_deleted) == (before.latest, before.saved_at, False)


def is_other_family(session: str, family: int, families: Mapping[str, int] | None) -> bool:
    """Whether a session must have another family than this one, which it has."""
    return families is not None and families.get(session, family) != family


def names_in(refs: bytes) -> list[bytes]:
    """The names in a row's or part's refs; none if they are damaged."""
    if type(refs) is not bytes:
        return []
    count, rest = divmod(len(refs), NAME_BYTES)
    if rest:  # damaged: no part has such a name
        return [refs[at : at + NAME_BYTES] for at in range(0, len(refs), NAME_BYTES)]
    return list(unpack(f"{NAME_BYTES}s" * count, refs))


def size_of(part: PartRow) -> int:
    """The size of a part; of a damaged one, that of the bytes it has."""
    return sum(len(each) for each in part[1:] if type(each) is bytes)


def live_names(roots: Iterable[bytes], groups: Mapping[bytes, bytes]) -> set[bytes]:
    """All names that are needed: those in the refs of rows, and in the refs of the parts that these name."""
    live: set[bytes] = set()
    level = {name for refs in roots for name in names_in(refs)}
    while level:
        live |= level
        level = {name for group in level if (refs := groups.get(group)) for name in names_in(refs)} - live
    return live


def check_commit(
    row: CheckpointRow, *, is_deleted: bool, is_taken: bool, newest: str | None, expected_parent: str | Anything | None
) -> None:
    """Raise Conflict if a row must not be committed. The same words on every back end."""
    if is_deleted:
        raise session_deleted(row.place.session)
    if is_taken:
        raise Conflict(
            f"session {row.place.session!r} has another checkpoint {row.place.checkpoint_id!r}",
            hint="Give each checkpoint an id of its own, or pass replace=True.",
        )
    if not isinstance(expected_parent, Anything) and newest != expected_parent:
        raise Conflict(
            f"the newest checkpoint of session {row.place.session!r} is {newest!r}, not {expected_parent!r}",
            hint="Load it, and save on top of it.",
        )


def session_deleted(session: str) -> Conflict:
    return Conflict(
        f"session {session!r} was deleted",
        hint="Load it first, and begin it again without a parent; or use another session id.",
    )


def session_exists(session: str) -> Conflict:
    return Conflict(f"session {session!r} exists, or was deleted", hint="Fork into a new one.")
