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
from holdfast.flow.sqlite_reading import SQLiteReader
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    Part,
    Place,
    Row,
    SessionRow,
    Stale,
    WriteRow,
    live_names,
)


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
        place = Place(*map(escape, row.place))
        with self._pool.transaction() as db:
            known = db.execute(
                "SELECT number, family, deleted FROM sessions WHERE tenant = ? AND session = ?",
                (self._key, place.session),
            ).fetchone()
            number, family, is_deleted = known or (None, row.family, 0)
            there = self._at(db, number, place)
            if there is not None and there[1] == row.digest:
                return int(there[0])
            conflicts.check(
                row,
                is_deleted=bool(is_deleted),
                is_taken=there is not None and not replace,
                newest=None if isinstance(expected_parent, Anything) else self._newest(db, number, place.namespace),
                expected_parent=expected_parent,
            )
            first = self._first_part(db, base)
            if family != row.family or first is None:
                raise Stale
            hint = first, self._add_parts(db, parts, family)
            if there is not None:
                return self._replace_row(db, int(there[0]), row, hint)
            if number is None:
                number = self._add_session(db, place.session, row)
            return self._add_row(db, number, place, row, hint)

    @staticmethod
    def _at(db: sqlite3.Connection, number: int | None, place: Place) -> Any:
        if number is None:
            return None
        return db.execute(
            "SELECT sequence, digest FROM checkpoints WHERE owner = ? AND namespace = ? AND checkpoint_id = ?",
            (number, place.namespace, place.checkpoint_id),
        ).fetchone()

    @staticmethod
    def _newest(db: sqlite3.Connection, number: int | None, namespace: str) -> str | None:
        found = db.execute(
            "SELECT checkpoint_id FROM checkpoints INDEXED BY newest WHERE owner = ? AND namespace = ?"
            " ORDER BY sequence DESC LIMIT 1",
            (number, namespace),
        ).fetchone()
        return unescape(found[0]) if found else None

    def _first_part(self, db: sqlite3.Connection, base: Base | None) -> int | None:
        """Where the parts of a base begin, or else those that come next; None if the base is not there as it was."""
        if base is None:
            return self._last_part(db) + 1
        found = db.execute(
            "SELECT c.first_part FROM checkpoints c JOIN sessions s ON s.number = c.owner"
            " WHERE c.sequence = ? AND c.digest = ? AND s.tenant = ?",
            (*base, self._key),
        ).fetchone()
        return int(found[0]) if found else None

    @staticmethod
    def _last_part(db: sqlite3.Connection) -> int:
        return int(db.execute("SELECT ifnull(max(number), 0) FROM parts").fetchone()[0])

    def _add_parts(self, db: sqlite3.Connection, parts: Sequence[Part], family: int) -> int:
        """Add those that are not there; where they end."""
        db.executemany(
            "INSERT OR IGNORE INTO parts (tenant, family, name, refs, data) VALUES (?, ?, ?, ?, ?)",
            [(self._key, family, *part) for part in parts],
        )
        return self._last_part(db)

    def _add_session(self, db: sqlite3.Connection, session: str, row: Row) -> int:
        added = db.execute(
            "INSERT INTO sessions (tenant, session, family, latest, checkpoints, saved_at, deleted)"
            " VALUES (?, ?, ?, 0, 0, 0, 0)",
            (self._key, session, row.family),
        )
        return int(added.lastrowid or 0)

    @staticmethod
    def _add_row(db: sqlite3.Connection, number: int, place: Place, row: Row, hint: tuple[int, int]) -> int:
        added = db.execute(
            "INSERT INTO checkpoints (owner, namespace, checkpoint_id, parent_id, run_id, saved_at, digest, meta, refs,"
            " shape, first_part, last_part) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, place.namespace, place.checkpoint_id, *_values(row), *hint),
        )
        db.execute(
            "UPDATE sessions SET latest = ?, checkpoints = checkpoints + 1, saved_at = max(saved_at, ?)"
            " WHERE number = ?",
            (added.lastrowid, row.saved_at, number),
        )
        return int(added.lastrowid or 0)

    def _replace_row(self, db: sqlite3.Connection, sequence: int, row: Row, hint: tuple[int, int]) -> int:
        db.execute(
            "UPDATE checkpoints SET parent_id = ?, run_id = ?, saved_at = ?, digest = ?, meta = ?, refs = ?, shape = ?,"
            " first_part = ?, last_part = ? WHERE sequence = ?",
            (*_values(row), *hint, sequence),
        )
        db.execute(
            "UPDATE sessions SET saved_at = max(saved_at, ?)"
            " WHERE number = (SELECT owner FROM checkpoints WHERE sequence = ?)",
            (row.saved_at, sequence),
        )
        self._sweep(db, row.family)
        return sequence

    # deleting

    def delete(self, places: Iterable[Place]) -> int:
        with self._pool.transaction() as db:
            count, families = 0, set()
            for place in places:
                session, namespace, checkpoint_id = map(escape, place)
                db.execute(
                    "DELETE FROM writes WHERE tenant = ? AND session = ? AND namespace = ? AND checkpoint_id = ?",
                    (self._key, session, namespace, checkpoint_id),
                )
                known = db.execute(
                    "SELECT number, family FROM sessions WHERE tenant = ? AND session = ?", (self._key, session)
                ).fetchone()
                if known is None:
                    continue
                gone = db.execute(
                    "DELETE FROM checkpoints WHERE owner = ? AND namespace = ? AND checkpoint_id = ?",
                    (known[0], namespace, checkpoint_id),
                ).rowcount
                if gone:
                    db.execute("UPDATE sessions SET checkpoints = checkpoints - 1 WHERE number = ?", (known[0],))
                    families.add(known[1])
                    count += 1
            for family in families:
                self._sweep(db, family)
        self._shrink(count)
        return count

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        key = escape(session)
        with self._pool.transaction() as db:
            known = db.execute(
                "SELECT number, family, latest, saved_at, deleted FROM sessions WHERE tenant = ? AND session = ?",
                (self._key, key),
            ).fetchone()
            if if_is is not None and (known is None or known[2:] != (if_is.latest, if_is.saved_at, 0)):
                return 0
            db.execute("DELETE FROM writes WHERE tenant = ? AND session = ?", (self._key, key))
            if known is None:
                return 0
            count = db.execute("DELETE FROM checkpoints WHERE owner = ?", (known[0],)).rowcount
            if tombstone:
                db.execute("UPDATE sessions SET deleted = 1, checkpoints = 0 WHERE number = ?", (known[0],))
            else:
                db.execute("DELETE FROM sessions WHERE number = ?", (known[0],))
            self._sweep(db, known[1])
        self._shrink(count)
        return count

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
            gone = db.execute(
                "DELETE FROM sessions WHERE tenant = ? AND session = ? AND deleted", (self._key, escape(session))
            )
            return gone.rowcount > 0

    def bury(self, session: str) -> bool:
        with self._pool.transaction() as db:
            added = db.execute(
                "INSERT OR IGNORE INTO sessions (tenant, session, family, latest, checkpoints, saved_at, deleted)"
                " VALUES (?, ?, 0, 0, 0, 0, 1)",
                (self._key, escape(session)),
            )
            return added.rowcount > 0

    def clear(self) -> None:
        with self._pool.transaction() as db:
            owned = "SELECT number FROM sessions WHERE tenant = ?"
            db.execute(f"DELETE FROM checkpoints WHERE owner IN ({owned})", (self._key,))
            for table in ("sessions", "parts", "writes"):
                db.execute(f"DELETE FROM {table} WHERE tenant = ?", (self._key,))
        self._shrink(1)

    # writes

    def add_writes(self, place: Place, writes: Sequence[WriteRow], *, replace: bool) -> None:
        session, namespace, checkpoint_id = map(escape, place)
        with self._pool.transaction() as db:
            dead = db.execute(
                "SELECT 1 FROM sessions WHERE tenant = ? AND session = ? AND deleted", (self._key, session)
            ).fetchone()
            if dead:
                raise conflicts.deleted(place.session)
            db.executemany(
                f"INSERT OR {'REPLACE' if replace else 'IGNORE'} INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (self._key, session, namespace, checkpoint_id, escape(write.task_id), write.idx,
                     escape(write.task_path), escape(write.channel), write.data)
                    for write in writes
                ],
            )  # fmt: skip


def _values(row: Row) -> tuple[Any, ...]:
    """What is written of a row besides its place."""
    names = (None if name is None else escape(name) for name in (row.parent_id, row.run_id))
    return (*names, row.saved_at, row.digest, row.meta, row.refs, row.shape)
