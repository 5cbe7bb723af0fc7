"""States in PostgreSQL, as they are read: each answer is that of one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from holdfast.flow.names import escape, unescape
from holdfast.flow.postgres_schema import USAGE, WEIGHTS
from holdfast.flow.store import PartRow, Place, Row, SessionRow, UsageRow, WeightRow, WriteRow

_ROW = "session, namespace, checkpoint_id, sequence, parent_id, run_id, saved_at, digest, meta"
_SESSION = "session, family, latest, checkpoints, saved_at, deleted"
ONE_SESSION = f"SELECT {_SESSION} FROM {{schema}}.sessions WHERE tenant = %s AND session = %s"


class PostgresReader:
    """One tenant of one schema, as it is read."""

    _key: str
    """The tenant, escaped."""

    def _run(self, text: str, *values: Any, **named: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> Row | None:
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
    ) -> list[Row]:
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
    ) -> list[Row]:
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
        return next(map(session_row, self._run(ONE_SESSION, self._key, escape(session))), None)

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        text = f"SELECT {_SESSION} FROM {{schema}}.sessions WHERE tenant = %s AND NOT deleted AND latest < %s"
        last = (1 << 63) - 1 if before is None else _within(before)
        return [session_row(row) for row in self._run(f"{text} ORDER BY latest DESC LIMIT %s", self._key, last, limit)]

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
        [row] = self._run(USAGE, t=self._key)
        return UsageRow(*row)

    def weigh(self, sessions: Sequence[str]) -> list[WeightRow]:
        rows = self._run(WEIGHTS, [escape(name) for name in sessions], self._key)
        return [WeightRow(unescape(session), *more) for session, *more in rows]

    def tenants(self) -> list[str]:
        rows = self._run("SELECT tenant FROM {schema}.sessions UNION SELECT tenant FROM {schema}.writes")
        return sorted(unescape(name) for (name,) in rows)


def unescaped(name: str | None) -> str | None:
    return None if name is None else unescape(name)


def _row(values: Sequence[Any]) -> Row:
    session, namespace, checkpoint_id, sequence, parent, run, saved_at, digest, meta, refs, shape, family = values
    place = Place(unescape(session), unescape(namespace), unescape(checkpoint_id))
    return Row(place, sequence, unescaped(parent), unescaped(run), saved_at, digest, meta, refs, shape, family)


def session_row(values: Sequence[Any]) -> SessionRow:
    return SessionRow(unescape(values[0]), *values[1:])


def _within(number: int) -> int:
    """A number that PostgreSQL can hold."""
    return max(min(number, (1 << 63) - 1), -(1 << 63))
