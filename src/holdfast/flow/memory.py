"""States in memory: for tests, and for programs whose states may end with them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from holdfast.durable.closing import Closing
from holdfast.flow import store
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    CheckpointRow,
    Copy,
    PartRow,
    Place,
    SessionRow,
    SizeRow,
    Stale,
    StatePart,
    UsageRow,
    WriteRow,
    is_still,
    live_names,
)
from holdfast.flow.validation import check_name


@dataclass
class _Tenant:
    """The data of one tenant."""

    sequence: int = 0
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    rows: dict[Place, CheckpointRow] = field(default_factory=dict)
    """In the order of their numbers: a new row comes last, a replaced one stays where it is."""
    places: dict[str, dict[Place, None]] = field(default_factory=dict)
    """Those of each session, in the same order."""
    parts: dict[int, dict[bytes, StatePart]] = field(default_factory=dict)
    writes: dict[Place, dict[tuple[str, int], WriteRow]] = field(default_factory=dict)


class MemoryStore(Closing):
    """A store that ends with its process. Other tenants of the same memory are opened with `for_tenant`."""

    def __init__(self, tenant: str = "") -> None:
        self._tenant_name = check_name(tenant, "tenant", empty=True)
        self._lock = threading.RLock()
        self._tenants: dict[str, _Tenant] = {}

    @property
    def tenant(self) -> str:
        return self._tenant_name

    def for_tenant(self, tenant: str) -> MemoryStore:
        """Another tenant of this memory."""
        other = MemoryStore(tenant)
        other._lock, other._tenants = self._lock, self._tenants
        return other

    @property
    def _own(self) -> _Tenant:
        return self._tenants.setdefault(self._tenant_name, _Tenant())

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
        with self._lock:
            own = self._own
            session = own.sessions.get(row.place.session)
            if reopen and session is not None and session.is_deleted and session.family != row.family:
                session = None
            there = own.rows.get(row.place)
            if there is not None and there.digest == row.digest:
                return there.sequence
            newest = None if isinstance(expected_parent, Anything) else self.find(*row.place[:2], None)
            store.check_commit(
                row,
                is_deleted=session is not None and session.is_deleted,
                is_taken=there is not None and not replace,
                newest=newest.place.checkpoint_id if newest else None,
                expected_parent=expected_parent,
            )
            if session is not None and session.family != row.family:
                raise Stale
            newest_first = reversed(own.rows.values())  # newest first: the base is most likely near the end
            if base is not None and not any((each.sequence, each.digest) == base for each in newest_first):
                raise Stale
            own.sequence += there is None
            sequence = own.sequence if there is None else there.sequence
            stored = own.parts.setdefault(row.family, {})
            for part in parts:
                stored.setdefault(part.name, part)
            own.rows[row.place] = row._replace(sequence=sequence)
            own.places.setdefault(row.place.session, {})[row.place] = None
            self._note(row, session, sequence, added=there is None)
            if there is not None:
                self._sweep(row.family)
            return sequence

    def _note(self, row: CheckpointRow, session: SessionRow | None, sequence: int, *, added: bool) -> None:
        latest = max(sequence, session.latest if session else 0)
        count = (session.checkpoints if session else 0) + added
        saved_at = max(row.saved_at, session.saved_at if session else row.saved_at)
        noted = SessionRow(row.place.session, row.family, latest, count, saved_at, False)
        self._own.sessions[row.place.session] = noted

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        with self._lock:
            own, known = self._own, self._own.sessions.get(session)
            if known is not None and not (known.is_deleted and reopen):
                raise store.session_exists(session)
            if {copy.base for copy in copies} - {(row.sequence, row.digest) for row in own.rows.values()}:
                raise Stale
            own.sessions.pop(session, None)
            for copy in copies:
                self.add_writes(copy.row.place, copy.writes, replace=True)
            return [self.commit(copy.row, []) for copy in copies]

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
        with self._lock:
            if checkpoint_id is not None:
                return self._own.rows.get(Place(session, namespace, checkpoint_id))
            return next(iter(self.rows(session, namespace, limit=1, whole=True)), None)

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
        with self._lock:
            own = self._own
            places: Iterable[Place] = reversed(own.rows if session is None else own.places.get(session, {}))
            if before is not None:
                places = list(places)
                places = places[bisect_right(places, -before, key=lambda place: -own.rows[place].sequence) :]
            found = (
                row
                for row in map(own.rows.__getitem__, places)
                if (namespace is None or row.place.namespace == namespace) and (run_id is None or row.run_id == run_id)
            )
            return list(islice(found, limit))

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[CheckpointRow]:
        with self._lock:
            own = self._own
            wanted = (
                place
                for place in own.places.get(session, {})
                if place.namespace == namespace and (before is None or place.checkpoint_id < before)
            )
            return [own.rows[place] for place in sorted(wanted, reverse=True)[:limit]]

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        with self._lock:
            stored = self._own.parts.get(family, {})
            return [stored[name] for name in names if name in stored]

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        return {name: refs for name, refs, _ in self.parts(family, names)}

    def session(self, session: str) -> SessionRow | None:
        with self._lock:
            return self._own.sessions.get(session)

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        with self._lock:
            found = [row for row in self._own.sessions.values() if not row.is_deleted]
        found = sorted((row for row in found if before is None or row.latest < before), key=lambda row: -row.latest)
        return found if limit is None else found[:limit]

    def delete(
        self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = (), families: Mapping[str, int] | None = None
    ) -> int:
        with self._lock:
            own, count, freed = self._own, 0, set()
            if not all(is_still(own.sessions.get(each.session), each) for each in if_are):
                raise Stale
            for place in places:
                known = own.sessions.get(place.session)
                if known is not None and store.is_other_family(place.session, known.family, families):
                    continue
                own.writes.pop(place, None)
                row = own.rows.pop(place, None)
                if row is not None:
                    count += 1
                    del own.places[place.session][place]
                    if not own.places[place.session]:
                        del own.places[place.session]
                    freed.add(row.family)
                    session = own.sessions[place.session]
                    own.sessions[place.session] = session._replace(checkpoints=session.checkpoints - 1)
            for family in freed:
                self._sweep(family)
            return count

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        with self._lock:
            own = self._own
            if if_is is not None and not is_still(own.sessions.get(session), if_is):
                return 0
            count = self.delete(list(own.places.get(session, ())))
            own.writes = {place: writes for place, writes in own.writes.items() if place.session != session}
            known = own.sessions.pop(session, None)
            if tombstone and (known is not None):
                own.sessions[session] = known._replace(checkpoints=0, is_deleted=True)
            return count

    def _sweep(self, family: int) -> None:
        own = self._own
        stored = own.parts.get(family, {})
        roots = [row.refs for row in own.rows.values() if row.family == family]
        live = live_names(roots, {name: part.refs for name, part in stored.items() if part.refs})
        own.parts[family] = {name: part for name, part in stored.items() if name in live}
        if not own.parts[family]:
            del own.parts[family]

    def reopen(self, session: str, *, family: int | None = None, saved_at: int = 0) -> bool:
        with self._lock:
            known = self._own.sessions.get(session)
            if known is None or not known.is_deleted:
                return False
            del self._own.sessions[session]
            if family is not None:
                self._own.sessions[session] = SessionRow(session, family, known.latest, 0, saved_at, False)
            return True

    def tombstones(self) -> list[str]:
        with self._lock:
            return [name for name, session in self._own.sessions.items() if session.is_deleted]

    def add_tombstone(self, session: str) -> bool:
        with self._lock:
            dead = SessionRow(session, 0, 0, 0, 0, True)
            return self._own.sessions.setdefault(session, dead) is dead

    def clear(self) -> None:
        with self._lock:
            self._tenants[self._tenant_name] = _Tenant(sequence=self._own.sequence)

    def add_writes(
        self,
        place: Place,
        writes: Sequence[WriteRow],
        *,
        replace: bool,
        family: int | None = None,
        max_wait_seconds: float = 0.0,
    ) -> None:
        with self._lock:
            known = self._own.sessions.get(place.session)
            if known is not None and (known.is_deleted or family not in (None, known.family)):
                raise store.session_deleted(place.session)
            stored = self._own.writes.setdefault(place, {})
            for write in writes:
                if replace or (write.task_id, write.idx) not in stored:
                    stored[write.task_id, write.idx] = write

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        with self._lock:
            found = {place: list(self._own.writes.get(place, {}).values()) for place in places}
        for rows in found.values():
            rows.sort(key=lambda row: (row.task_path, row.task_id, row.idx))
        return found

    def usage(self) -> UsageRow:
        with self._lock:
            own = self._own
            parts = [part for stored in own.parts.values() for part in stored.values()]
            rows = sum(len(row.meta) + len(row.refs) + len(row.shape) for row in own.rows.values())
            writes = sum(len(write.data) for stored in own.writes.values() for write in stored.values())
            dead = sum(session.is_deleted for session in own.sessions.values())
            return UsageRow(
                sessions=len(own.sessions) - dead, tombstones=dead, checkpoints=len(own.rows), parts=len(parts),
                part_bytes=sum(len(part.data) + len(part.refs) for part in parts), row_bytes=rows + writes,
                sequence=own.sequence,
            )  # fmt: skip

    def sizes(self, sessions: Sequence[str]) -> list[SizeRow]:
        with self._lock:
            known = [row for name in sessions if (row := self._own.sessions.get(name)) and not row.is_deleted]
            return [self._weight(row) for row in known]

    def _weight(self, session: SessionRow) -> SizeRow:
        own = self._own
        rows = [own.rows[place] for place in own.places.get(session.session, ())]
        writes = [stored for place, stored in own.writes.items() if place.session == session.session]
        parts = own.parts.get(session.family, {}).values()
        return SizeRow(
            session=session.session,
            row_bytes=sum(len(row.meta) + len(row.refs) + len(row.shape) for row in rows)
            + sum(len(write.data) for stored in writes for write in stored.values()),
            family=session.family,
            family_bytes=sum(len(part.refs) + len(part.data) for part in parts),
            family_sessions=len({row.place.session for row in own.rows.values() if row.family == session.family}),
        )

    def tenants(self) -> list[str]:
        with self._lock:
            return sorted(name for name, stored in self._tenants.items() if stored.sessions or stored.writes)

    def close(self) -> None:
        """Nothing to do: the memory is freed with the last reference."""
