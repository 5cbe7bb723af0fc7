"""States in Redis, with plain commands and scripts; no Redis module is needed.

Every change is one Lua script (at the end of this file). How much survives a crash of the server is the server's
setting: with `appendonly yes` and `appendfsync always` everything, as with the other back ends; with less, the last
changes may be lost, each of them whole; without persistence nothing survives.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast
from urllib.parse import quote, unquote_to_bytes

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from holdfast.durable.closing import Closing
from holdfast.errors import Damaged, Refused, Unavailable
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
)
from holdfast.flow.validation import check_name
from holdfast.serde.msgpack import decode, encode

_TRIES = 3
_CONNECT_SECONDS = 10
_CLUSTER = "+cluster"
_PAGE = 256
_SCANNED = 1000
_LIGHT = ("seq", "parent", "run", "at", "family", "digest", "meta")
_WHOLE = (*_LIGHT, "refs", "shape")
_SESSION = ("family", "latest", "count", "at", "deleted")

_LOST = (redis.ConnectionError, redis.TimeoutError)


class _Changing(Unavailable):
    """No node of a cluster serves the slot of the tenant: it is being moved, or a replica is about to take over."""


class RedisStore(Closing):
    """One tenant of one Redis server or cluster; in a cluster, all data of a tenant is on one node."""

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
        what all keys begin with. `allow_eviction`: also use a server that evicts keys when it is full. `create`
        has no effect: there are no tables to create.
        """
        self._tenant = check_name(tenant, "tenant", empty=True)
        self._beginning = f"{quoted(check_name(prefix, 'prefix'))}:{{"
        self._prefix = f"{self._beginning}{quoted(tenant)}.}}:"
        self._closed = False
        self._timeout = timeout
        self._client: Any = self._do(lambda: _client(url, timeout))
        self._scripts = {name: self._client.register_script(text) for name, text in _SCRIPTS.items()}
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
        row: CheckpointRow,
        parts: Sequence[StatePart],
        *,
        base: Base | None = None,
        expected_parent: str | Anything | None = ANYTHING,
        replace: bool = False,
        reopen: bool = False,
    ) -> int:
        compare = not isinstance(expected_parent, Anything)
        expected = quoted(expected_parent) if isinstance(expected_parent, str) else ""
        status, *more = self._script(
            "COMMIT", *map(quoted, row.place), _optional(row.parent_id), _optional(row.run_id), row.saved_at,
            row.family, row.digest, row.meta, row.refs, row.shape, *(base or ("", "")),
            int(compare), expected, int(replace), int(reopen), *(value for part in parts for value in part),
        )  # fmt: skip
        if status == b"stale":
            raise Stale
        store.check_commit(
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
            raise store.session_exists(session)
        return [int(number) for number in numbers]

    # deleting

    def delete(
        self, places: Iterable[Place], *, if_are: Sequence[SessionRow] = (), families: Mapping[str, int] | None = None
    ) -> int:
        wanted = families or {}
        members = [value for place in places for value in (member_of(place), wanted.get(place.session, ""))]
        looked = [value for each in if_are for value in (quoted(each.session), each.latest, each.saved_at)]
        gone = self._script("DELETE", len(if_are), *looked, *members) if members else 0
        if gone is None:
            raise Stale
        return int(gone)

    def delete_session(self, session: str, *, tombstone: bool, if_is: SessionRow | None = None) -> int:
        wanted = (if_is.latest, if_is.saved_at) if if_is else ()
        return int(self._script("DELETE_SESSION", quoted(session), int(tombstone), *wanted))

    def reopen(self, session: str, *, family: int | None = None, saved_at: int = 0) -> bool:
        begun = () if family is None else (family, saved_at)
        return bool(self._script("REOPEN", quoted(session), *begun))

    def add_tombstone(self, session: str) -> bool:
        return bool(self._script("ADD_TOMBSTONE", quoted(session)))

    def clear(self) -> None:
        self._script("CLEAR")

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
        pairs = (value for write in writes for value in _pair(write))
        wanted = "" if family is None else family
        if not self._script("ADD_WRITES", member_of(place), int(replace), wanted, *pairs):
            raise store.session_deleted(place.session)

    # reading: one key at a time, so that a slot of a cluster may be moved meanwhile

    def find(self, session: str, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
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
    ) -> list[CheckpointRow]:
        index = self._index(session, namespace, run_id)
        found: list[CheckpointRow] = []
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
    ) -> list[CheckpointRow]:
        """Reads all names of the namespace, and as many rows as the limit."""
        index = self._index(session, namespace, None)
        members = cast("list[bytes]", self._do(lambda: self._client.zrange(index, 0, -1)))
        by_id = {unquoted(member.rpartition(b":")[2]): member for member in members}
        left = iter(sorted((each for each in by_id if before is None or each < before), reverse=True))
        found: list[CheckpointRow] = []
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
        """The smallest set of members that contains all rows of the query."""
        if session is not None and namespace is not None:
            return f"{self._prefix}ns:{quoted(session)}:{quoted(namespace)}"
        if session is not None:
            return f"{self._prefix}all:{quoted(session)}"
        return f"{self._prefix}every" if run_id is None else f"{self._prefix}run:{quoted(run_id)}"

    def _rows(self, members: Sequence[bytes], fields: Sequence[str]) -> list[CheckpointRow]:
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
        pipe = self._client.pipeline(transaction=False)  # a full server refuses transactions, even those that only read
        pipe.hmget(f"{self._prefix}refs:{family}", names)
        pipe.hmget(f"{self._prefix}parts:{family}", names)
        pipe.hmget(f"{self._prefix}refs:{family}", names)  # if they differ, the part was added or deleted in between
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

    def sizes(self, sessions: Sequence[str]) -> list[SizeRow]:
        found = ((name, self._script("SIZES", quoted(name))) for name in sessions)
        return [SizeRow(name, *map(int, numbers)) for name, numbers in found if numbers]

    def tenants(self) -> list[str]:
        """Scans all keys, some at a time, without blocking others."""
        found = set()
        for end in (".}:sessions", ".}:dead", ".}:written"):
            scan = partial(self._client.scan_iter, f"{self._beginning}*{end}", _SCANNED)
            found |= {unquoted(key[len(self._beginning) : -len(end)]) for key in self._do(lambda scan=scan: [*scan()])}
        return sorted(found)

    # the server

    def _script(self, name: str, *values: Any) -> Any:
        """Run a script; while no node serves the slot of the tenant, retry."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                return self._do(lambda: self._scripts[name](keys=[self._prefix], args=values))
            except _Changing:
                if time.monotonic() > until:
                    raise

    def _do(self, call: Any) -> Any:
        if self._closed:
            raise Refused("this store is closed", hint="Open it again.")
        try:
            return call()
        except redis.OutOfMemoryError as error:
            raise Unavailable(f"Redis is full: {error}", hint="Delete or prune, or raise its maxmemory.") from error
        except _LOST as error:
            raise Unavailable(f"Redis is not reachable: {error}", hint="Try again when it is back.") from error
        except redis.exceptions.ClusterDownError as error:
            raise _Changing(f"the Redis cluster is down: {error}", hint="Try again when it is back.") from error
        except redis.exceptions.ClusterError as error:
            raise _Changing("Redis is moving this tenant to another node", hint="Try again in a moment.") from error
        except (redis.RedisError, RedisClusterException) as error:
            raise Unavailable(f"Redis returned an error: {error}", hint="See the log of the Redis server.") from error

    def _check_eviction(self) -> None:
        """Refuse a server that evicts any key when it is full: it would delete parts of states."""
        for told in self._do(lambda: _memory(self._client)):
            policy = str(told.get("maxmemory_policy", ""))
            if int(told.get("maxmemory", 0)) and policy.startswith("allkeys"):
                raise Refused(
                    f"this Redis evicts keys when it is full ({policy})",
                    hint="Set its maxmemory-policy to noeviction; or pass allow_eviction=True and lose states.",
                )

    def close(self) -> None:
        self._closed = True
        self._client.close()


def _client(url: str, timeout: float) -> Any:
    """A client. The message for a bad URL leaves it out: it may contain a password."""
    scheme, colon, rest = url.partition(":")
    options: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.02), _TRIES),  # a repeated call has the same result
    }
    try:
        if scheme.endswith(_CLUSTER):
            return redis.RedisCluster.from_url(scheme.removesuffix(_CLUSTER) + colon + rest, **options)
        client = redis.Redis.from_url(url, retry_on_error=[*_LOST], **options)
        client.connection_pool.make_connection()  # knows the options of the URL; connects to nothing yet
    except (ValueError, TypeError):
        raise Refused(
            "cannot parse this Redis URL",
            hint="Write redis://host:6379/0; escape special characters of a password, as in %40.",
        ) from None
    return client


def _memory(client: Any) -> list[dict[str, Any]]:
    """The memory settings of each server; empty if the user may not read them."""
    try:
        if isinstance(client, redis.RedisCluster):
            primaries = client.nodes_manager.get_nodes_by_server_type("primary")
            return [client.info("memory", target_nodes=[node]) for node in primaries]
        return [client.info("memory")]
    except redis.ResponseError:
        return []


def _optional(name: str | None) -> str:
    return "" if name is None else quoted(name)


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _pair(write: WriteRow) -> tuple[str, bytes]:
    """The field of a write, and its value."""
    return f"{quoted(write.task_id)}:{write.idx}", encode([*map(_as_bytes, write[:-1]), write.data])


def quoted(name: str) -> str:
    return quote(name.encode("utf-8", "surrogatepass"), safe="")


def unquoted(quoted: bytes) -> str:
    return unquote_to_bytes(quoted).decode("utf-8", "surrogatepass")


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def member_of(place: Place) -> bytes:
    return ":".join(map(quoted, place)).encode()


def _row(member: bytes, values: Sequence[Any]) -> CheckpointRow:
    sequence, parent, run, saved_at, family, digest, meta, *whole = values
    place = Place(*map(unquoted, member.split(b":")))
    if any(value is None for value in values):
        raise Damaged(f"checkpoint {place.checkpoint_id} is incomplete", hint="Use another checkpoint.")
    refs, shape = cast("tuple[bytes, bytes]", whole or (b"", b""))
    parent, run = (unquoted(name) if name else None for name in (parent, run))
    number, at, own = _numbers(f"checkpoint {place.checkpoint_id}", sequence, saved_at, family)
    return CheckpointRow(place, number, parent, run, at, digest, meta, refs, shape, own)


def _write(value: bytes) -> WriteRow:
    fields = decode(value)
    if not isinstance(fields, list) or len(fields) != len(WriteRow._fields) or type(fields[1]) is not int:
        raise Damaged("a stored write is corrupt", hint="Delete its checkpoint.")
    return WriteRow._make([*map(_as_text, fields[:-1]), fields[-1]])


def _numbers(what: str, *values: Any) -> list[int]:
    try:
        return [int(value or 0) for value in values]
    except ValueError:
        raise Damaged(f"a stored number of {what} is corrupt", hint="Use another checkpoint.") from None


def _session(session: str, values: Sequence[Any]) -> SessionRow:
    family, latest, count, saved_at, deleted = _numbers(f"session {session!r}", *values)
    return SessionRow(session, family, latest, count, saved_at, bool(deleted))


# The scripts. Each runs alone, and reaches the log of the server whole or not at all (P3).
#
# A server that is full refuses the first call of a script that may need memory, but none after a change: so scripts
# that free memory begin with a `DEL`.
#
# Each begins by looking for two keys that never exist. While a slot of a cluster is being moved neither node lets a
# script do that, nor knows all keys of the slot: nothing is changed, and the client tries again.
#
# Keys begin with KEYS[1], which has the tenant as its hash tag: all of a tenant is on one node of a cluster. A member
# is `session:namespace:id`, each quoted.
#
#    seq                     the greatest number given
#    usage                   counts of rows, parts and their bytes
#    sessions, dead          sorted set of sessions by their latest number; set of those that were deleted
#    s:SESSION               hash: family, latest, count, at, deleted
#    row:MEMBER              hash: seq, parent, run, at, family, digest, meta, refs, shape
#    every, all:SESSION, ns:SESSION:NAMESPACE, run:RUN    sorted sets of members by number
#    of:FAMILY               set of the members of a family
#    parts:FAMILY            hash of parts; refs:FAMILY: the refs of those that have any
#    w:MEMBER                hash of writes; ws:SESSION: set of the members that have any

_COMMON = """
local P = KEYS[1]
local function key(...) return P .. table.concat({...}) end
local looked = redis.pcall('EXISTS', key('never'), key('nowhere'))
if type(looked) == 'table' then return redis.error_reply('TRYAGAIN the slot of this tenant is being moved') end
local function count(field, by) redis.call('HINCRBY', key('usage'), field, by) end
local function row_size(member)
    local row = key('row:', member)
    return redis.call('HSTRLEN', row, 'meta') + redis.call('HSTRLEN', row, 'refs') + redis.call('HSTRLEN', row, 'shape')
end
local function indexes(member, run)
    local s, n = string.match(member, '^([^:]*):?([^:]*)')
    local found = {key('every'), key('all:', s), key('ns:', s, ':', n)}
    if run and run ~= '' then found[4] = key('run:', run) end
    return found
end
local function drop_writes(member)
    local values = redis.call('HVALS', key('w:', member))
    redis.call('DEL', key('w:', member))
    for _, value in ipairs(values) do count('row_bytes', -#value) end
    redis.call('SREM', key('ws:', string.match(member, '^([^:]*):')), member)
end
local function is_of(s, family)
    local known = family ~= '' and redis.call('HGET', key('s:', s), 'family')
    return not known or known == family
end
local function drop_row(member)
    local row = key('row:', member)
    local found = redis.call('HMGET', row, 'seq', 'family', 'run')
    drop_writes(member)
    if not found[1] then return nil end
    count('row_bytes', -row_size(member))
    count('checkpoints', -1)
    for _, index in ipairs(indexes(member, found[3])) do redis.call('ZREM', index, member) end
    redis.call('SREM', key('of:', found[2]), member)
    redis.call('HINCRBY', key('s:', string.match(member, '^([^:]*):')), 'count', -1)
    redis.call('DEL', row)
    return found[2]
end
local function add_names(refs, live, todo)
    for at = 1, #refs, 16 do
        local name = string.sub(refs, at, at + 15)
        if not live[name] then live[name] = true; todo[#todo + 1] = name end
    end
end
local function sweep(family)
    local live, todo = {}, {}
    for _, member in ipairs(redis.call('SMEMBERS', key('of:', family))) do
        add_names(redis.call('HGET', key('row:', member), 'refs') or '', live, todo)
    end
    while #todo > 0 do
        local refs = redis.call('HGET', key('refs:', family), table.remove(todo))
        if refs then add_names(refs, live, todo) end
    end
    for _, name in ipairs(redis.call('HKEYS', key('parts:', family))) do
        if not live[name] then
            count('parts', -1)
            local size = redis.call('HSTRLEN', key('parts:', family), name)
            count('part_bytes', -size - redis.call('HSTRLEN', key('refs:', family), name))
            redis.call('HDEL', key('parts:', family), name)
            redis.call('HDEL', key('refs:', family), name)
        end
    end
end
"""

_ADDING = """
local function is_there(number, digest)
    local found = redis.call('ZRANGEBYSCORE', key('every'), number, number)[1]
    return found and redis.call('HGET', key('row:', found), 'digest') == digest
end
local function put_row(member, parent, run, at, family, digest, meta, refs, shape)
    local s = string.match(member, '^([^:]*):')
    local row = key('row:', member)
    local seq, old = unpack(redis.call('HMGET', row, 'seq', 'run'))
    if seq then
        if old and old ~= '' then redis.call('ZREM', key('run:', old), member) end
        count('row_bytes', -row_size(member))
    else
        seq = redis.call('INCR', key('seq'))
        count('checkpoints', 1)
        redis.call('HINCRBY', key('s:', s), 'count', 1)
        redis.call('HSET', key('s:', s), 'latest', seq)
        redis.call('ZADD', key('sessions'), seq, s)
    end
    local was = redis.call('HGET', key('s:', s), 'at')
    local noted = was and tonumber(was) > tonumber(at) and was or at
    redis.call('HSET', key('s:', s), 'family', family, 'at', noted, 'deleted', '0')
    redis.call('HSET', row, 'seq', seq, 'parent', parent, 'run', run, 'at', at, 'family', family, 'digest', digest,
        'meta', meta, 'refs', refs, 'shape', shape)
    for _, index in ipairs(indexes(member, run)) do redis.call('ZADD', index, seq, member) end
    redis.call('SADD', key('of:', family), member)
    count('row_bytes', row_size(member))
    return seq
end
"""

_WRITING = """
local function put_write(member, field, value)
    local s = string.match(member, '^([^:]*):')
    local old = redis.call('HSTRLEN', key('w:', member), field)
    redis.call('SADD', key('ws:', s), member)
    redis.call('ZADD', key('written'), 0, s)
    count('row_bytes', #value - old)
    redis.call('HSET', key('w:', member), field, value)
end
"""

_COMMIT = f"""{_COMMON}{_ADDING}
local s, n, c, parent, run, at, family, digest, meta, refs, shape, base, base_digest, compare, expected, replacing,
    reopening = unpack(ARGV, 1, 17)
local member = s .. ':' .. n .. ':' .. c
local row = key('row:', member)
local there = redis.call('HGET', row, 'digest')
if there == digest then return {{'saved', redis.call('HGET', row, 'seq')}} end
local known = redis.call('HMGET', key('s:', s), 'family', 'deleted')
local reborn = known[2] == '1' and reopening == '1' and known[1] ~= family
if known[2] == '1' and not reborn then return {{'deleted'}} end
if there and replacing ~= '1' then return {{'taken'}} end
if compare == '1' then
    local newest = redis.call('ZREVRANGE', key('ns:', s, ':', n), 0, 0)[1]
    newest = newest and string.match(newest, '([^:]*)$') or ''
    if newest ~= expected then return {{'moved', newest}} end
end
if known[1] and known[1] ~= family and not reborn then return {{'stale'}} end
if base ~= '' and not is_there(base, base_digest) then return {{'stale'}} end
if reborn then
    redis.call('DEL', key('s:', s))
    redis.call('SREM', key('dead'), s)
end
for i = 18, #ARGV, 3 do
    if redis.call('HSETNX', key('parts:', family), ARGV[i], ARGV[i + 2]) == 1 then
        count('parts', 1)
        count('part_bytes', #ARGV[i + 1] + #ARGV[i + 2])
        if ARGV[i + 1] ~= '' then redis.call('HSET', key('refs:', family), ARGV[i], ARGV[i + 1]) end
    end
end
local seq = put_row(member, parent, run, at, family, digest, meta, refs, shape)
if there then sweep(family) end
return {{'saved', tostring(seq)}}
"""

_BEGIN = f"""{_COMMON}{_ADDING}{_WRITING}
local s, family, reopening, rows = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local deleted = redis.call('HGET', key('s:', s), 'deleted')
if deleted and not (deleted == '1' and reopening == '1') then return {{'exists'}} end
for i = 5, 4 + 10 * rows, 10 do
    if not is_there(ARGV[i + 8], ARGV[i + 9]) then return {{'stale'}} end
end
count('checkpoints', 0)
redis.call('SREM', key('dead'), s)
redis.call('DEL', key('s:', s))
local numbers = {{'saved'}}
for i = 5, 4 + 10 * rows, 10 do
    numbers[#numbers + 1] = put_row(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], family, unpack(ARGV, i + 4, i + 7))
end
for i = 5 + 10 * rows, #ARGV, 3 do put_write(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return numbers
"""

_LOOKING = """
local function is_still(s, latest, at)
    local known = redis.call('HMGET', key('s:', s), 'latest', 'at', 'deleted')
    return known[1] == latest and known[2] == at and known[3] ~= '1'
end
"""

_DELETE = f"""{_COMMON}{_LOOKING}
local gone, families, first = 0, {{}}, 2 + 3 * ARGV[1]
for i = 2, first - 1, 3 do
    if not is_still(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then return false end
end
for i = first, #ARGV, 2 do
    local family = is_of(string.match(ARGV[i], '^([^:]*):'), ARGV[i + 1]) and drop_row(ARGV[i])
    if family then gone = gone + 1; families[family] = true end
end
for family in pairs(families) do sweep(family) end
return gone
"""

_DELETE_SESSION = f"""{_COMMON}{_LOOKING}
local s = ARGV[1]
local gone = 0
if ARGV[3] and not is_still(s, ARGV[3], ARGV[4]) then return 0 end
for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do drop_writes(member) end
local family = redis.call('HGET', key('s:', s), 'family')
for _, member in ipairs(redis.call('ZRANGE', key('all:', s), 0, -1)) do
    if drop_row(member) then gone = gone + 1 end
end
redis.call('ZREM', key('sessions'), s)
redis.call('SREM', key('dead'), s)
if family and ARGV[2] == '1' then
    redis.call('HSET', key('s:', s), 'deleted', '1', 'count', 0)
    redis.call('SADD', key('dead'), s)
else
    redis.call('DEL', key('s:', s))
end
if family then sweep(family) end
return gone
"""

_REOPEN = f"""{_COMMON}
if redis.call('SREM', key('dead'), ARGV[1]) == 0 then return 0 end
if ARGV[2] then
    local s = key('s:', ARGV[1])
    redis.call('HSET', s, 'family', ARGV[2], 'at', ARGV[3], 'deleted', '0')
    redis.call('ZADD', key('sessions'), redis.call('HGET', s, 'latest'), ARGV[1])
else
    redis.call('DEL', key('s:', ARGV[1]))
end
return 1
"""

_ADD_TOMBSTONE = f"""{_COMMON}
if redis.call('EXISTS', key('s:', ARGV[1])) == 1 then return 0 end
redis.call('HSET', key('s:', ARGV[1]), 'family', 0, 'latest', 0, 'count', 0, 'at', 0, 'deleted', '1')
redis.call('SADD', key('dead'), ARGV[1])
return 1
"""

_SIZES = f"""{_COMMON}
local s = ARGV[1]
local family, deleted = unpack(redis.call('HMGET', key('s:', s), 'family', 'deleted'))
if not family or deleted == '1' then return false end
local rows, parts, sessions, seen = 0, 0, 0, {{}}
for _, member in ipairs(redis.call('ZRANGE', key('all:', s), 0, -1)) do rows = rows + row_size(member) end
for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do
    for _, value in ipairs(redis.call('HVALS', key('w:', member))) do rows = rows + #value end
end
for _, name in ipairs(redis.call('HKEYS', key('parts:', family))) do
    parts = parts + redis.call('HSTRLEN', key('parts:', family), name)
    parts = parts + redis.call('HSTRLEN', key('refs:', family), name)
end
for _, member in ipairs(redis.call('SMEMBERS', key('of:', family))) do
    local other = string.match(member, '^([^:]*):')
    if not seen[other] then seen[other] = true; sessions = sessions + 1 end
end
return {{rows, family, parts, sessions}}
"""

_CLEAR = f"""{_COMMON}
for _, member in ipairs(redis.call('ZRANGE', key('every'), 0, -1)) do
    local found = redis.call('HMGET', key('row:', member), 'family', 'run')
    for _, index in ipairs(indexes(member, found[2])) do redis.call('DEL', index) end
    local family = found[1] or redis.call('HGET', key('s:', string.match(member, '^([^:]*)')), 'family') or ''
    redis.call('DEL', key('row:', member), key('of:', family), key('parts:', family), key('refs:', family))
end
for _, set in ipairs({{'sessions', 'written'}}) do
    for _, s in ipairs(redis.call('ZRANGE', key(set), 0, -1)) do
        for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do redis.call('DEL', key('w:', member)) end
        redis.call('DEL', key('s:', s), key('ws:', s))
    end
end
for _, s in ipairs(redis.call('SMEMBERS', key('dead'))) do redis.call('DEL', key('s:', s)) end
redis.call('DEL', key('every'), key('sessions'), key('written'), key('dead'), key('usage'))
return 1
"""

_ADD_WRITES = f"""{_COMMON}{_WRITING}
local member, replacing = ARGV[1], ARGV[2]
local s = string.match(member, '^([^:]*):')
if redis.call('HGET', key('s:', s), 'deleted') == '1' or not is_of(s, ARGV[3]) then return 0 end
for i = 4, #ARGV, 2 do
    if replacing == '1' or redis.call('HEXISTS', key('w:', member), ARGV[i]) == 0 then
        put_write(member, ARGV[i], ARGV[i + 1])
    end
end
return 1
"""

_SCRIPTS = {
    "COMMIT": _COMMIT,
    "BEGIN": _BEGIN,
    "DELETE": _DELETE,
    "DELETE_SESSION": _DELETE_SESSION,
    "REOPEN": _REOPEN,
    "ADD_TOMBSTONE": _ADD_TOMBSTONE,
    "CLEAR": _CLEAR,
    "ADD_WRITES": _ADD_WRITES,
    "SIZES": _SIZES,
}
