"""States in Redis, by plain commands and scripts; no module is needed.

Every change is one script (`redis_scripts`). How much of it outlives the server is the server's setting: with
`appendonly yes` and `appendfsync always` all, as with the other back ends; with less, the last changes may be lost,
each of them whole; without persistence nothing outlives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote, unquote_to_bytes

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.flow import conflicts, redis_scripts
from holdfast.flow.names import check_name
from holdfast.flow.store import (
    ANYTHING,
    Anything,
    Base,
    Copy,
    Part,
    PartRow,
    Place,
    Row,
    SessionRow,
    Stale,
    UsageRow,
    WeightRow,
    WriteRow,
)
from holdfast.serde.msgpack import decode, encode

_PAGE = 256
_SCANNED = 1000
_LIGHT = ("seq", "parent", "run", "at", "family", "digest", "meta")
_WHOLE = (*_LIGHT, "refs", "shape")
_SESSION = ("family", "latest", "count", "at", "deleted")
_TRIES = 3
_CONNECT_SECONDS = 10
_CLUSTER = "+cluster"
_LOST = (redis.ConnectionError, redis.TimeoutError)


class RedisStore:
    """One tenant of one Redis, or of one cluster of them: there, all of a tenant lies on one node."""

    def __init__(
        self,
        url: str,
        *,
        tenant: str = "",
        prefix: str = "holdfast",
        timeout: float = 30.0,
        create: bool = True,
        allow_eviction: bool = False,
    ) -> None:
        """`url`: `redis://…`, `rediss://…`, `unix://…`; `redis+cluster://…` and `rediss+cluster://…` name any node.

        `prefix`: what all keys begin with. `allow_eviction`: use a server that throws keys away when it is full, too.
        `create` changes nothing: there are no tables to be made.
        """
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._beginning = f"{_quoted(check_name(prefix, 'prefix'))}:{{"
        self._prefix = f"{self._beginning}{_quoted(tenant)}.}}:"
        self._closed = False
        self._client: Any = self._do(lambda: _client(url, timeout))
        names = ("COMMIT", "BEGIN", "DELETE", "DELETE_SESSION", "REOPEN", "BURY", "CLEAR", "ADD_WRITES", "WEIGH")
        self._scripts = {name: self._client.register_script(getattr(redis_scripts, name)) for name in names}
        try:
            self._do(self._client.ping)
            if not allow_eviction:
                self._check_eviction()
        except BaseException:
            self.close()
            raise

    @property
    def tenant(self) -> str:
        return self._tenant

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
        compare = not isinstance(expected_parent, Anything)
        expected = _quoted(expected_parent) if isinstance(expected_parent, str) else ""
        status, *more = self._script(
            "COMMIT", *map(_quoted, row.place), _optional(row.parent_id), _optional(row.run_id), row.saved_at,
            row.family, row.digest, row.meta, row.refs, row.shape, *(base or ("", "")),
            int(compare), expected, int(replace), *(value for part in parts for value in part),
        )  # fmt: skip
        if status == b"stale":
            raise Stale
        conflicts.check(
            row,
            is_deleted=status == b"deleted",
            is_taken=status == b"taken",
            newest=_unquoted(more[0]) if status == b"moved" and more[0] else None,
            expected_parent=expected_parent if status == b"moved" else ANYTHING,
        )
        return int(more[0])

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        values: list[Any] = [_quoted(session), copies[0].row.family, int(reopen), len(copies)]
        for row, base, _ in copies:
            values += [_member(row.place), _optional(row.parent_id), _optional(row.run_id), row.saved_at, row.digest]
            values += [row.meta, row.refs, row.shape, *base]
        for row, _, writes in copies:
            values += [value for write in writes for value in (_member(row.place), *_pair(write))]
        status, *numbers = self._script("BEGIN", *values)
        if status == b"stale":
            raise Stale
        if status == b"exists":
            raise conflicts.exists(session)
        return [int(number) for number in numbers]

    # reading

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> Row | None:
        if checkpoint_id is not None:
            return next(iter(self._rows([_member(Place(session, namespace, checkpoint_id))], _WHOLE)), None)
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

    def _page(self, index: str, last: str, most: int) -> list[tuple[bytes, float]]:
        found = self._do(lambda: self._client.zrevrangebyscore(index, last, "-inf", 0, most, withscores=True))
        return cast("list[tuple[bytes, float]]", found)

    def _index(self, session: str | None, namespace: str | None, run_id: str | None) -> str:
        """The narrowest set of members that has all that is asked for."""
        if session is not None and namespace is not None:
            return f"{self._prefix}ns:{_quoted(session)}:{_quoted(namespace)}"
        if session is not None:
            return f"{self._prefix}all:{_quoted(session)}"
        return f"{self._prefix}every" if run_id is None else f"{self._prefix}run:{_quoted(run_id)}"

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
        refs = self._do(lambda: self._client.hmget(f"{self._prefix}refs:{family}", names))
        return {name: ref for name, ref in zip(names, refs, strict=True) if ref}

    def session(self, session: str) -> SessionRow | None:
        values = self._do(lambda: self._client.hmget(f"{self._prefix}s:{_quoted(session)}", _SESSION))
        return _session(session, values) if values[0] is not None else None

    def sessions(self, *, before: int | None = None, limit: int | None = None) -> list[SessionRow]:
        last = "+inf" if before is None else f"({before}"
        most = -1 if limit is None else min(limit, (1 << 31) - 1)
        found = self._do(
            lambda: self._client.zrevrangebyscore(f"{self._prefix}sessions", last, "-inf", 0, most) if most else []
        )
        rows = [self.session(_unquoted(each)) for each in found]
        return [row for row in rows if row is not None and not row.is_deleted]

    # deleting

    def delete(self, places: Iterable[Place]) -> int:
        members = [_member(place) for place in places]
        return int(self._script("DELETE", *members)) if members else 0

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        wanted = (if_is.latest, if_is.saved_at) if if_is else ()
        return int(self._script("DELETE_SESSION", _quoted(session), int(tombstone), *wanted))

    def reopen(self, session: str) -> bool:
        return bool(self._script("REOPEN", _quoted(session)))

    def tombstones(self) -> list[str]:
        return [_unquoted(name) for name in self._do(lambda: self._client.smembers(f"{self._prefix}dead"))]

    def bury(self, session: str) -> bool:
        return bool(self._script("BURY", _quoted(session)))

    def clear(self) -> None:
        self._script("CLEAR")

    # writes

    def add_writes(
        self, place: Place, writes: Sequence[WriteRow], *, replace: bool, patience_seconds: float = 0.0
    ) -> None:
        pairs = (value for write in writes for value in _pair(write))
        if not self._script("ADD_WRITES", _member(place), int(replace), *pairs):
            raise conflicts.deleted(place.session)

    def writes(self, places: Sequence[Place]) -> dict[Place, list[WriteRow]]:
        pipe = self._client.pipeline(transaction=False)
        for place in places:
            pipe.hvals(self._prefix.encode() + b"w:" + _member(place))
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
        return UsageRow._make([sessions, dead, *(int(count or 0) for count in counts), int(sequence or 0)])

    def weigh(self, sessions: Sequence[str]) -> list[WeightRow]:
        found = ((name, self._script("WEIGH", _quoted(name))) for name in sessions)
        return [WeightRow(name, *map(int, numbers)) for name, numbers in found if numbers]

    def tenants(self) -> list[str]:
        """Every key is looked at once, a few at a time, and nobody waits."""
        found = set()
        for end in (".}:sessions", ".}:dead", ".}:written"):
            scan = partial(self._client.scan_iter, f"{self._beginning}*{end}", _SCANNED)
            found |= {_unquoted(key[len(self._beginning) : -len(end)]) for key in self._do(lambda scan=scan: [*scan()])}
        return sorted(found)

    # the server

    def _script(self, name: str, *values: Any) -> Any:
        return self._do(lambda: self._scripts[name](keys=[self._prefix], args=values))

    def _do(self, call: Any) -> Any:
        if self._closed:
            raise Refused("this store was closed", hint="Open it again.")
        try:
            return call()
        except redis.OutOfMemoryError as error:
            raise Unavailable(f"Redis is full: {error}", hint="Delete or prune, or raise its maxmemory.") from error
        except _LOST as error:
            raise Unavailable(f"Redis is gone: {error}", hint="Try again when it is back.") from error
        except (redis.RedisError, RedisClusterException) as error:
            raise Unavailable(f"Redis says: {error}", hint="Look at its log.") from error

    def _check_eviction(self) -> None:
        """Refuse a server that makes room by throwing away keys of anybody; they would be parts of states."""
        for told in self._do(lambda: _memory(self._client)):
            policy = str(told.get("maxmemory_policy", ""))
            if int(told.get("maxmemory", 0)) and policy.startswith("allkeys"):
                raise Refused(
                    f"this Redis throws keys away when it is full ({policy})",
                    hint="Set its maxmemory-policy to noeviction; or pass allow_eviction=True and lose states.",
                )

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _client(url: str, timeout: float) -> Any:
    """A client; what is wrong with a URL is not repeated, since a password may be part of that."""
    scheme, colon, rest = url.partition(":")
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), _TRIES),  # every call is the same when made twice
    }
    try:
        if scheme.endswith(_CLUSTER):
            return redis.RedisCluster.from_url(scheme.removesuffix(_CLUSTER) + colon + rest, **options)
        client = redis.Redis.from_url(url, retry_on_error=[*_LOST], **options)
        client.connection_pool.make_connection()  # knows the options of the URL; connects to nothing yet
    except (ValueError, TypeError):
        raise Refused(
            "this URL of Redis cannot be read",
            hint="Write redis://host:6379/0; special characters of a password are written as %40.",
        ) from None
    return client


def _memory(client: Any) -> list[dict[str, Any]]:
    """What each server tells of its memory; nothing where it may not be asked."""
    try:
        if isinstance(client, redis.RedisCluster):
            primaries = client.nodes_manager.get_nodes_by_server_type("primary")
            return [client.info("memory", target_nodes=[node]) for node in primaries]
        return [client.info("memory")]
    except redis.ResponseError:
        return []


def _quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def _unquoted(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode("utf-8", "surrogatepass")


def _optional(name: str | None) -> str:
    return "" if name is None else _quoted(name)


def _said(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _heard(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _member(place: Place) -> bytes:
    return ":".join(map(_quoted, place)).encode()


def _row(member: bytes, values: Sequence[Any]) -> Row:
    sequence, parent, run, saved_at, family, digest, meta, *whole = values
    place = Place(*map(_unquoted, member.split(b":")))
    if any(value is None for value in values):
        raise Damaged(f"checkpoint {place.checkpoint_id} lacks something", hint="Use another checkpoint.")
    refs, shape = cast("tuple[bytes, bytes]", whole or (b"", b""))
    parent, run = (_unquoted(name) if name else None for name in (parent, run))
    return Row(place, int(sequence), parent, run, int(saved_at), digest, meta, refs, shape, int(family))


def _pair(write: WriteRow) -> tuple[str, bytes]:
    """The field of a write, and what it holds."""
    return f"{_quoted(write.task_id)}:{write.idx}", encode([*map(_said, write[:-1]), write.data])


def _write(value: bytes) -> WriteRow:
    *texts, data = decode(value)
    return WriteRow._make([*map(_heard, texts), data])


def _session(session: str, values: Sequence[Any]) -> SessionRow:
    family, latest, count, saved_at, deleted = (int(value or 0) for value in values)
    return SessionRow(session, family, latest, count, saved_at, bool(deleted))
