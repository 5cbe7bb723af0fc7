"""States in one SQLite file.

A commit is one transaction of SQLite: whatever kills the process, the file holds the state before or after (P3). Parts
are inserted before their row, in that transaction, and those of the base are known to be there because the base is
looked up in it. `synchronous=FULL` (the default) makes a commit outlive a power loss; with `NORMAL` the last few may be
lost, never a part of one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.errors import Unavailable
from holdfast.flow import conflicts
from holdfast.flow.names import escape, unescape
from holdfast.flow.sqlite_reading import LATEST, SAVED_AT, SQLiteReader
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    Copy,
    Part,
    Place,
    Row,
    SessionRow,
    Stale,
    WriteRow,
    is_still,
    live_names,
)

_LAST_PART = "(SELECT ifnull(max(number), 0) FROM parts)"
_GREATEST = "(SELECT ifnull(max(sequence), 0) FROM checkpoints)"
_KNOWN = f"""
SELECT s.number, s.family, s.deleted, c.sequence, c.digest,
    CASE WHEN ?5 IS NULL THEN {_LAST_PART} + 1 ELSE (
        SELECT b.first_part FROM checkpoints b JOIN sessions t ON t.number = b.owner
        WHERE b.sequence = ?5 AND b.digest = ?6 AND t.tenant = ?1
    ) END
FROM (SELECT 1) LEFT JOIN sessions s ON s.tenant = ?1 AND s.session = ?2
    LEFT JOIN checkpoints c ON c.owner = s.number AND c.namespace = ?3 AND c.checkpoint_id = ?4
"""
"""All that a commit must know: the session, what is at its place, and where the parts of its base begin (or else those
that come next), which is NULL if the base is not there as it was."""
_ADD_PART = "INSERT OR IGNORE INTO parts (tenant, family, name, refs, data) VALUES (?, ?, ?, ?, ?)"
_ADD_ROW = (
    "INSERT INTO checkpoints (sequence, owner, namespace, checkpoint_id, parent_id, run_id, saved_at, digest, meta,"
    f" refs, shape, first_part, last_part) VALUES ((SELECT max({_GREATEST}, greatest) + 1 FROM numbers),"
    f" ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_LAST_PART})"
)
_NUMBER = "SELECT number, family FROM sessions WHERE tenant = ? AND session = ?"
_IS_KNOWN = "SELECT 1 FROM sessions WHERE tenant = ? AND session = ?"
_IS_DELETED = f"{_IS_KNOWN} AND deleted"
_ADD_WRITE = "INSERT OR IGNORE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REPLACE_WRITE = "INSERT OR REPLACE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SQLiteStore(SQLiteReader):
    """One tenant of one file."""

    # committing

    def commit(
        self,
        row: Row,
        parts: Sequence[Part],
        *,
        base: Base | None = None,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
    ) -> int:
        with self._pool.transaction() as db:
            return self._commit(db, row, parts, base, expected_parent, replace=replace)

    def _commit(
        self,
        db: sqlite3.Connection,
        row: Row,
        parts: Sequence[Part],
        base: Base | None,
        expected_parent: str | Anything | None = ANYTHING,
        *,
        replace: bool = False,
    ) -> int:
        session, namespace, checkpoint_id = place = Place(*map(escape, row.place))
        found = db.execute(_KNOWN, (self._key, session, namespace, checkpoint_id, *(base or (None, None))))
        number, family, is_deleted, sequence, digest, first_part = found.fetchone()
        if sequence is not None and digest == row.digest:
            return int(sequence)
        conflicts.check(
            row,
            is_deleted=bool(is_deleted),
            is_taken=sequence is not None and not replace,
            newest=None if isinstance(expected_parent, Anything) else self._newest(db, number, namespace),
            expected_parent=expected_parent,
        )
        if first_part is None or family not in (None, row.family):
            raise Stale
        if parts:
            db.executemany(_ADD_PART, [(self._key, row.family, *part) for part in parts])
        if sequence is not None:
            return self._replace_row(db, sequence, row, first_part)
        if number is None:
            number = self._add_session(db, session, row)
        added = db.execute(_ADD_ROW, (number, *place[1:], *_values(row), first_part))
        return int(added.lastrowid or 0)

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        with self._pool.transaction() as db:
            if reopen:
                self._reopen(db, session)
            if db.execute(_IS_KNOWN, (self._key, escape(session))).fetchone():
                raise conflicts.exists(session)
            for copy in copies:
                db.executemany(_REPLACE_WRITE, self._write_values(copy.row.place, copy.writes))
            return [self._commit(db, copy.row, [], copy.base) for copy in copies]

    @staticmethod
    def _newest(db: sqlite3.Connection, number: int | None, namespace: str) -> str | None:
        found = db.execute(
            "SELECT checkpoint_id FROM checkpoints INDEXED BY newest WHERE owner = ? AND namespace = ?"
            " ORDER BY sequence DESC LIMIT 1",
            (number, namespace),
        ).fetchone()
        return unescape(found[0]) if found else None

    def _add_session(self, db: sqlite3.Connection, session: str, row: Row) -> int:
        added = db.execute(
            "INSERT INTO sessions (tenant, session, family, latest, saved_at, deleted) VALUES (?, ?, ?, 0, 0, 0)",
            (self._key, session, row.family),
        )
        return int(added.lastrowid or 0)

    def _replace_row(self, db: sqlite3.Connection, sequence: int, row: Row, first_part: int) -> int:
        db.execute(
            f"UPDATE sessions AS s SET saved_at = {SAVED_AT}"
            " WHERE number = (SELECT owner FROM checkpoints WHERE sequence = ?)",
            (sequence,),
        )  # the row that told it changes
        db.execute(
            "UPDATE checkpoints SET parent_id = ?, run_id = ?, saved_at = ?, digest = ?, meta = ?, refs = ?, shape = ?,"
            f" first_part = ?, last_part = {_LAST_PART} WHERE sequence = ?",
            (*_values(row), first_part, sequence),
        )
        db.execute(
            "UPDATE sessions SET saved_at = max(saved_at, ?)"
            " WHERE number = (SELECT owner FROM checkpoints WHERE sequence = ?)",
            (row.saved_at, sequence),
        )
        self._sweep(db, row.family)
        return sequence

    # deleting

    def delete(self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = ()) -> int:
        with self._pool.transaction() as db:
            if not all(is_still(self._session(db, each.session), each) for each in if_are):
                raise Stale
            count, families = 0, set()
            for place in places:
                session, namespace, checkpoint_id = map(escape, place)
                db.execute(
                    "DELETE FROM writes WHERE tenant = ? AND session = ? AND namespace = ? AND checkpoint_id = ?",
                    (self._key, session, namespace, checkpoint_id),
                )
                known = db.execute(_NUMBER, (self._key, session)).fetchone()
                if known is None:
                    continue
                self._note(db, known[0])
                gone = db.execute(
                    "DELETE FROM checkpoints WHERE owner = ? AND namespace = ? AND checkpoint_id = ?",
                    (known[0], namespace, checkpoint_id),
                ).rowcount
                if gone:
                    families.add(known[1])
                    count += 1
            for family in families:
                self._sweep(db, family)
        self._shrink(count)
        return count

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        key = escape(session)
        with self._pool.transaction() as db:
            if if_is is not None and not is_still(self._session(db, session), if_is):
                return 0
            known = db.execute(_NUMBER, (self._key, key)).fetchone()
            db.execute("DELETE FROM writes WHERE tenant = ? AND session = ?", (self._key, key))
            if known is None:
                return 0
            self._note(db, known[0])
            count = db.execute("DELETE FROM checkpoints WHERE owner = ?", (known[0],)).rowcount
            if tombstone:
                db.execute("UPDATE sessions SET deleted = 1 WHERE number = ?", (known[0],))
            else:
                db.execute("DELETE FROM sessions WHERE number = ?", (known[0],))
            self._sweep(db, known[1])
        self._shrink(count)
        return count

    @staticmethod
    def _note(db: sqlite3.Connection, number: int) -> None:
        """Write down what is told by rows that are about to go: numbers are never given again (P10)."""
        db.execute(f"UPDATE numbers SET greatest = max(greatest, {_GREATEST})")
        db.execute(f"UPDATE sessions AS s SET latest = {LATEST}, saved_at = {SAVED_AT} WHERE number = ?", (number,))

    def _sweep(self, db: sqlite3.Connection, family: int) -> None:
        """Remove the parts of a family that no row needs."""
        of_family = "tenant = ? AND family = ?"
        values = (self._key, family)
        roots = db.execute(
            f"SELECT refs FROM checkpoints WHERE owner IN (SELECT number FROM sessions WHERE {of_family})", values
        )
        groups = db.execute(f"SELECT name, refs FROM parts WHERE {of_family} AND refs != x''", values)
        live = live_names((row[0] for row in roots), dict(groups.fetchall()))
        names = db.execute(f"SELECT name FROM parts WHERE {of_family}", values).fetchall()
        db.executemany(
            "DELETE FROM parts WHERE tenant = ? AND family = ? AND name = ?",
            [(self._key, family, name) for (name,) in names if name not in live],
        )

    def _shrink(self, count: int) -> None:
        """Give free pages back to the disk; that it fails harms nothing, they are used again."""
        if count:
            with contextlib.suppress(Unavailable), self._pool.reading() as db:
                db.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page

    def reopen(self, session: str) -> bool:
        with self._pool.transaction() as db:
            return self._reopen(db, session)

    def _reopen(self, db: sqlite3.Connection, session: str) -> bool:
        gone = db.execute(
            "DELETE FROM sessions WHERE tenant = ? AND session = ? AND deleted", (self._key, escape(session))
        )
        return gone.rowcount > 0

    def bury(self, session: str) -> bool:
        with self._pool.transaction() as db:
            added = db.execute(
                "INSERT OR IGNORE INTO sessions (tenant, session, family, latest, saved_at, deleted)"
                " VALUES (?, ?, 0, 0, 0, 1)",
                (self._key, escape(session)),
            )
            return added.rowcount > 0

    def clear(self) -> None:
        with self._pool.transaction() as db:
            db.execute(f"UPDATE numbers SET greatest = max(greatest, {_GREATEST})")
            owned = "SELECT number FROM sessions WHERE tenant = ?"
            db.execute(f"DELETE FROM checkpoints WHERE owner IN ({owned})", (self._key,))
            for table in ("sessions", "parts", "writes"):
                db.execute(f"DELETE FROM {table} WHERE tenant = ?", (self._key,))
        self._shrink(1)

    # writes

    def add_writes(
        self, place: Place, writes: Sequence[WriteRow], *, replace: bool, patience_seconds: float = 0.0
    ) -> None:
        rows = self._write_values(place, writes)

        def apply(db: sqlite3.Connection) -> None:
            if db.execute(_IS_DELETED, (self._key, escape(place.session))).fetchone():
                raise conflicts.deleted(place.session)
            db.executemany(_REPLACE_WRITE if replace else _ADD_WRITE, rows)

        if patience_seconds and self._pool.offer(apply, patience_seconds):
            return
        with self._pool.transaction() as db:
            apply(db)

    def _write_values(self, place: Place, writes: Sequence[WriteRow]) -> list[tuple[Any, ...]]:
        """What is written of writes."""
        where = (self._key, *map(escape, place))
        return [
            (*where, escape(write.task_id), write.idx, escape(write.task_path), escape(write.channel), write.data)
            for write in writes
        ]


def _values(row: Row) -> tuple[Any, ...]:
    """What is written of a row besides its place."""
    names = (None if name is None else escape(name) for name in (row.parent_id, row.run_id))
    return (*names, row.saved_at, row.digest, row.meta, row.refs, row.shape)
