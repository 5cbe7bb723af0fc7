"""States in PostgreSQL, shared by any number of workers on any number of machines.

Every change is one call of an SQL function (at the end of this file), or one transaction: complete or absent, whatever
happens to the client (P3). A connection that breaks is replaced and the call made again, with the same result as one
call. (The number of deleted rows may then be too small: the first call deleted them, and its answer was lost.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import psycopg
from psycopg import sql

from holdfast.durable.postgres import EXISTING_TABLES, ConnectionPool, check_schema_name, creating_tables
from holdfast.errors import NotFound, Refused, Unavailable
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
)
from holdfast.flow.validation import check_name, escape, unescape

T = TypeVar("T")
_VERSION = 1
_LOCK = 0x486F6C6466617374  # of PostgreSQL: taken while the tables are created
_ROW = "session, namespace, checkpoint_id, sequence, parent_id, run_id, saved_at, digest, meta"
_SESSION = "session, family, latest, checkpoints, saved_at, deleted"
_ONE_SESSION = f"SELECT {_SESSION} FROM {{schema}}.sessions WHERE tenant = %s AND session = %s"
_REOPEN = "DELETE FROM {schema}.sessions WHERE tenant = %(tenant)s AND session = %(session)s AND deleted RETURNING 1"
_REOPEN_AS = """
UPDATE {schema}.sessions SET family = %(family)s, saved_at = %(saved_at)s, deleted = false
WHERE tenant = %(tenant)s AND session = %(session)s AND deleted AND family <> %(family)s RETURNING 1
"""
_COMMIT_ROW = (
    "SELECT * FROM {schema}.commit_row(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
    " %b::bytea[], %b::bytea[], %b::bytea[], %s, %s, %s, %s, %s)"
)
_ADD_SESSION = "INSERT INTO {schema}.sessions VALUES (%s, %s, %s, 0, 0, 0, %s) ON CONFLICT DO NOTHING RETURNING 1"


class PostgresStore:
    """One tenant of one schema."""

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "",
        schema: str = "holdfast",
        pool_size: int = 16,
        timeout: float = 30.0,
        prepare: bool = False,
        create: bool = True,
    ) -> None:
        """`create=False`: NotFound if nothing is there.

        `prepare`: use prepared statements, which a pooler in transaction mode may not support.

        `timeout`: how many seconds a call waits for a connection, and for a network that does not answer; options in
        the URL take precedence (`connect_timeout`, `tcp_user_timeout`, `keepalives_idle` …).
        """
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._key = escape(tenant)
        self._schema_name = check_schema_name(schema)
        if "$$" in schema:  # ends the text of a function: what follows would be run
            raise Refused(f"invalid schema name {schema!r}", hint="Give a name without $$.")
        self._queries: dict[str, bytes] = {}
        self._is_strict = False
        self._pool = ConnectionPool(url, size=pool_size, timeout_s=timeout, prepare=prepare)
        try:
            self._make_tables(create=create)
        except BaseException:
            self.close()
            raise

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
        names, refs, datas = zip(*parts, strict=True) if parts else ((), (), ())
        compare = not isinstance(expected_parent, Anything)
        expected = expected_parent if isinstance(expected_parent, str) else None
        values = (
            self._key, *map(escape, row.place), _escaped(row.parent_id), _escaped(row.run_id), row.saved_at, row.family,
            row.digest, row.meta, row.refs, row.shape, list(names), list(refs), list(datas),
            base.sequence if base else None, base.digest if base else b"", compare, _escaped(expected), replace,
        )  # fmt: skip
        tombstone = {"tenant": self._key, "session": escape(row.place.session), "family": row.family, "saved_at": 0}
        status, number, newest = self._do(lambda cursor: self._commit(cursor, values, tombstone if reopen else None))
        if status == "stale":
            raise Stale
        store.check_commit(
            row,
            is_deleted=status == "deleted",
            is_taken=status == "taken",
            newest=_unescaped(newest),
            expected_parent=expected_parent if status == "moved" else ANYTHING,
        )
        return int(number)

    def _commit(
        self, cursor: psycopg.Cursor[Any], values: tuple[Any, ...], tombstone: dict[str, Any] | None
    ) -> tuple[str, int, str | None]:
        """Commit a row; with `tombstone`, in one transaction with the removal of the tombstone that is in its way."""
        with self._pool.transaction(cursor.connection) if tombstone else contextlib.nullcontext():
            if tombstone:
                lock = "SELECT {schema}.lock_family(%s, %s, false)"
                cursor.execute(self._query(lock), (self._key, tombstone["family"]))
                cursor.execute(self._query(_REOPEN_AS), tombstone)
            found: tuple[str, int, str | None] = cursor.execute(self._query(_COMMIT_ROW), values).fetchall()[0]
            if tombstone and found[0] != "saved":
                raise psycopg.Rollback  # of this block only: the tombstone stays
        return found

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        done = self._do(lambda cursor: self._begin(cursor, escape(session), copies, reopen=reopen))
        if done is None:
            raise store.session_exists(session)
        if any(status != "saved" for status, _ in done):
            raise Stale
        return [number for _, number in done]

    def _begin(
        self, cursor: psycopg.Cursor[Any], session: str, copies: Sequence[Copy], *, reopen: bool
    ) -> list[tuple[str, int]] | None:
        """The status of each row; if one is not saved, all are rolled back. None if the session exists."""
        done: list[tuple[str, int]] = []
        family = copies[0].row.family
        with self._pool.transaction(cursor.connection):
            cursor.execute(self._query("SELECT {schema}.lock_family(%s, %s, false)"), (self._key, family))
            if reopen:
                cursor.execute(self._query(_REOPEN), {"tenant": self._key, "session": session})
            if not cursor.execute(self._query(_ADD_SESSION), (self._key, session, family, False)).fetchone():
                return None
            cursor.execute(self._query(_ADD_ROWS), (*_columns(copies), self._key, session, family))
            done = cursor.fetchall()
            if any(status != "saved" for status, _ in done):
                raise psycopg.Rollback
            cursor.execute(self._query(_ADD_WRITES), (self._key, session, *_write_columns(copies)))
        return done

    # deleting

    def delete(
        self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = (), families: Mapping[str, int] | None = None
    ) -> int:
        rows = [(*map(escape, place),) for place in places]
        wanted = {escape(session): family for session, family in (families or {}).items()}
        gone = self._do(lambda cursor: self._delete(cursor, rows, if_are, wanted))
        if gone is None:
            raise Stale
        return gone

    def _delete(
        self,
        cursor: psycopg.Cursor[Any],
        rows: list[tuple[str, ...]],
        if_are: Sequence[SessionRow],
        wanted: Mapping[str, int],
    ) -> int | None:
        """None if something was saved into a session: checked under the locks, when no one else can save."""
        with self._pool.transaction(cursor.connection) if if_are or wanted else contextlib.nullcontext():
            if if_are or wanted:
                names = [*(row[0] for row in rows), *(escape(each.session) for each in if_are)]
                values = (self._key, self._key, names, list(wanted.values()))
                cursor.execute(self._query(_LOCK_FAMILIES), values)
            if wanted:
                known = dict(cursor.execute(self._query(_FAMILIES), (self._key, list(wanted))).fetchall())
                rows = [row for row in rows if row[0] not in wanted or known.get(row[0]) == wanted[row[0]]]
            for each in if_are:
                found = cursor.execute(self._query(_ONE_SESSION), (self._key, escape(each.session))).fetchall()
                if not is_still(next(map(_session_row, found), None), each):
                    return None
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            cursor.execute(self._query("SELECT {schema}.delete_rows(%s, %s, %s, %s)"), (self._key, *columns))
            return int(cursor.fetchall()[0][0])

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        text = "SELECT {schema}.delete_session(%s, %s, %s, %s, %s)"
        latest, saved_at = (if_is.latest, if_is.saved_at) if if_is else (None, None)
        [(count,)] = self._run(text, self._key, escape(session), tombstone, latest, saved_at)
        return int(count)

    def reopen(self, session: str, *, family: int | None = None, saved_at: int = 0) -> bool:
        own = {"tenant": self._key, "session": escape(session)}
        begun = {} if family is None else {"family": family, "saved_at": saved_at}
        return bool(self._run(_REOPEN_AS if begun else _REOPEN, **own, **begun))

    def add_tombstone(self, session: str) -> bool:
        return bool(self._run(_ADD_SESSION, self._key, escape(session), 0, True))

    def clear(self) -> None:
        self._run("SELECT {schema}.clear(%s)", self._key)

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
        tasks, indexes, paths, channels, datas = zip(*writes, strict=True)
        texts = [[escape(each) for each in column] for column in (tasks, paths, channels)]
        values = (
            self._key, *map(escape, place), texts[0], list(indexes), texts[1], texts[2], list(datas), replace,
        )  # fmt: skip
        known = (self._key, family, self._key, values[1], family)
        found = None if family is None else self._run(_ADD_WRITES_OF, *known, *values)
        [(added,)] = found or self._run(_ADD_WRITES_TO, *values)
        if not added:
            raise store.session_deleted(place.session)

    # reading: each answer is that of one statement

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
        text = f"SELECT {_ROW}, refs, shape, family FROM {{schema}}.checkpoints"
        text += " WHERE tenant = %s AND session = %s AND namespace = %s"
        values = [self._key, escape(session), escape(namespace)]
        if checkpoint_id is None:
            text += " ORDER BY sequence DESC LIMIT 1"
        else:
            text += " AND checkpoint_id = %s"
            values.append(escape(checkpoint_id))
        return next(iter(map(_row, self._run(text, *values))), None)

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
        columns = "refs, shape" if whole else "''::bytea, ''::bytea"
        text = f"SELECT {_ROW}, {columns}, family FROM {{schema}}.checkpoints WHERE tenant = %s"
        values: list[Any] = [self._key]
        for column, value in (("session", session), ("namespace", namespace), ("run_id", run_id)):
            if value is not None:
                text += f" AND {column} = %s"
                values.append(escape(value))
        if before is not None:
            text += " AND sequence < %s"
            values.append(_within(before))
        return [_row(row) for row in self._run(f"{text} ORDER BY sequence DESC LIMIT %s", *values, limit)]

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[CheckpointRow]:
        text = f"SELECT {_ROW}, ''::bytea, ''::bytea, family FROM {{schema}}.checkpoints"
        text += " WHERE tenant = %s AND session = %s AND namespace = %s"
        values: list[Any] = [self._key, escape(session), escape(namespace)]
        if before is not None:
            text += " AND checkpoint_id < %s"
            values.append(escape(before))
        return [_row(row) for row in self._run(f"{text} ORDER BY checkpoint_id DESC LIMIT %s", *values, limit)]

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        text = "SELECT name, refs, data FROM {schema}.parts WHERE family = %s AND name = ANY (%b) AND tenant = %s"
        return cast("list[PartRow]", self._run(text, family, list(names), self._key))

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        text = "SELECT name, refs FROM {schema}.parts WHERE family = %s AND name = ANY (%b) AND tenant = %s"
        return dict(self._run(text, family, list(names), self._key))

    def session(self, session: str) -> SessionRow | None:
        return next(map(_session_row, self._run(_ONE_SESSION, self._key, escape(session))), None)

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        text = f"SELECT {_SESSION} FROM {{schema}}.sessions WHERE tenant = %s AND NOT deleted AND latest < %s"
        last = (1 << 63) - 1 if before is None else _within(before)
        return [_session_row(row) for row in self._run(f"{text} ORDER BY latest DESC LIMIT %s", self._key, last, limit)]

    def tombstones(self) -> list[str]:
        text = "SELECT session FROM {schema}.sessions WHERE tenant = %s AND deleted"
        return [unescape(name) for (name,) in self._run(text, self._key)]

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        found: dict[Place, list[WriteRow]] = {place: [] for place in places}
        if not places:
            return found
        columns = [[escape(name) for name in column] for column in zip(*places, strict=True)]
        rows = self._run(
            "SELECT session, namespace, checkpoint_id, task_id, idx, task_path, channel, data FROM {schema}.writes"
            " JOIN unnest(%s::text[], %s::text[], %s::text[]) u (s, n, c)"
            " ON session = s AND namespace = n AND checkpoint_id = c WHERE tenant = %s",
            *columns, self._key,
        )  # fmt: skip
        for row in rows:
            task_id, idx, task_path, channel, data = row[3:]
            write = WriteRow(unescape(task_id), idx, unescape(task_path), unescape(channel), data)
            found[Place(*map(unescape, row[:3]))].append(write)
        for own in found.values():
            own.sort(key=lambda write: (write.task_path, write.task_id, write.idx))
        return found

    def usage(self) -> UsageRow:
        [row] = self._run(_USAGE, t=self._key)
        return UsageRow(*row)

    def sizes(self, sessions: Sequence[str]) -> list[SizeRow]:
        rows = self._run(_SIZES, [escape(name) for name in sessions], self._key)
        return [SizeRow(unescape(session), *more) for session, *more in rows]

    def tenants(self) -> list[str]:
        rows = self._run("SELECT tenant FROM {schema}.sessions UNION SELECT tenant FROM {schema}.writes")
        return sorted(unescape(name) for (name,) in rows)

    # the server

    def _run(self, text: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        """Run one statement; all rows."""
        query = self._query(text)
        return self._do(lambda cursor: cursor.execute(query, named or values).fetchall())

    def _query(self, text: str) -> bytes:
        """A statement with the name of the schema, cached: there are few, and the driver caches by bytes."""
        if text not in self._queries:
            schema = sql.Identifier(self._schema_name.replace("%", "%%"))  # % marks a parameter
            self._queries[text] = sql.SQL(text).format(schema=schema).as_bytes(None)
        return self._queries[text]

    def _do(self, act: Callable[[psycopg.Cursor[Any]], T]) -> T:
        """Call `act` with a cursor; again on another connection if this one is broken."""

        def run(connection: psycopg.Connection[Any]) -> T:
            # Where the default isolation is stricter, single statements need a transaction that is READ COMMITTED.
            scope = self._pool.transaction(connection) if self._is_strict else contextlib.nullcontext()
            with scope, connection.cursor(binary=True) as cursor:
                return act(cursor)

        return self._pool.run(run)

    def _make_tables(self, *, create: bool) -> None:
        """Create the tables if there are none, once, however many processes open the store at the same time."""
        if not self._run(EXISTING_TABLES, self._schema_name, ["version"]):
            if not create:
                raise NotFound(
                    f"there are no states in schema {self._schema_name!r}",
                    hint="Nothing was saved there yet, or the states are in another schema: postgresql://…?schema=NAME.",
                )
            self._create()
        [(version, isolation)] = self._run(
            "SELECT number, current_setting('default_transaction_isolation') FROM {schema}.version"
        )
        self._is_strict = isolation != "read committed"
        if version != _VERSION:
            raise Refused(
                f"the database schema has version {version}, which this Holdfast does not know",
                hint="Use a newer Holdfast.",
            )

    def _create(self) -> None:
        schema = sql.Identifier(self._schema_name)
        name = sql.SQL(_quoted(self._schema_name).replace("'", "''"))
        try:
            with self._pool.connection() as connection, creating_tables(connection, _LOCK):
                if not connection.execute(EXISTING_TABLES, (self._schema_name, ["version"])).fetchone():
                    for text in (_TABLES, _FUNCTIONS):
                        connection.execute(sql.SQL(text).format(schema=schema, name=name))
        except psycopg.Error as error:
            reason = " ".join(str(error).split())
            raise Unavailable(
                f"cannot create tables: {reason}", hint="Check that the database user has the CREATE privilege."
            ) from error

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(name: str | None) -> str | None:
    return None if name is None else escape(name)


def _columns(copies: Sequence[Copy]) -> list[list[Any]]:
    """The rows of copies, and their bases, column by column."""
    rows = [
        (*map(escape, row.place[1:]), _escaped(row.parent_id), _escaped(row.run_id), row.saved_at, row.digest, row.meta,
         row.refs, row.shape, *base)
        for row, base, _ in copies
    ]  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)]


def _write_columns(copies: Sequence[Copy]) -> list[list[Any]]:
    """The writes of copies, column by column."""
    rows = [
        (*map(escape, row.place[1:]), escape(write.task_id), write.idx, escape(write.task_path), escape(write.channel),
         write.data)
        for row, _, writes in copies
        for write in writes
    ]  # fmt: skip
    return [list(column) for column in zip(*rows, strict=True)] or [[]] * 7


def _unescaped(name: str | None) -> str | None:
    return None if name is None else unescape(name)


def _row(values: Sequence[Any]) -> CheckpointRow:
    session, namespace, checkpoint_id, sequence, parent, run, saved_at, digest, meta, refs, shape, family = values
    place = Place(unescape(session), unescape(namespace), unescape(checkpoint_id))
    return CheckpointRow(
        place, sequence, _unescaped(parent), _unescaped(run), saved_at, digest, meta, refs, shape, family
    )


def _session_row(values: Sequence[Any]) -> SessionRow:
    return SessionRow(unescape(values[0]), *values[1:])


def _within(number: int) -> int:
    """The nearest number that PostgreSQL can store."""
    return max(min(number, (1 << 63) - 1), -(1 << 63))


# Tables and functions. Each change is one call of a function: one round trip, one transaction.
#
# Locks are taken in one order: the tenant (exclusively by `clear`), the family (shared by those who add, exclusively by
# those who free), the session. All end with their transaction, so that a pooler may give each transaction another
# connection. What was looked up before a lock is looked up again under it.

_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {schema}.version (number int PRIMARY KEY);
CREATE SEQUENCE {schema}.numbers;
CREATE TABLE {schema}.sessions (
    tenant text COLLATE "C", session text COLLATE "C", family bigint NOT NULL, latest bigint NOT NULL,
    checkpoints bigint NOT NULL, saved_at bigint NOT NULL, deleted boolean NOT NULL,
    PRIMARY KEY (tenant, session)
) WITH (fillfactor = 70);
CREATE TABLE {schema}.checkpoints (
    tenant text COLLATE "C", session text COLLATE "C", namespace text COLLATE "C", checkpoint_id text COLLATE "C",
    sequence bigint NOT NULL, parent_id text, run_id text, saved_at bigint NOT NULL, family bigint NOT NULL,
    digest bytea NOT NULL, meta bytea NOT NULL, refs bytea NOT NULL, shape bytea NOT NULL,
    PRIMARY KEY (tenant, session, namespace, checkpoint_id)
);
CREATE UNIQUE INDEX checkpoints_sequence ON {schema}.checkpoints (sequence);
CREATE INDEX checkpoints_newest ON {schema}.checkpoints (tenant, session, sequence);
CREATE INDEX checkpoints_family ON {schema}.checkpoints (family);
CREATE INDEX checkpoints_run ON {schema}.checkpoints (tenant, run_id) WHERE run_id IS NOT NULL;
CREATE TABLE {schema}.parts (
    tenant text COLLATE "C", family bigint, name bytea, refs bytea NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (family, name, tenant)
);
ALTER TABLE {schema}.parts ALTER data SET STORAGE EXTERNAL;
CREATE TABLE {schema}.writes (
    tenant text COLLATE "C", session text COLLATE "C", namespace text COLLATE "C", checkpoint_id text COLLATE "C",
    task_id text COLLATE "C", idx bigint, task_path text NOT NULL, channel text NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, session, namespace, checkpoint_id, task_id, idx)
);
INSERT INTO {schema}.version VALUES (1);
"""

_FUNCTIONS = """
CREATE FUNCTION {schema}.lock_family(t text, f bigint, alone boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(t, 0));
    IF alone THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(t, f));
    ELSE
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(t, f));
    END IF;
END $$;

CREATE FUNCTION {schema}.sweep(t text, f bigint) RETURNS void LANGUAGE sql AS $$
    WITH RECURSIVE live (name) AS (
        SELECT substring(c.refs FROM at FOR 16)
        FROM {schema}.checkpoints c, generate_series(1, length(c.refs), 16) at
        WHERE c.tenant = t AND c.family = f
        UNION
        SELECT substring(p.refs FROM at FOR 16)
        FROM live JOIN {schema}.parts p ON p.family = f AND p.name = live.name AND p.tenant = t,
            generate_series(1, length(p.refs), 16) at
    )
    DELETE FROM {schema}.parts p
    WHERE p.family = f AND p.tenant = t AND NOT EXISTS (SELECT 1 FROM live WHERE live.name = p.name)
$$;

CREATE FUNCTION {schema}.commit_row(
    t text, s text, n text, c text, parent text, run text, at bigint, f bigint, dig bytea, met bytea, ref bytea,
    shp bytea, names bytea[], their_refs bytea[], datas bytea[], base bigint, base_digest bytea, compare boolean,
    expected text, replacing boolean, OUT status text, OUT number bigint, OUT newest text
) LANGUAGE plpgsql AS $$
DECLARE
    known record;
    there record;
    made boolean := false;
BEGIN
    PERFORM {schema}.lock_family(t, f, replacing);
    SELECT * INTO known FROM {schema}.sessions WHERE tenant = t AND session = s FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO {schema}.sessions VALUES (t, s, f, 0, 0, 0, false) ON CONFLICT DO NOTHING;
        made := FOUND;
        SELECT * INTO known FROM {schema}.sessions WHERE tenant = t AND session = s FOR UPDATE;
    END IF;
    SELECT sequence, digest INTO there FROM {schema}.checkpoints
        WHERE tenant = t AND session = s AND namespace = n AND checkpoint_id = c;
    IF there.digest = dig THEN
        status := 'saved'; number := there.sequence; RETURN;
    END IF;
    IF compare THEN
        SELECT checkpoint_id INTO newest FROM {schema}.checkpoints
            WHERE tenant = t AND session = s AND namespace = n ORDER BY sequence DESC LIMIT 1;
    END IF;
    status := CASE
        WHEN known.deleted THEN 'deleted'
        WHEN there.sequence IS NOT NULL AND NOT replacing THEN 'taken'
        WHEN compare AND newest IS DISTINCT FROM expected THEN 'moved'
        WHEN known.family IS DISTINCT FROM f THEN 'stale'
        WHEN base IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM {schema}.checkpoints WHERE sequence = base AND digest = base_digest AND tenant = t
        ) THEN 'stale'
        ELSE 'saved' END;
    IF status <> 'saved' THEN
        IF made THEN
            DELETE FROM {schema}.sessions WHERE tenant = t AND session = s;
        END IF;
        RETURN;
    END IF;
    IF cardinality(names) > 0 THEN
        INSERT INTO {schema}.parts SELECT t, f, u.* FROM unnest(names, their_refs, datas) u (name, refs, data)
            ORDER BY u.name ON CONFLICT DO NOTHING;
    END IF;
    IF there.sequence IS NOT NULL THEN
        number := there.sequence;
        UPDATE {schema}.checkpoints SET parent_id = parent, run_id = run, saved_at = at, digest = dig, meta = met,
            refs = ref, shape = shp WHERE sequence = number;
        UPDATE {schema}.sessions SET saved_at = greatest(saved_at, at) WHERE tenant = t AND session = s;
        PERFORM {schema}.sweep(t, f);
    ELSE
        number := nextval('{name}.numbers');
        INSERT INTO {schema}.checkpoints VALUES (t, s, n, c, number, parent, run, at, f, dig, met, ref, shp);
        UPDATE {schema}.sessions
            SET latest = number, checkpoints = checkpoints + 1, saved_at = greatest(saved_at, at)
            WHERE tenant = t AND session = s;
    END IF;
END $$;

CREATE FUNCTION {schema}.delete_rows(t text, ss text[], ns text[], cs text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
    families bigint[];
    removed bigint;
BEGIN
    SELECT array_agg(DISTINCT family ORDER BY family) INTO families FROM {schema}.sessions
        WHERE tenant = t AND session = ANY (ss);
    FOREACH f IN ARRAY coalesce(families, '{{}}') LOOP
        PERFORM {schema}.lock_family(t, f, true);
    END LOOP;
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = ANY (ss) ORDER BY session FOR UPDATE;
    DELETE FROM {schema}.writes w USING unnest(ss, ns, cs) u (s, n, c)
        WHERE w.tenant = t AND w.session = u.s AND w.namespace = u.n AND w.checkpoint_id = u.c;
    WITH gone AS (
        DELETE FROM {schema}.checkpoints k USING unnest(ss, ns, cs) u (s, n, c)
            WHERE k.tenant = t AND k.session = u.s AND k.namespace = u.n AND k.checkpoint_id = u.c RETURNING k.session
    ), counted AS (
        UPDATE {schema}.sessions x SET checkpoints = x.checkpoints - g.count
            FROM (SELECT session, count(*) AS count FROM gone GROUP BY session) g
            WHERE x.tenant = t AND x.session = g.session RETURNING g.count
    )
    SELECT coalesce(sum(count), 0) INTO removed FROM counted;
    FOREACH f IN ARRAY coalesce(families, '{{}}') LOOP
        PERFORM {schema}.sweep(t, f);
    END LOOP;
    RETURN removed;
END $$;

CREATE FUNCTION {schema}.delete_session(t text, s text, tombstone boolean, latest_is bigint, saved_is bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
    removed bigint;
BEGIN
    LOOP
        SELECT family INTO f FROM {schema}.sessions WHERE tenant = t AND session = s;
        IF NOT FOUND THEN
            DELETE FROM {schema}.writes WHERE tenant = t AND session = s;
            RETURN 0;
        END IF;
        PERFORM {schema}.lock_family(t, f, true);
        PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s AND family = f FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s
        AND (latest_is IS NULL OR (latest = latest_is AND saved_at = saved_is AND NOT deleted));
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM {schema}.writes WHERE tenant = t AND session = s;
    DELETE FROM {schema}.checkpoints WHERE tenant = t AND session = s;
    GET DIAGNOSTICS removed = ROW_COUNT;
    IF tombstone THEN
        UPDATE {schema}.sessions SET deleted = true, checkpoints = 0 WHERE tenant = t AND session = s;
    ELSE
        DELETE FROM {schema}.sessions WHERE tenant = t AND session = s;
    END IF;
    PERFORM {schema}.sweep(t, f);
    RETURN removed;
END $$;

CREATE FUNCTION {schema}.clear(t text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(t, 0));
    DELETE FROM {schema}.checkpoints WHERE tenant = t;
    DELETE FROM {schema}.sessions WHERE tenant = t;
    DELETE FROM {schema}.parts WHERE tenant = t;
    DELETE FROM {schema}.writes WHERE tenant = t;
END $$;

CREATE FUNCTION {schema}.add_writes(
    t text, s text, n text, c text, tasks text[], indexes bigint[], paths text[], channels text[], datas bytea[],
    replacing boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    f bigint;
BEGIN
    SELECT family INTO f FROM {schema}.sessions WHERE tenant = t AND session = s;
    PERFORM {schema}.lock_family(t, coalesce(f, 0), false);
    PERFORM 1 FROM {schema}.sessions WHERE tenant = t AND session = s AND deleted;
    IF FOUND THEN
        RETURN false;
    END IF;
    IF replacing THEN
        INSERT INTO {schema}.writes SELECT t, s, n, c, u.* FROM unnest(tasks, indexes, paths, channels, datas) u
            ON CONFLICT (tenant, session, namespace, checkpoint_id, task_id, idx) DO UPDATE
            SET task_path = excluded.task_path, channel = excluded.channel, data = excluded.data;
    ELSE
        INSERT INTO {schema}.writes SELECT t, s, n, c, u.* FROM unnest(tasks, indexes, paths, channels, datas) u
            ON CONFLICT DO NOTHING;
    END IF;
    RETURN true;
END $$;
"""

_LOCK_FAMILIES = """
SELECT {schema}.lock_family(%s, family, true) FROM (
    SELECT family FROM {schema}.sessions WHERE tenant = %s AND session = ANY (%s)
    UNION SELECT unnest(%s::bigint[]) ORDER BY family
) known
"""
_FAMILIES = """
SELECT session, family FROM {schema}.sessions WHERE tenant = %s AND session = ANY (%s) ORDER BY session FOR UPDATE
"""
"""The lock of its row keeps a deleted session from being begun again: that needs the lock of another family only."""

_ADD_WRITES_TO = "SELECT {schema}.add_writes(%s, %s, %s, %s, %s, %s, %s, %s, %b, %s)"
_ADD_WRITES_OF = f"""
WITH locked AS MATERIALIZED (
    SELECT {{schema}}.lock_family(%s, %s, false)
), known AS MATERIALIZED (
    SELECT family FROM {{schema}}.sessions, locked WHERE tenant = %s AND session = %s FOR SHARE OF sessions
)
SELECT CASE WHEN family = %s THEN ({_ADD_WRITES_TO}) ELSE false END FROM known
"""
"""No row if there is no session. Under the lock of the family, FOR SHARE reads the session as it is now."""

_SIZES = """
SELECT s.session,
    (SELECT coalesce(sum(length(meta) + length(refs) + length(shape)), 0)::bigint FROM {schema}.checkpoints c
        WHERE c.tenant = s.tenant AND c.session = s.session)
    + (SELECT coalesce(sum(length(data)), 0)::bigint FROM {schema}.writes w
        WHERE w.tenant = s.tenant AND w.session = s.session),
    s.family,
    (SELECT coalesce(sum(length(refs) + length(data)), 0)::bigint FROM {schema}.parts p
        WHERE p.family = s.family AND p.tenant = s.tenant),
    (SELECT count(DISTINCT o.session) FROM {schema}.checkpoints o WHERE o.family = s.family AND o.tenant = s.tenant)
FROM unnest(%s::text[]) WITH ORDINALITY asked (name, at)
    JOIN {schema}.sessions s ON s.session = asked.name AND s.tenant = %s AND NOT s.deleted
ORDER BY at
"""

_USAGE = """
SELECT (SELECT count(*) FROM {schema}.sessions WHERE tenant = %(t)s AND NOT deleted),
    (SELECT count(*) FROM {schema}.sessions WHERE tenant = %(t)s AND deleted),
    (SELECT count(*) FROM {schema}.checkpoints WHERE tenant = %(t)s),
    (SELECT count(*) FROM {schema}.parts WHERE tenant = %(t)s),
    (SELECT coalesce(sum(length(refs) + length(data)), 0)::bigint FROM {schema}.parts WHERE tenant = %(t)s),
    (SELECT coalesce(sum(length(meta) + length(refs) + length(shape)), 0)::bigint FROM {schema}.checkpoints
        WHERE tenant = %(t)s)
    + (SELECT coalesce(sum(length(data)), 0)::bigint FROM {schema}.writes WHERE tenant = %(t)s),
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {schema}.numbers)
"""

_ADD_ROWS = """
SELECT done.status, done.number
FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[],
    %s::bigint[], %b::bytea[]
) WITH ORDINALITY u (n, c, parent, run, saved_at, digest, meta, refs, shape, base, base_digest, at),
    (SELECT %s::text AS t, %s::text AS s, %s::bigint AS f) o,
    LATERAL {schema}.commit_row(
        o.t, o.s, u.n, u.c, u.parent, u.run, u.saved_at, o.f, u.digest, u.meta, u.refs, u.shape,
        '{{}}', '{{}}', '{{}}', u.base, u.base_digest, false, NULL, false
    ) done
ORDER BY at
"""

_ADD_WRITES = """
INSERT INTO {schema}.writes SELECT %s, %s, u.* FROM unnest(
    %s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %b::bytea[]
) u
ON CONFLICT (tenant, session, namespace, checkpoint_id, task_id, idx) DO UPDATE
SET task_path = excluded.task_path, channel = excluded.channel, data = excluded.data
"""
