"""Reading from an SQLite file: one statement sees one state of the file, whoever writes beside."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.errors import Damaged, Refused
from holdfast.flow.names import check_name, escape, unescape
from holdfast.flow.sqlite_pool import Pool
from holdfast.flow.store import PartRow, Place, Row, SessionRow, UsageRow, WeightRow, WriteRow

_ROW = (
    "s.session, c.namespace, c.checkpoint_id, c.sequence, c.parent_id, c.run_id, c.saved_at, c.digest, c.meta,"
    " s.family, c.first_part, c.last_part"
)
_FROM = "FROM checkpoints c JOIN sessions s ON s.number = c.owner WHERE s.tenant = ?"
_FROM_NEWEST = _FROM.replace("JOIN", "CROSS JOIN", 1)
"""The same, read by number from the greatest down: of SQLite's joins this one keeps to the order."""
LATEST = "max(s.latest, ifnull((SELECT max(sequence) FROM checkpoints WHERE owner = s.number), 0))"
SAVED_AT = "max(s.saved_at, ifnull((SELECT max(saved_at) FROM checkpoints WHERE owner = s.number), 0))"
_COLUMNS = (
    f"s.session, s.family, {LATEST} AS newest, (SELECT count(*) FROM checkpoints WHERE owner = s.number),"
    f" {SAVED_AT}, s.deleted FROM sessions s"
)
_SESSION = f"SELECT {_COLUMNS} WHERE s.tenant = ? AND s.session = ?"
_SESSIONS = f"""
SELECT {_COLUMNS} WHERE s.number IN (
    SELECT s.number FROM sessions s WHERE s.tenant = ? AND NOT s.deleted AND {LATEST} < ? ORDER BY {LATEST} DESC LIMIT ?
) ORDER BY newest DESC
"""
"""The rows are counted of those alone that are listed."""
_WEIGHT = """
SELECT s.session,
    (SELECT ifnull(sum(length(meta) + length(refs) + length(shape)), 0) FROM checkpoints WHERE owner = s.number)
    + (SELECT ifnull(sum(length(data)), 0) FROM writes w WHERE w.tenant = s.tenant AND w.session = s.session),
    s.family,
    (SELECT ifnull(sum(length(refs) + length(data)), 0) FROM parts p WHERE p.family = s.family AND p.tenant = s.tenant),
    (SELECT count(*) FROM sessions o WHERE o.family = s.family AND o.tenant = s.tenant
        AND EXISTS (SELECT 1 FROM checkpoints WHERE owner = o.number))
FROM sessions s WHERE s.tenant = ? AND s.session = ? AND NOT s.deleted
"""
_DENSE = 2
_MANY = 500
"""Values in one query: older SQLite takes up to 999."""


class SQLiteReader:
    """One tenant of one file, as it is read."""

    def __init__(
        self,
        path: str | Path,
        *,
        tenant: str = "",
        synchronous: str = "FULL",
        timeout: float = 30.0,
        create: bool = True,
    ) -> None:
        """`timeout`: how many seconds a call waits for other writers. `create=False`: NotFound if nothing is there."""
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._key = escape(tenant)
        if synchronous.upper() not in ("FULL", "NORMAL", "EXTRA"):
            raise Refused(f"synchronous is {synchronous!r}", hint="Say FULL, NORMAL or EXTRA.")
        self._pool = Pool(Path(path), synchronous=synchronous.upper(), timeout=timeout, create=create)
        with self._pool.reading():
            pass  # opens the file, so that what is wrong with it is said now

    @property
    def tenant(self) -> str:
        return self._tenant

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        text = f"SELECT {_ROW}, c.refs, c.shape {_FROM} AND s.session = ? AND c.namespace = ?"
        values = [self._key, escape(session), escape(namespace)]
        if checkpoint_id is None:
            text += " ORDER BY c.sequence DESC LIMIT 1"
        else:
            text += " AND c.checkpoint_id = ?"
            values.append(escape(checkpoint_id))
        with self._pool.reading() as db:
            return next(iter(map(_row, db.execute(text, values).fetchall())), None)

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
        columns = "c.refs, c.shape" if whole else "x'', x''"
        text = ""
        values: list[Any] = [self._key]
        # of all sessions: by number, not by name (the plus tells SQLite so), which would bring every row to be sorted
        by_name = "c.namespace" if session is not None else "+c.namespace"
        for column, value in {"s.session": session, by_name: namespace, "c.run_id": run_id}.items():
            if value is not None:
                text += f" AND {column} = ?"
                values.append(escape(value))
        if before is not None:
            text += " AND c.sequence < ?"
            values.append(_within(before))
        with self._pool.reading() as db:
            of_all = session is None and run_id is None and self._is_alone(db)
            start = f"SELECT {_ROW}, {columns} {_FROM_NEWEST if of_all else _FROM}{text}"
            found = db.execute(f"{start} ORDER BY c.sequence DESC LIMIT ?", [*values, -1 if limit is None else limit])
            return [_row(each) for each in found.fetchall()]

    def _is_alone(self, db: sqlite3.Connection) -> bool:
        """Whether no other tenant has sessions in this file, among whose rows one would have to look for one's own."""
        some = "EXISTS (SELECT 1 FROM sessions WHERE tenant"
        found = db.execute(f"SELECT {some} < ?) OR {some} > ?)", (self._key, self._key))
        return not found.fetchone()[0]

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[Row]:
        text = f"SELECT {_ROW}, x'', x'' {_FROM} AND s.session = ? AND c.namespace = ?"
        values: list[Any] = [self._key, escape(session), escape(namespace)]
        if before is not None:
            text += " AND c.checkpoint_id < ?"
            values.append(escape(before))
        with self._pool.reading() as db:
            text += " ORDER BY c.checkpoint_id DESC LIMIT ?"
            return [_row(each) for each in db.execute(text, [*values, -1 if limit is None else limit]).fetchall()]

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        """Parts of a session that nobody saved beside lie next to each other, and are read in one go."""
        with self._pool.reading() as db:
            if hint and _is_dense(hint, count):
                found = db.execute(
                    "SELECT name, refs, data FROM parts WHERE number BETWEEN ? AND ? AND family = ? AND tenant = ?",
                    (*hint, family, self._key),
                ).fetchall()
                missing = set(names).difference(map(itemgetter(0), found))
                found += self._named(db, "name, refs, data", family, list(missing))
            else:
                found = list(self._named(db, "name, refs, data", family, names))
        return found

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._pool.reading() as db:
            return dict(self._named(db, "name, refs", family, names))

    def _named(self, db: sqlite3.Connection, columns: str, family: int, names: Sequence[bytes]) -> Iterator[Any]:
        for at in range(0, len(names), _MANY):
            some = names[at : at + _MANY]
            marks = ",".join("?" * len(some))
            text = f"SELECT {columns} FROM parts WHERE family = ? AND name IN ({marks}) AND tenant = ?"
            yield from db.execute(text, (family, *some, self._key))

    def session(self, session: str) -> SessionRow | None:
        with self._pool.reading() as db:
            return self._session(db, session)

    def _session(self, db: sqlite3.Connection, session: str) -> SessionRow | None:
        found = db.execute(_SESSION, (self._key, escape(session))).fetchone()
        return _session(found) if found else None

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        with self._pool.reading() as db:
            found = db.execute(
                _SESSIONS,
                (self._key, _within(1 << 62 if before is None else before), -1 if limit is None else limit),
            )
            return [_session(row) for row in found.fetchall()]

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        found: dict[Place, list[WriteRow]] = {}
        with self._pool.reading() as db:
            for place in places:
                rows = db.execute(
                    "SELECT task_id, idx, task_path, channel, data FROM writes WHERE tenant = ? AND session = ?"
                    " AND namespace = ? AND checkpoint_id = ?",
                    (self._key, *map(escape, place)),
                ).fetchall()
                found[place] = sorted(map(_write, rows), key=lambda row: (row.task_path, row.task_id, row.idx))
        return found

    def usage(self) -> UsageRow:
        with self._pool.reading() as db:
            sessions, dead = db.execute(
                "SELECT count(*), ifnull(sum(deleted), 0) FROM sessions WHERE tenant = ?", (self._key,)
            ).fetchone()
            rows, row_bytes = db.execute(
                f"SELECT count(*), ifnull(sum(length(meta) + length(refs) + length(shape)), 0) {_FROM}", (self._key,)
            ).fetchone()
            parts, part_bytes = db.execute(
                "SELECT count(*), ifnull(sum(length(refs) + length(data)), 0) FROM parts WHERE tenant = ?", (self._key,)
            ).fetchone()
            [writes] = db.execute(
                "SELECT ifnull(sum(length(data)), 0) FROM writes WHERE tenant = ?", (self._key,)
            ).fetchone()
            [given] = db.execute(
                "SELECT max(greatest, (SELECT ifnull(max(sequence), 0) FROM checkpoints)) FROM numbers"
            ).fetchone()
        return UsageRow(sessions - dead, dead, rows, parts, part_bytes, row_bytes + writes, given)

    def tombstones(self) -> list[str]:
        with self._pool.reading() as db:
            found = db.execute("SELECT session FROM sessions WHERE tenant = ? AND deleted", (self._key,)).fetchall()
        return [unescape(name) for (name,) in found]

    def weigh(self, sessions: Sequence[str]) -> list[WeightRow]:
        with self._pool.reading() as db:
            found = [row for name in sessions for row in db.execute(_WEIGHT, (self._key, escape(name))).fetchall()]
        return [WeightRow(unescape(session), *more) for session, *more in found]

    def tenants(self) -> list[str]:
        with self._pool.reading() as db:
            found = db.execute("SELECT tenant FROM sessions UNION SELECT tenant FROM writes").fetchall()
        return sorted(unescape(name) for (name,) in found)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _row(values: Sequence[Any]) -> Row:
    session, namespace, checkpoint_id, sequence, parent, run, saved_at, digest, meta, family, first, last = values[:12]
    place = Place(unescape(session), unescape(namespace), unescape(checkpoint_id))
    parent, run = (None if name is None else unescape(name) for name in (parent, run))
    refs, shape = values[12:]
    return Row(place, sequence, parent, run, saved_at, digest, meta, refs, shape, family, (first, last))


def _is_dense(hint: Any, count: int) -> bool:
    try:
        return bool(hint[1] - hint[0] < _DENSE * count)
    except TypeError:  # damaged, but only a hint
        return False


def _session(values: Sequence[Any]) -> SessionRow:
    session, family, latest, checkpoints, saved_at, is_deleted = values
    if not type(family) is type(latest) is type(saved_at) is int:
        raise Damaged(f"what is told of session {session!r} is malformed", hint="Delete it.")
    return SessionRow(unescape(session), family, latest, checkpoints, saved_at, bool(is_deleted))


def _write(values: Sequence[Any]) -> WriteRow:
    task_id, index, task_path, channel, data = values
    if type(index) is not int:
        raise Damaged("a stored write is malformed", hint="Delete its checkpoint.")
    return WriteRow(unescape(task_id), index, unescape(task_path), unescape(channel), data)


def _within(number: int) -> int:
    """A number that SQLite can hold."""
    return max(min(number, (1 << 63) - 1), -(1 << 63))
