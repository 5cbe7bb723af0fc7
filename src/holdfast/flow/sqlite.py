"""States in one SQLite file.

A commit is one SQLite transaction: whatever kills the process, the file contains the state before or after (P3). Parts
are inserted before their row, in that transaction; those of the base exist because the transaction looks the base up.
With `synchronous=FULL` (the default) a commit survives a power loss; with `NORMAL` the last few commits may be lost,
each as a whole.

Small parts share a row, a **pack** of up to a page: a first load of a long session reads few rows. A pack is written in
the transaction of the commit that adds to it, and without a part in the one that frees the part.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast.durable.sqlite import DatabaseFile, Layout, Pool, Upgrade, split_statements
from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.flow import store
from holdfast.flow.packs import (
    ENTRY_BYTES,
    HEADER_BYTES,
    PACK_NAME_BYTES,
    encode_pack,
    is_pack,
    pack_bytes,
    readable,
    unpacked,
)
from holdfast.flow.store import (
    ANYTHING,
    NAME_BYTES,
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
from holdfast.flow.validation import check_name, escape, unescape

_VERSION = 3
_APPLICATION = 0x486F6C64  # "Hold"
_LOG_PAGES = {"NORMAL": 1000, "FULL": 128, "EXTRA": 128}
"""How long the log may get: where each commit is synced, a short one, soon overwritten, is several times as fast."""
_ROW = (
    "s.session, c.namespace, c.checkpoint_id, c.sequence, c.parent_id, c.run_id, c.saved_at, c.digest, c.meta,"
    " s.family, c.first_part, c.last_part"
)
_FROM = "FROM checkpoints c JOIN sessions s ON s.number = c.owner WHERE s.tenant = ?"
_FROM_NEWEST = _FROM.replace("JOIN", "CROSS JOIN", 1)
"""The same, read by number from the greatest down: SQLite does not reorder a CROSS JOIN."""
_LATEST = "max(s.latest, ifnull((SELECT max(sequence) FROM checkpoints WHERE owner = s.number), 0))"
_SAVED_AT = "max(s.saved_at, ifnull((SELECT max(saved_at) FROM checkpoints WHERE owner = s.number), 0))"
_COLUMNS = (
    f"s.session, s.family, {_LATEST} AS newest, (SELECT count(*) FROM checkpoints WHERE owner = s.number),"
    f" {_SAVED_AT}, s.deleted FROM sessions s"
)
_SESSION = f"SELECT {_COLUMNS} WHERE s.tenant = ? AND s.session = ?"
_SESSIONS = f"""
SELECT {_COLUMNS} WHERE s.number IN (
    SELECT s.number FROM sessions s WHERE s.tenant = ? AND NOT s.deleted AND {_LATEST} < ?
    ORDER BY {_LATEST} DESC LIMIT ?
) ORDER BY newest DESC
"""
"""Counts only the rows of sessions that are listed."""
_PACK_BYTES = 8100
"""A row of this size fills a page: to add to it writes one page, as adding a row does."""
_LARGE_BYTES = 4096
"""Larger parts have a row of their own."""
_IS_PACK = f"length(name) = {PACK_NAME_BYTES}"
_PART_BYTES = f"ifnull(sum(length(refs) + length(data) - {HEADER_BYTES} * ({_IS_PACK})), 0)"
_SIZE = f"""
SELECT s.session,
    (SELECT ifnull(sum(length(meta) + length(refs) + length(shape)), 0) FROM checkpoints WHERE owner = s.number)
    + (SELECT ifnull(sum(length(data)), 0) FROM writes w WHERE w.tenant = s.tenant AND w.session = s.session),
    s.family,
    (SELECT {_PART_BYTES} FROM parts p WHERE p.family = s.family AND p.tenant = s.tenant)
    - {ENTRY_BYTES} * (SELECT count(*) FROM packed k WHERE k.family = s.family AND k.tenant = s.tenant),
    (SELECT count(*) FROM sessions o WHERE o.family = s.family AND o.tenant = s.tenant
        AND EXISTS (SELECT 1 FROM checkpoints WHERE owner = o.number))
FROM sessions s WHERE s.tenant = ? AND s.session = ? AND NOT s.deleted
"""
_DENSE = 2
_DENSE_PACKS = 0.5
"""How many rows there may be between the first and the last of a state, for each of its parts, to read all of them."""
_MANY = 500
"""Values in one query: older SQLite takes up to 999."""

_LAST_PART = "(SELECT ifnull(max(number), 0) FROM parts)"
_GREATEST = "(SELECT ifnull(max(sequence), 0) FROM checkpoints)"
_KNOWN = f"""
SELECT s.number, s.family, s.deleted, c.sequence, c.digest,
    CASE WHEN :base IS NULL THEN {_LAST_PART} + 1 ELSE b.first_part END, b.last_part, p.name, p.refs, p.data
FROM (SELECT 1) LEFT JOIN sessions s ON s.tenant = :tenant AND s.session = :session
    LEFT JOIN checkpoints c ON c.owner = s.number AND c.namespace = :namespace AND c.checkpoint_id = :checkpoint_id
    LEFT JOIN checkpoints b ON b.sequence = :base AND b.digest = :base_digest
        AND EXISTS (SELECT 1 FROM sessions t WHERE t.number = b.owner AND t.tenant = :tenant)
    LEFT JOIN parts p ON p.number = b.last_part AND p.family = :family AND p.tenant = :tenant
        AND length(p.name) = {PACK_NAME_BYTES}
"""
"""All that a commit must know: the session, the row at its place, where the parts of its base begin (without one: new
parts), which is NULL if the base has changed, and end; and the last pack of the base, if that is one."""
_ADD_PART = "INSERT OR IGNORE INTO parts (tenant, family, name, refs, data) VALUES (?, ?, ?, ?, ?)"
_ADD_PACK = f"INSERT INTO parts (tenant, family, name, refs, data) VALUES (?, ?, randomblob({PACK_NAME_BYTES}), x'', ?)"
_ADD_NAME = "INSERT OR REPLACE INTO packed (tenant, family, name, pack) VALUES (?, ?, ?, ?)"
_ADD_ROW = (
    "INSERT INTO checkpoints (sequence, owner, namespace, checkpoint_id, parent_id, run_id, saved_at, digest, meta,"
    f" refs, shape, first_part, last_part) VALUES ((SELECT max({_GREATEST}, greatest) + 1 FROM numbers),"
    f" ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ifnull(?, {_LAST_PART}))"
)
_NUMBER = "SELECT number, family FROM sessions WHERE tenant = ? AND session = ?"
_IS_KNOWN = "SELECT 1 FROM sessions WHERE tenant = ? AND session = ?"
_REFUSES_WRITES = f"{_IS_KNOWN} AND (deleted OR family <> ?)"  # nothing differs from NULL
_ADD_WRITE = "INSERT OR IGNORE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REPLACE_WRITE = "INSERT OR REPLACE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class SQLiteStore:
    """One tenant of one file."""

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
            raise Refused(f"invalid synchronous {synchronous!r}", hint="Use FULL, NORMAL or EXTRA.")
        layout = _layout(str(path), synchronous.upper())
        self._pool = Pool(DatabaseFile(os.path.expanduser(path), layout, timeout_s=timeout, create=create))
        with self._pool.reading():
            pass  # opens the file, so that an error is raised now

    @property
    def tenant(self) -> str:
        return self._tenant

    # committing

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
        with self._pool.transaction() as db:
            return self._commit(db, row, parts, base, expected_parent, replace=replace, reopen=reopen)

    def _commit(
        self,
        db: sqlite3.Connection,
        row: CheckpointRow,
        parts: Sequence[StatePart],
        base: Base | None,
        expected_parent: str | Anything | None = ANYTHING,
        *,
        replace: bool = False,
        reopen: bool = False,
    ) -> int:
        session, namespace, checkpoint_id = place = Place(*map(escape, row.place))
        base_sequence, base_digest = base or (None, None)
        names = {
            "tenant": self._key, "session": session, "namespace": namespace, "checkpoint_id": checkpoint_id,
            "base": base_sequence, "base_digest": base_digest, "family": row.family,
        }  # fmt: skip
        found = db.execute(_KNOWN, names).fetchone()
        number, family, is_deleted, sequence, digest, first_part, last_part = found[:7]
        if sequence is not None and digest == row.digest:
            return int(sequence)
        if is_deleted and reopen and family != row.family:
            self._reopen(db, row.place.session)
            number = family = is_deleted = None
        store.check_commit(
            row,
            is_deleted=bool(is_deleted),
            is_taken=sequence is not None and not replace,
            newest=None if isinstance(expected_parent, Anything) else self._newest(db, number, namespace),
            expected_parent=expected_parent,
        )
        if first_part is None or family not in (None, row.family):
            raise Stale
        if parts:
            last_part = self._add_parts(db, row.family, parts, last_part, found[7:])
        if sequence is not None:
            return self._replace_row(db, sequence, row, (first_part, last_part))
        if number is None:
            number = self._add_session(db, session, row)
        added = db.execute(_ADD_ROW, (number, *place[1:], *_values(row), first_part, last_part))
        return int(added.lastrowid or 0)

    def _add_parts(
        self, db: sqlite3.Connection, family: int, parts: Sequence[StatePart], last: int | None, pack: PartRow
    ) -> int | None:
        """Add the parts that the family does not have; return the last pack, to which the next commit can add.

        `pack`: the row of `last`, or None in each column.
        """
        known = self._stored(db, family, [part.name for part in parts])
        fresh = [part for part in parts if part.name not in known]
        large = [part for part in fresh if not _is_small(part)]
        if large:
            db.executemany(_ADD_PART, [(self._key, family, *part) for part in large])
        return self._add_to_packs(db, family, [part for part in fresh if _is_small(part)], last, pack)

    def _stored(self, db: sqlite3.Connection, family: int, names: Sequence[bytes]) -> set[bytes]:
        """Those of these parts that the family has."""
        found: set[bytes] = set()
        for some, marks in _batches(names):
            found.update(
                name
                for (name,) in db.execute(
                    f"SELECT name FROM parts WHERE family = ? AND name IN ({marks}) AND tenant = ? UNION ALL"
                    f" SELECT k.name FROM packed k JOIN parts p ON p.number = k.pack AND p.family = k.family"
                    f" WHERE k.family = ? AND k.name IN ({marks}) AND k.tenant = ?",
                    (family, *some, self._key) * 2,
                )
            )
        return found

    def _add_to_packs(
        self, db: sqlite3.Connection, family: int, parts: Sequence[StatePart], last: int | None, pack: PartRow
    ) -> int | None:
        held = (readable(pack) or []) if parts and is_pack(pack) else []
        number, size = last if held else None, pack_bytes(held)
        fresh: list[bytes] = []
        for part in parts:
            if held and size + pack_bytes([part]) > _PACK_BYTES:
                self._write_pack(db, family, number, held, fresh)
                number, held, fresh, size = None, [], [], 0
            held.append(part)
            fresh.append(part.name)
            size += pack_bytes([part])
        return self._write_pack(db, family, number, held, fresh) if fresh else last

    def _write_pack(
        self, db: sqlite3.Connection, family: int, number: int | None, held: Sequence[PartRow], fresh: Sequence[bytes]
    ) -> int:
        """Write a pack, in place or as a new row, and where its fresh parts are; return its number."""
        if number is None:
            number = int(db.execute(_ADD_PACK, (self._key, family, encode_pack(held))).lastrowid or 0)
        else:
            db.execute("UPDATE parts SET data = ? WHERE number = ?", (encode_pack(held), number))
        db.executemany(_ADD_NAME, [(self._key, family, name, number) for name in fresh])
        return number

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        with self._pool.transaction() as db:
            if reopen:
                self._reopen(db, session)
            if db.execute(_IS_KNOWN, (self._key, escape(session))).fetchone():
                raise store.session_exists(session)
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

    def _add_session(self, db: sqlite3.Connection, session: str, row: CheckpointRow) -> int:
        added = db.execute(
            "INSERT INTO sessions (tenant, session, family, latest, saved_at, deleted) VALUES (?, ?, ?, 0, 0, 0)",
            (self._key, session, row.family),
        )
        return int(added.lastrowid or 0)

    def _replace_row(
        self, db: sqlite3.Connection, sequence: int, row: CheckpointRow, hint: tuple[int, int | None]
    ) -> int:
        db.execute(
            f"UPDATE sessions AS s SET saved_at = {_SAVED_AT}"
            " WHERE number = (SELECT owner FROM checkpoints WHERE sequence = ?)",
            (sequence,),
        )  # before the row that has it changes
        db.execute(
            "UPDATE checkpoints SET parent_id = ?, run_id = ?, saved_at = ?, digest = ?, meta = ?, refs = ?, shape = ?,"
            f" first_part = ?, last_part = ifnull(?, {_LAST_PART}) WHERE sequence = ?",
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

    def delete(
        self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = (), families: Mapping[str, int] | None = None
    ) -> int:
        with self._pool.transaction() as db:
            if not all(is_still(self._session(db, each.session), each) for each in if_are):
                raise Stale
            count, freed = 0, set()
            for place in places:
                session, namespace, checkpoint_id = map(escape, place)
                known = db.execute(_NUMBER, (self._key, session)).fetchone()
                if known is not None and store.is_other_family(place.session, known[1], families):
                    continue
                db.execute(
                    "DELETE FROM writes WHERE tenant = ? AND session = ? AND namespace = ? AND checkpoint_id = ?",
                    (self._key, session, namespace, checkpoint_id),
                )
                if known is None:
                    continue
                self._note(db, known[0])
                gone = db.execute(
                    "DELETE FROM checkpoints WHERE owner = ? AND namespace = ? AND checkpoint_id = ?",
                    (known[0], namespace, checkpoint_id),
                ).rowcount
                if gone:
                    freed.add(known[1])
                    count += 1
            for family in freed:
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
        """Record what only the rows to be deleted say: numbers are never given again (P10)."""
        db.execute(f"UPDATE numbers SET greatest = max(greatest, {_GREATEST})")
        db.execute(f"UPDATE sessions AS s SET latest = {_LATEST}, saved_at = {_SAVED_AT} WHERE number = ?", (number,))

    def _sweep(self, db: sqlite3.Connection, family: int) -> None:
        """Remove the parts of a family that no row needs."""
        of_family = "tenant = ? AND family = ?"
        values = (self._key, family)
        roots = db.execute(
            f"SELECT refs FROM checkpoints WHERE owner IN (SELECT number FROM sessions WHERE {of_family})", values
        )
        packed = f"CASE WHEN {_IS_PACK} THEN data END"
        rows = db.execute(f"SELECT number, name, refs, {packed} FROM parts WHERE {of_family}", values).fetchall()
        packs = {number: readable(row) for number, *row in rows if is_pack(row)}
        single = {name: number for number, name, *_ in rows if number not in packs}
        groups = {name: refs for _, name, refs, _ in rows if name in single}
        groups |= {name: refs for parts in packs.values() for name, refs, _ in parts or ()}
        live = live_names((row[0] for row in roots), groups)
        gone = {number for name, number in single.items() if name not in live}
        is_lost = bool(live - groups.keys())
        for number, parts in packs.items():
            kept = [part for part in parts or () if part[0] in live]
            if not kept and not (parts is None and is_lost):  # what a damaged pack held cannot be known
                gone.add(number)
            elif len(kept) < len(parts or ()):
                db.execute("UPDATE parts SET data = ? WHERE number = ?", (encode_pack(kept), number))
        db.executemany("DELETE FROM parts WHERE number = ?", [(number,) for number in gone])
        names = db.execute(f"SELECT name FROM packed WHERE {of_family}", values).fetchall()
        db.executemany(
            f"DELETE FROM packed WHERE {of_family} AND name = ?",
            [(*values, name) for (name,) in names if name not in live],
        )

    def _shrink(self, count: int) -> None:
        """Give free pages back to the disk. It may fail: the pages are then reused."""
        if count:
            with contextlib.suppress(Unavailable), self._pool.reading() as db:
                db.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page

    def reopen(self, session: str, *, family: int | None = None, saved_at: int = 0) -> bool:
        with self._pool.transaction() as db:
            if family is None:
                return self._reopen(db, session)
            begun = db.execute(
                "UPDATE sessions SET family = ?, saved_at = ?, deleted = 0"
                " WHERE tenant = ? AND session = ? AND deleted",
                (family, saved_at, self._key, escape(session)),
            )
            return begun.rowcount > 0

    def _reopen(self, db: sqlite3.Connection, session: str) -> bool:
        gone = db.execute(
            "DELETE FROM sessions WHERE tenant = ? AND session = ? AND deleted", (self._key, escape(session))
        )
        return gone.rowcount > 0

    def add_tombstone(self, session: str) -> bool:
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
            for table in ("sessions", "parts", "packed", "writes"):
                db.execute(f"DELETE FROM {table} WHERE tenant = ?", (self._key,))
        self._shrink(1)

    # writes

    def add_writes(
        self,
        place: Place,
        writes: Sequence[WriteRow],
        *,
        replace: bool,
        family: int | None = None,
        max_wait_seconds: float = 0.0,
    ) -> None:
        rows = self._write_values(place, writes)

        def apply(db: sqlite3.Connection) -> None:
            if db.execute(_REFUSES_WRITES, (self._key, escape(place.session), family)).fetchone():
                raise store.session_deleted(place.session)
            db.executemany(_REPLACE_WRITE if replace else _ADD_WRITE, rows)

        if max_wait_seconds and self._pool.offer(apply, max_wait_seconds):
            return
        with self._pool.transaction() as db:
            apply(db)

    def _write_values(self, place: Place, writes: Sequence[WriteRow]) -> list[tuple[Any, ...]]:
        """Writes as values of their columns."""
        where = (self._key, *map(escape, place))
        return [
            (*where, escape(write.task_id), write.idx, escape(write.task_path), escape(write.channel), write.data)
            for write in writes
        ]

    # reading: one statement sees one state of the file, whatever others write meanwhile

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
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
    ) -> list[CheckpointRow]:
        columns = "c.refs, c.shape" if whole else "x'', x''"
        text = ""
        values: list[Any] = [self._key]
        # Of all sessions: by number. The plus keeps SQLite from using the index of names, and then sorting every row.
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
        """Whether no other tenant has sessions in this file; if one has, a query by number would read its rows, too."""
        some = "EXISTS (SELECT 1 FROM sessions WHERE tenant"
        found = db.execute(f"SELECT {some} < ?) OR {some} > ?)", (self._key, self._key))
        return not found.fetchone()[0]

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[CheckpointRow]:
        text = f"SELECT {_ROW}, x'', x'' {_FROM} AND s.session = ? AND c.namespace = ?"
        values: list[Any] = [self._key, escape(session), escape(namespace)]
        if before is not None:
            text += " AND c.checkpoint_id < ?"
            values.append(escape(before))
        with self._pool.reading() as db:
            text += " ORDER BY c.checkpoint_id DESC LIMIT ?"
            return [_row(each) for each in db.execute(text, [*values, -1 if limit is None else limit]).fetchall()]

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        """Parts of a session that was saved alone are next to each other: one range query reads them."""
        with self._pool.reading() as db:
            if not hint or not self._is_dense(db, hint, count):
                return self._named(db, "data", family, names)
            text = "SELECT name, refs, data FROM parts WHERE number BETWEEN ? AND ? AND family = ? AND tenant = ?"
            return db.execute(text, (*hint, family, self._key)).fetchall()

    @staticmethod
    def _is_dense(db: sqlite3.Connection, hint: Any, count: int) -> bool:
        """Whether most of the rows of a range are likely to be needed."""
        try:
            rows = hint[1] - hint[0] + 1
            if rows > _DENSE * count:
                return False
            found = db.execute(f"SELECT {_IS_PACK} FROM parts WHERE number = ?", hint[:1]).fetchone()
            return rows <= max(1, count * _DENSE_PACKS) if found and found[0] else True
        except TypeError:  # damaged, but only a hint
            return False

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = set(names)
        with self._pool.reading() as db:
            found = unpacked(self._named(db, "NULL", family, names))
        return {name: refs for name, refs, _ in found if name in wanted}

    def _named(self, db: sqlite3.Connection, data: str, family: int, names: Sequence[bytes]) -> list[PartRow]:
        """Rows that have these parts, some of them packs; `data`: what to read of parts that are in no pack."""
        found: list[PartRow] = []
        for some, marks in _batches(names):
            of_names = f"family = ? AND name IN ({marks}) AND tenant = ?"
            values = (family, *some, self._key)
            found += db.execute(f"SELECT name, refs, {data} FROM parts WHERE {of_names}", values)
            packs = f"SELECT pack FROM packed WHERE {of_names}"
            found += db.execute(
                f"SELECT name, refs, data FROM parts WHERE number IN ({packs}) AND family = ? AND tenant = ?",
                (*values, family, self._key),
            )
        return found

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
                f"SELECT ifnull(sum(NOT {_IS_PACK}), 0), {_PART_BYTES} FROM parts WHERE tenant = ?", (self._key,)
            ).fetchone()
            [packed] = db.execute("SELECT count(*) FROM packed WHERE tenant = ?", (self._key,)).fetchone()
            [writes] = db.execute(
                "SELECT ifnull(sum(length(data)), 0) FROM writes WHERE tenant = ?", (self._key,)
            ).fetchone()
            [given] = db.execute(
                "SELECT max(greatest, (SELECT ifnull(max(sequence), 0) FROM checkpoints)) FROM numbers"
            ).fetchone()
        part_bytes = max(0, part_bytes - ENTRY_BYTES * packed)
        return UsageRow(sessions - dead, dead, rows, parts + packed, part_bytes, row_bytes + writes, given)

    def tombstones(self) -> list[str]:
        with self._pool.reading() as db:
            found = db.execute("SELECT session FROM sessions WHERE tenant = ? AND deleted", (self._key,)).fetchall()
        return [unescape(name) for (name,) in found]

    def sizes(self, sessions: Sequence[str]) -> list[SizeRow]:
        with self._pool.reading() as db:
            found = [row for name in sessions for row in db.execute(_SIZE, (self._key, escape(name))).fetchall()]
        return [SizeRow(unescape(session), *more) for session, *more in found]

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


def _values(row: CheckpointRow) -> tuple[Any, ...]:
    """A row as values of its columns, without its place."""
    names = (None if name is None else escape(name) for name in (row.parent_id, row.run_id))
    return (*names, row.saved_at, row.digest, row.meta, row.refs, row.shape)


def _row(values: Sequence[Any]) -> CheckpointRow:
    session, namespace, checkpoint_id, sequence, parent, run, saved_at, digest, meta, family, first, last = values[:12]
    place = Place(unescape(session), unescape(namespace), unescape(checkpoint_id))
    parent, run = (None if name is None else unescape(name) for name in (parent, run))
    refs, shape = values[12:]
    return CheckpointRow(place, sequence, parent, run, saved_at, digest, meta, refs, shape, family, (first, last))


def _is_small(part: StatePart) -> bool:
    """Whether a part goes into a pack."""
    return len(part.name) == NAME_BYTES and len(part.refs) + len(part.data) <= _LARGE_BYTES


def _batches(names: Sequence[bytes]) -> Iterator[tuple[Sequence[bytes], str]]:
    """Names as SQLite takes them in one query, with as many question marks."""
    for at in range(0, len(names), _MANY):
        some = names[at : at + _MANY]
        yield some, ",".join("?" * len(some))


def _session(values: Sequence[Any]) -> SessionRow:
    session, family, latest, checkpoints, saved_at, is_deleted = values
    if not type(family) is type(latest) is type(saved_at) is int:
        raise Damaged(f"the row of session {session!r} is corrupt", hint="Delete it.")
    return SessionRow(unescape(session), family, latest, checkpoints, saved_at, bool(is_deleted))


def _write(values: Sequence[Any]) -> WriteRow:
    task_id, index, task_path, channel, data = values
    if type(index) is not int:
        raise Damaged("a stored write is corrupt", hint="Delete its checkpoint.")
    return WriteRow(unescape(task_id), index, unescape(task_path), unescape(channel), data)


def _within(number: int) -> int:
    """The nearest number that SQLite can store."""
    return max(min(number, (1 << 63) - 1), -(1 << 63))


def _layout(name: str, synchronous: str) -> Layout:
    return Layout(
        name,
        _VERSION,
        split_statements(_ROWS + _REST + _PACKED),
        _APPLICATION,
        # several messages of 1 KB to a page, with little space lost; deleting gives space back
        pragmas=("PRAGMA page_size=8192", "PRAGMA auto_vacuum=INCREMENTAL"),
        connection_pragmas=(
            f"PRAGMA synchronous={synchronous}",
            f"PRAGMA wal_autocheckpoint={_LOG_PAGES[synchronous]}",
        ),
        if_old="Open it with a newer Holdfast.",
        upgrade=Upgrade(_APPLICATION, 1, _upgrade, later=frozenset({2})),
    )


def _upgrade(db: sqlite3.Connection) -> None:
    [version] = db.execute("PRAGMA user_version").fetchone()
    for statement in split_statements((_FROM_1 + _ROWS + _INTO_2 if version == 1 else "") + _PACKED):
        db.execute(statement)


# The tables. The cost of a commit is the number of pages that it changes: a session's newest row, and how many rows it
# has, are found in the index `newest`, and the greatest number ever given is written to `numbers` only when rows are
# deleted.

_ROWS = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, session TEXT NOT NULL, family INTEGER NOT NULL,
    latest INTEGER NOT NULL, saved_at INTEGER NOT NULL, deleted INTEGER NOT NULL, UNIQUE (tenant, session)
);
CREATE INDEX families ON sessions (family, tenant);
CREATE TABLE checkpoints (
    sequence INTEGER PRIMARY KEY, owner INTEGER NOT NULL, namespace TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL, parent_id TEXT, run_id TEXT, saved_at INTEGER NOT NULL, digest BLOB NOT NULL,
    meta BLOB NOT NULL, refs BLOB NOT NULL, shape BLOB NOT NULL,
    first_part INTEGER NOT NULL, last_part INTEGER NOT NULL,
    UNIQUE (owner, namespace, checkpoint_id)
);
CREATE INDEX newest ON checkpoints (owner, sequence);
CREATE INDEX runs ON checkpoints (run_id) WHERE run_id IS NOT NULL;
CREATE TABLE numbers (greatest INTEGER NOT NULL);
INSERT INTO numbers VALUES (0);
"""
_REST = """
CREATE TABLE parts (
    number INTEGER PRIMARY KEY, tenant TEXT NOT NULL, family INTEGER NOT NULL, name BLOB NOT NULL, refs BLOB NOT NULL,
    data BLOB NOT NULL
);
CREATE UNIQUE INDEX part_names ON parts (family, name, tenant);
CREATE TABLE writes (
    tenant TEXT NOT NULL, session TEXT NOT NULL, namespace TEXT NOT NULL, checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, idx INTEGER NOT NULL, task_path TEXT NOT NULL, channel TEXT NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX write_places ON writes (tenant, session, namespace, checkpoint_id, task_id, idx);
"""
_PACKED = """
CREATE TABLE packed (
    family INTEGER NOT NULL, name BLOB NOT NULL, tenant TEXT NOT NULL, pack INTEGER NOT NULL,
    PRIMARY KEY (family, name, tenant)
) WITHOUT ROWID;
"""
_FROM_1 = """
DROP INDEX families;
DROP INDEX newest;
DROP INDEX runs;
ALTER TABLE sessions RENAME TO old_sessions;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
"""
_INTO_2 = """
INSERT INTO sessions SELECT number, tenant, session, family, latest, saved_at, deleted FROM old_sessions;
INSERT INTO checkpoints SELECT * FROM old_checkpoints;
UPDATE numbers SET greatest = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'old_checkpoints'), 0);
DROP TABLE old_sessions;
DROP TABLE old_checkpoints;
"""
