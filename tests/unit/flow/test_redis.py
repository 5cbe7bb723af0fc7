"""Redis: the contract, and what only a server can do to its clients."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest
import redis

import servers
from holdfast.errors import Damaged, HoldfastError, Refused, Unavailable
from holdfast.flow import Place, StateStore, Write, open_states
from holdfast.flow.redis import RedisStore
from holdfast.retention import Policy
from holdfast.testing.flow_contract import OpenStore, StateStoreContract, Work, conversation, point

pytestmark = pytest.mark.server

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"test{next(_numbers)}"


def _sent(client: redis.Redis, store: StateStore, call: Callable[[], Any]) -> int:
    """How many bytes the server sends."""

    def total() -> int:
        return int(client.info("stats")["total_net_output_bytes"])

    asking = -(total() - total())
    before = total()
    call()
    return total() - before - asking


class TestRedis(StateStoreContract):
    work_per_name = 40

    @pytest.fixture
    def open_store(self, redis_url: str, prefix: str) -> OpenStore:
        return lambda tenant="": RedisStore(redis_url, tenant=tenant, prefix=prefix)

    @pytest.fixture
    def work(self, redis_url: str) -> Iterator[Work]:
        with redis.Redis.from_url(redis_url) as client:
            yield partial(_sent, client)

    @pytest.fixture
    def stores(self, redis_url: str) -> Callable[[], StateStore]:
        return lambda: RedisStore(redis_url, prefix=f"other{next(_numbers)}")


class TestCluster(StateStoreContract):
    """Three nodes: a script that touched a key of another slot would be refused."""

    work_per_name = 20

    @pytest.fixture
    def open_store(self, redis_cluster_url: str, prefix: str) -> OpenStore:
        return lambda tenant="": RedisStore(redis_cluster_url, tenant=tenant, prefix=prefix)

    @pytest.fixture
    def stores(self, redis_cluster_url: str) -> Callable[[], StateStore]:
        return lambda: RedisStore(redis_cluster_url, prefix=f"other{next(_numbers)}")


def test_the_tenants_of_a_cluster_are_spread_over_its_nodes(redis_cluster_url: str, prefix: str) -> None:
    for tenant in "abcdef":
        with open_states(redis_cluster_url, prefix=prefix, tenant=tenant) as states:
            states.save(point("c", {"messages": conversation(10)}))
    with redis.RedisCluster.from_url(redis_cluster_url.replace("+cluster", "")) as client:
        held = [client.scan(match=f"{prefix}:*", count=10_000, target_nodes=node) for node in client.get_primaries()]
    assert all(keys for _, keys in held)


def test_it_is_opened_by_its_url(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        states.save(point())
        assert states.load("s") == point()


def test_all_keys_of_a_tenant_are_in_one_slot(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix, tenant="a{b}c") as states:
        states.save(point("c", {"messages": conversation(10)}, run_id="r"))
        with redis.Redis.from_url(redis_url) as client:
            keys = [key for key in client.scan_iter() if key.startswith(prefix.encode())]
    tags = {key.partition(b"{")[2].partition(b"}")[0] for key in keys}
    assert len(keys) > 5
    assert len(tags) == 1
    assert tags != {b""}


def test_clearing_leaves_no_key_but_the_number(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        for number in range(5):
            states.save(point("c", {"messages": conversation(10)}, f"s{number}", run_id="r"))
        states.delete("s0")
        states.clear_all()
        with redis.Redis.from_url(redis_url) as client:
            keys = [key for key in client.scan_iter() if key.startswith(prefix.encode())]
    assert [key.rpartition(b":")[2] for key in keys] == [b"seq"]


def test_connections_that_break_are_replaced(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        states.save(point("a", {"messages": conversation(10)}))
        with redis.Redis.from_url(redis_url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        states.save(point("b", {"messages": conversation(11)}))
        StateStoreContract.assert_sound(states)


def test_a_server_that_is_killed_and_comes_back_has_everything() -> None:
    """P3: kill -9 of the server, again and again, while a client saves."""
    program = servers.redis_program()
    with TemporaryDirectory(prefix="hf-redis-") as name:
        saved = 0
        for _ in range(4):
            with servers.running_redis(program, Path(name)) as url:
                states = open_states(url)
                found = states.list("s", None)
                assert {each.metadata.step for each in found} >= set(range(saved))
                assert all(each.state == {"messages": conversation(each.metadata.step)} for each in found)
                StateStoreContract.assert_sound(states)
                stop = time.monotonic() + 0.3
                saved = len(found)
                while time.monotonic() < stop or saved < len(found) + 2:
                    states.save(point(f"c{saved}", {"messages": conversation(saved)}, step=saved))
                    saved += 1
            with pytest.raises(Unavailable):
                states.save(point("late"))
            states.close()
        assert saved > 4


FULL = ("--maxmemory", "8mb", "--maxmemory-policy")


def test_a_full_server_keeps_what_it_has_and_can_be_emptied() -> None:
    """A save is whole or not there; what frees memory is never refused for want of it."""
    with (
        TemporaryDirectory(prefix="hf-redis-") as name,
        servers.running_redis(servers.redis_program(), Path(name), *FULL, "noeviction") as url,
        open_states(url, compress=False) as states,
    ):
        saved = 0
        states.save(point(session_id="gone"))
        states.delete("gone")
        with pytest.raises(Unavailable, match="full") as unavailable:
            for saved in range(1000):
                state = {"texts": [f"{saved}-{at} " * 1000 for at in range(10)]}
                states.put_writes(Place("s", "", f"c{saved}"), [Write("t", 0, "x", "y" * 2000)])
                states.save(point(f"c{saved}", state, run_id="r"))
        assert unavailable.value.hint
        assert saved > 10
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory", "1mb")  # far too full, whatever is deleted
        with pytest.raises(Unavailable, match="full"):
            states.put_writes(Place("s", "", "c0"), [Write("t", 1, "x", 1)])
        with pytest.raises(Unavailable, match="full"):
            states.fork("s", into="gone", reopen=True)
        assert states.store.tombstones() == ["gone"]
        states.forget()
        assert [each.checkpoint_id for each in reversed(states.metadata("s", None, run_id="r"))] == [
            f"c{number}" for number in range(saved)
        ]
        StateStoreContract.assert_sound(states)
        assert states.delete("s", "c0") == 1
        assert states.prune(Policy(keep_last=2)).removed
        StateStoreContract.assert_sound(states)
        states.delete("s")
        assert states.usage().total_bytes == 0


def test_a_server_that_would_throw_states_away_is_refused() -> None:
    with (
        TemporaryDirectory(prefix="hf-redis-") as name,
        servers.running_redis(servers.redis_program(), Path(name), *FULL, "allkeys-lru") as url,
    ):
        with pytest.raises(Refused, match="allkeys-lru") as refused:
            open_states(url)
        assert refused.value.hint
        with open_states(url, allow_eviction=True) as states:
            states.save(point())
        with redis.Redis.from_url(url) as client:
            client.config_set("maxmemory-policy", "volatile-lru")  # no key of a store is volatile
        open_states(url).close()


def test_a_closed_store_says_so(redis_url: str, prefix: str) -> None:
    states = open_states(redis_url, prefix=prefix)
    states.close()
    with pytest.raises(Refused, match="closed"):
        states.load("s")


@pytest.mark.parametrize("url", ["redis://localhost:x", "redis://localhost:99999999", "unix://"])
def test_a_url_that_is_none_is_said_so(url: str) -> None:
    with pytest.raises(HoldfastError) as error:
        open_states(url)
    assert error.value.hint


def test_a_cluster_that_is_none_is_said_so() -> None:
    """A single server on a port, asked as if it were one of many."""
    [port] = servers.free_ports(1)
    with (
        TemporaryDirectory(prefix="hf-redis-") as name,
        servers.running_redis(servers.redis_program(), Path(name), "--port", str(port), "--bind", "127.0.0.1"),
        pytest.raises(Unavailable) as unavailable,
    ):
        open_states(f"redis+cluster://127.0.0.1:{port}")
    assert unavailable.value.hint


def test_a_server_that_is_not_there_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Unavailable) as unavailable:
        RedisStore(f"unix://{tmp_path_factory.mktemp('none')}/nothing.sock")
    assert unavailable.value.hint


@pytest.mark.parametrize("value", ["", "junk", "1.5"])
@pytest.mark.parametrize(
    "key", ["row:s::c seq at family", "s:s family latest at", "usage parts part_bytes", "w:s::c task:0"]
)
def test_any_field_content_gives_typed_answers(redis_url: str, prefix: str, key: str, value: str) -> None:
    place = Place("s", "", "c")
    name, *fields = key.split()
    for field in fields:
        with open_states(redis_url, prefix=f"{prefix}{field}", ttl=timedelta(days=999)) as states:
            states.save(point("c", {"messages": conversation(40)}))
            states.put_writes(place, [Write("task", 0, "to", 1)])
            with redis.Redis.from_url(redis_url) as client:
                beginning = quote(f"{prefix}{field}", safe="")
                assert client.hset(f"{beginning}:{{.}}:{name}", field, value) == 0, "there is such a field"
            states.forget()
            for verb in (
                lambda: states.load("s"),
                lambda: states.metadata(None, namespace=None),
                states.sessions,
                lambda: states.writes([place]),
                states.verify,
                states.usage,
                lambda: states.copy_to(open_states("memory://"), go_on=True),
                lambda: states.fork("s", into="history", history=True),
                lambda: states.save(point("next")),
            ):
                with contextlib.suppress(HoldfastError):
                    verb()
            states.clear_all()
            states.save(point("c"))
            assert states.load("s") == point("c")


def test_store_with_evicted_rows_can_be_cleared(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        states.save(point("c", {"messages": conversation(40)}))
        with redis.Redis.from_url(redis_url) as client:
            client.delete(f"{prefix}:{{.}}:row:s::c")
            assert states.load("s") is None
            states.clear_all()
            left = [key for key in client.scan_iter() if key.startswith(prefix.encode() + b":")]
        assert left == [f"{prefix}:{{.}}:seq".encode()]


def test_parts_that_are_lost_are_noticed(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        states.save(point("c", {"messages": conversation(40)}))
        with redis.Redis.from_url(redis_url) as client:
            client.delete(*[key for key in client.scan_iter() if key.startswith(prefix.encode()) and b":parts:" in key])
        states.forget()
        states.forget_parts()
        with pytest.raises(Damaged):
            states.load("s")
        states.save(point("next", {"messages": conversation(41)}))
        states.forget()
        states.forget_parts()
        assert states.load("s") == point("next", {"messages": conversation(41)}), "nothing is taken for known"
