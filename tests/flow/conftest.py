"""The servers, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from . import servers


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with TemporaryDirectory(prefix="hf-pg-") as folder, servers.postgres(Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with TemporaryDirectory(prefix="hf-redis-") as folder, servers.redis(Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    with TemporaryDirectory(prefix="hf-pgb-") as folder, servers.pgbouncer(postgres_url, Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    with TemporaryDirectory(prefix="hf-redis-") as folder, servers.redis_cluster(Path(folder)) as url:
        yield url
