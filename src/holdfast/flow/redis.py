"""States in Redis, by plain commands and scripts; no module is needed.

Every change is one script (`redis_scripts`). How much of it outlives the server is the server's setting: with
`appendonly yes` and `appendfsync always` all, as with the other back ends; with less, the last changes may be lost,
each of them whole; without persistence nothing outlives it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from holdfast.errors import Refused, Unavailable
from holdfast.flow import conflicts, redis_scripts
from holdfast.flow.names import check_name
from holdfast.flow.redis_reading import RedisReader, member_of, quoted, unquoted
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
    WeightRow,
    WriteRow,
)
from holdfast.serde.msgpack import encode

_TRIES = 3
_CONNECT_SECONDS = 10
_CLUSTER = "+cluster"
_LOST = (redis.ConnectionError, redis.TimeoutError)


class _Changing(Unavailable):
    """No node of a cluster has the slot of the tenant: it is on its way from one to another, or one is to take over."""


class RedisStore(RedisReader):
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

        `timeout`: how many seconds a call waits for an answer, and a change for a cluster that is changing. `prefix`:
        what all keys begin with. `allow_eviction`: use a server that throws keys away when it is full, too. `create`
        changes nothing: there are no tables to be made.
        """
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._beginning = f"{quoted(check_name(prefix, 'prefix'))}:{{"
        self._prefix = f"{self._beginning}{quoted(tenant)}.}}:"
        self._closed = False
        self._timeout = timeout
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
        expected = quoted(expected_parent) if isinstance(expected_parent, str) else ""
        status, *more = self._script(
            "COMMIT", *map(quoted, row.place), _optional(row.parent_id), _optional(row.run_id), row.saved_at,
            row.family, row.digest, row.meta, row.refs, row.shape, *(base or ("", "")),
            int(compare), expected, int(replace), *(value for part in parts for value in part),
        )  # fmt: skip
        if status == b"stale":
            raise Stale
        conflicts.check(
            row,
            is_deleted=status == b"deleted",
            is_taken=status == b"taken",
            newest=unquoted(more[0]) if status == b"moved" and more[0] else None,
            expected_parent=expected_parent if status == b"moved" else ANYTHING,
        )
        return int(more[0])

    def begin(self, session: str, copies: Sequence[Copy], *, reopen: bool = False) -> list[int]:
        values: list[Any] = [quoted(session), copies[0].row.family, int(reopen), len(copies)]
        for row, base, _ in copies:
            values += [member_of(row.place), _optional(row.parent_id), _optional(row.run_id), row.saved_at, row.digest]
            values += [row.meta, row.refs, row.shape, *base]
        for row, _, writes in copies:
            values += [value for write in writes for value in (member_of(row.place), *_pair(write))]
        status, *numbers = self._script("BEGIN", *values)
        if status == b"stale":
            raise Stale
        if status == b"exists":
            raise conflicts.exists(session)
        return [int(number) for number in numbers]

    # deleting

    def delete(self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = ()) -> int:
        members = [member_of(place) for place in places]
        looked = [value for each in if_are for value in (quoted(each.session), each.latest, each.saved_at)]
        gone = self._script("DELETE", len(if_are), *looked, *members) if members else 0
        if gone is None:
            raise Stale
        return int(gone)

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        wanted = (if_is.latest, if_is.saved_at) if if_is else ()
        return int(self._script("DELETE_SESSION", quoted(session), int(tombstone), *wanted))

    def reopen(self, session: str) -> bool:
        return bool(self._script("REOPEN", quoted(session)))

    def bury(self, session: str) -> bool:
        return bool(self._script("BURY", quoted(session)))

    def clear(self) -> None:
        self._script("CLEAR")

    # writes

    def add_writes(
        self, place: Place, writes: Sequence[WriteRow], *, replace: bool, patience_seconds: float = 0.0
    ) -> None:
        pairs = (value for write in writes for value in _pair(write))
        if not self._script("ADD_WRITES", member_of(place), int(replace), *pairs):
            raise conflicts.deleted(place.session)

    def weigh(self, sessions: Sequence[str]) -> list[WeightRow]:
        found = ((name, self._script("WEIGH", quoted(name))) for name in sessions)
        return [WeightRow(name, *map(int, numbers)) for name, numbers in found if numbers]

    # the server

    def _script(self, name: str, *values: Any) -> Any:
        """Run a script; while no node has the slot of the tenant, wait for that."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._do(lambda: self._scripts[name](keys=[self._prefix], args=values))
            except _Changing:
                if time.monotonic() > until:
                    raise

    def _do(self, call: Any) -> Any:
        if self._closed:
            raise Refused("this store was closed", hint="Open it again.")
        try:
            return call()
        except redis.OutOfMemoryError as error:
            raise Unavailable(f"Redis is full: {error}", hint="Delete or prune, or raise its maxmemory.") from error
        except _LOST as error:
            raise Unavailable(f"Redis is gone: {error}", hint="Try again when it is back.") from error
        except redis.exceptions.ClusterDownError as error:
            raise _Changing(f"the cluster of Redis is down: {error}", hint="Try again when it is back.") from error
        except redis.exceptions.ClusterError as error:
            raise _Changing("Redis is moving this tenant to another node", hint="Try again when it has.") from error
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


def _optional(name: str | None) -> str:
    return "" if name is None else quoted(name)


def _said(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _pair(write: WriteRow) -> tuple[str, bytes]:
    """The field of a write, and what it holds."""
    return f"{quoted(write.task_id)}:{write.idx}", encode([*map(_said, write[:-1]), write.data])
