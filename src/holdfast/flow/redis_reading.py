"""States in Redis, as they are read: one key at a time, so that a slot of a cluster may be moved meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, cast
from urllib.parse import quote, unquote_to_bytes

from holdfast.errors import Damaged
from holdfast.flow.store import PartRow, Place, Row, SessionRow, UsageRow, WriteRow
from holdfast.serde.msgpack import decode

_PAGE = 256
_SCANNED = 1000
_LIGHT = ("seq", "parent", "run", "at", "family", "digest", "meta")
_WHOLE = (*_LIGHT, "refs", "shape")
_SESSION = ("family", "latest", "count", "at", "deleted")


class RedisReader:
    """One tenant of one Redis, as it is read."""

    _client: Any
    _beginning: str
    _prefix: str

    def _do(self, call: Any) -> Any:
        raise NotImplementedError

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        if checkpoint_id is not None:
            return next(iter(self._rows([member_of(Place(session, namespace, checkpoint_id))], _WHOLE)), None)
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
    ) -> list[Row]:
        index = self._index(session, namespace, run_id)
        found: list[Row] = []
        last = "+inf" if before is None else f"({before}"
        while limit is None or len(found) < limit:
            most = _PAGE if limit is None else min(_PAGE, limit - len(found))
            members = self._page(index, last, most)
            rows = self._rows([member for member, _ in members], _WHOLE if whole else _LIGHT)
            found += [
                row
                for row in rows
                if (session is None or row.place.session == session)
                and (namespace is None or row.place.namespace == namespace)
                and (run_id is None or row.run_id == run_id)
            ]
            if len(members) < most:
                break
            last = f"({int(members[-1][1])}"
        return found

    def rows_by_id(
        self, session: str, namespace: str, *, before: str | None = None, limit: int | None = None
    ) -> list[Row]:
        """All names of the namespace are read, and as many rows as are asked for."""
        index = self._index(session, namespace, None)
        members = cast("list[bytes]", self._do(lambda: self._client.zrange(index, 0, -1)))
        by_id = {unquoted(member.rpartition(b":")[2]): member for member in members}
        left = iter(sorted((each for each in by_id if before is None or each < before), reverse=True))
        found: list[Row] = []
        while limit is None or len(found) < limit:
            page = list(islice(left, _PAGE if limit is None else min(_PAGE, limit - len(found))))
            if not page:
                break
            found += self._rows([by_id[each] for each in page], _LIGHT)
        return found

    def _page(self, index: str, last: str, most: int) -> list[tuple[bytes, float]]:
        found = self._do(lambda: self._client.zrevrangebyscore(index, last, "-inf", 0, most, withscores=True))
        return cast("list[tuple[bytes, float]]", found)

    def _index(self, session: str | None, namespace: str | None, run_id: str | None) -> str:
        """The narrowest set of members that has all that is asked for."""
        if session is not None and namespace is not None:
            return f"{self._prefix}ns:{quoted(session)}:{quoted(namespace)}"
        if session is not None:
            return f"{self._prefix}all:{quoted(session)}"
        return f"{self._prefix}every" if run_id is None else f"{self._prefix}run:{quoted(run_id)}"

    def _rows(self, members: Sequence[bytes], fields: Sequence[str]) -> list[Row]:
        if not members:
            return []
        pipe = self._client.pipeline(transaction=False)
        for member in members:
            pipe.hmget(self._prefix.encode() + b"row:" + member, fields)
        pairs = zip(members, self._do(pipe.execute), strict=True)
        return [_row(member, values) for member, values in pairs if values[0] is not None]

    def parts(self, family: int, names: Sequence[bytes], *, hint: Any = None, count: int = 0) -> list[PartRow]:
        if not names:
            return []
        pipe = self._client.pipeline(transaction=False)  # a full server refuses transactions, even ones that only read
        pipe.hmget(f"{self._prefix}refs:{family}", names)
        pipe.hmget(f"{self._prefix}parts:{family}", names)
        pipe.hmget(f"{self._prefix}refs:{family}", names)  # others mean that it came or went between
        before, datas, after = self._do(pipe.execute)
        found = zip(names, before, datas, after, strict=True)
        return [(name, ref or b"", data) for name, ref, data, same in found if data is not None and ref == same]

    def groups(self, family: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
        if not names:
            return {}
        pipe = self._client.pipeline(transaction=False)
        pipe.hmget(f"{self._prefix}refs:{family}", names)
        for name in names:
            pipe.hexists(f"{self._prefix}parts:{family}", name)
        refs, *are_there = self._do(pipe.execute)
        found = zip(names, refs, are_there, strict=True)
        return {name: ref or b"" for name, ref, is_there in found if is_there}

    def session(self, session: str) -> SessionRow | None:
        values = self._do(lambda: self._client.hmget(f"{self._prefix}s:{quoted(session)}", _SESSION))
        return _session(session, values) if values[0] is not None else None

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        last = "+inf" if before is None else f"({before}"
        most = -1 if limit is None else min(limit, (1 << 31) - 1)
        found = self._do(
            lambda: self._client.zrevrangebyscore(f"{self._prefix}sessions", last, "-inf", 0, most) if most else []
        )
        pipe = self._client.pipeline(transaction=False)
        for each in found:
            pipe.hmget(f"{self._prefix}s:{each.decode()}", _SESSION)
        values = zip(found, self._do(pipe.execute) if found else [], strict=True)
        rows = [_session(unquoted(each), value) for each, value in values if value[0] is not None]
        return [row for row in rows if not row.is_deleted]

    def tombstones(self) -> list[str]:
        return [unquoted(name) for name in self._do(lambda: self._client.smembers(f"{self._prefix}dead"))]

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        pipe = self._client.pipeline(transaction=False)
        for place in places:
            pipe.hvals(self._prefix.encode() + b"w:" + member_of(place))
        found = {}
        for place, values in zip(places, self._do(pipe.execute), strict=True):
            found[place] = sorted(map(_write, values), key=lambda row: (row.task_path, row.task_id, row.idx))
        return found

    def usage(self) -> UsageRow:
        pipe = self._client.pipeline(transaction=False)
        pipe.zcard(f"{self._prefix}sessions")
        pipe.scard(f"{self._prefix}dead")
        pipe.hmget(f"{self._prefix}usage", "checkpoints", "parts", "part_bytes", "row_bytes")
        pipe.get(f"{self._prefix}seq")
        sessions, dead, counts, sequence = self._do(pipe.execute)
        return UsageRow._make([sessions, dead, *_numbers("usage", *counts, sequence)])

    def tenants(self) -> list[str]:
        """Every key is looked at once, a few at a time, and nobody waits."""
        found = set()
        for end in (".}:sessions", ".}:dead", ".}:written"):
            scan = partial(self._client.scan_iter, f"{self._beginning}*{end}", _SCANNED)
            found |= {unquoted(key[len(self._beginning) : -len(end)]) for key in self._do(lambda scan=scan: [*scan()])}
        return sorted(found)


def quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def unquoted(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode("utf-8", "surrogatepass")


def _heard(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def member_of(place: Place) -> bytes:
    return ":".join(map(quoted, place)).encode()


def _row(member: bytes, values: Sequence[Any]) -> Row:
    sequence, parent, run, saved_at, family, digest, meta, *whole = values
    place = Place(*map(unquoted, member.split(b":")))
    if any(value is None for value in values):
        raise Damaged(f"checkpoint {place.checkpoint_id} lacks something", hint="Use another checkpoint.")
    refs, shape = cast("tuple[bytes, bytes]", whole or (b"", b""))
    parent, run = (unquoted(name) if name else None for name in (parent, run))
    number, at, own = _numbers(f"checkpoint {place.checkpoint_id}", sequence, saved_at, family)
    return Row(place, number, parent, run, at, digest, meta, refs, shape, own)


def _write(value: bytes) -> WriteRow:
    held = decode(value)
    if not isinstance(held, list) or len(held) != len(WriteRow._fields) or type(held[1]) is not int:
        raise Damaged("a stored write is malformed", hint="Delete its checkpoint.")
    return WriteRow._make([*map(_heard, held[:-1]), held[-1]])


def _numbers(what: str, *values: Any) -> list[int]:
    try:
        return [int(value or 0) for value in values]
    except ValueError:
        raise Damaged(f"a number of {what} is malformed", hint="Use another checkpoint.") from None


def _session(session: str, values: Sequence[Any]) -> SessionRow:
    family, latest, count, saved_at, deleted = _numbers(f"session {session!r}", *values)
    return SessionRow(session, family, latest, count, saved_at, bool(deleted))
