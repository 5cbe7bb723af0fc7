"""Redis: the contract, and what only a server can do to its clients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis

from holdfast.errors import Damaged, Unavailable
from holdfast.flow import StateStore, open_states
from holdfast.flow.redis import RedisStore
from holdfast.testing.flow_contract import OpenStore, StateStoreContract, conversation, point

from . import servers

_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"test{next(_numbers)}"


class TestRedis(StateStoreContract):
    @pytest.fixture
    def open_store(self, redis_url: str, prefix: str) -> OpenStore:
        return lambda tenant="": RedisStore(redis_url, tenant=tenant, prefix=prefix)

    @pytest.fixture
    def stores(self, redis_url: str) -> Callable[[], StateStore]:
        return lambda: RedisStore(redis_url, prefix=f"other{next(_numbers)}")


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
                while time.monotonic() < stop:
                    states.save(point(f"c{saved}", {"messages": conversation(saved)}, step=saved))
                    saved += 1
            with pytest.raises(Unavailable):
                states.save(point("late"))
            states.close()
        assert saved > 4


def test_a_server_that_is_not_there_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Unavailable) as unavailable:
        RedisStore(f"unix://{tmp_path_factory.mktemp('none')}/nothing.sock")
    assert unavailable.value.hint


def test_parts_that_are_lost_are_noticed(redis_url: str, prefix: str) -> None:
    with open_states(redis_url, prefix=prefix) as states:
        states.save(point("c", {"messages": conversation(40)}))
        with redis.Redis.from_url(redis_url) as client:
            client.delete(*[key for key in client.scan_iter() if key.startswith(prefix.encode()) and b":parts:" in key])
        states.forget()
        states.forget_parts()
        with pytest.raises(Damaged):
            states.load("s")
