"""What all tests share: the tiers, and real servers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

import examples  # noqa: F401  # registers the profiles

settings.load_profile("quick")

_EXTRAS = re.compile(
    r"^(?:import|from) (?:agents|boto3|chromadb|claude_agent_sdk|faiss|flax|jax|lancedb|lightning|optax"
    r"|playwright|praisonaiagents|pydantic_ai|qdrant_client|starlette|static_model|torch|transformers)\b",
    re.MULTILINE,
)
_SERVERS = {"postgres_url", "pgbouncer_url", "redis_url", "redis_cluster_url", "wired"}
_MARK_OF_PARAMETER = {  # of tests that ask the same of each back end
    "postgres": pytest.mark.server,
    "redis": pytest.mark.server,
    "chroma": pytest.mark.extras,
    "faiss": pytest.mark.extras,
    "lancedb": pytest.mark.extras,
    "qdrant": pytest.mark.extras,
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file that `-m "not (…)"` leaves out as a whole: it may need torch, which takes seconds."""
    left_out = re.fullmatch(r"not \((.*)\)", config.option.markexpr)
    if left_out is None or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return True if _marks(collection_path) & set(re.findall(r"\w+", left_out[1])) else None


@cache
def _marks(path: Path) -> set[str]:
    """The marks of all tests in a file: those in its `pytestmark`, and `extras` if it imports such a package."""
    text = path.read_text()
    marks = re.search(r"^pytestmark = .*(\n    .*)*", text, re.MULTILINE)
    found = set(re.findall(r"pytest\.mark\.(\w+)", marks[0])) if marks else set()
    return found | {"extras"} if _EXTRAS.search(text) else found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the servers and packages that they use."""
    for item in items:
        if _SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
        if "extras" in _marks(item.path):
            item.add_marker(pytest.mark.extras)
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        for value in parameters:
            if isinstance(value, str) and value in _MARK_OF_PARAMETER:
                item.add_marker(_MARK_OF_PARAMETER[value])


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    import servers

    with TemporaryDirectory(prefix="hf-pg-") as folder, servers.postgres(Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    import servers

    with TemporaryDirectory(prefix="hf-redis-") as folder, servers.redis(Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def pgbouncer_url(postgres_url: str) -> Iterator[str]:
    import servers

    with TemporaryDirectory(prefix="hf-pgb-") as folder, servers.pgbouncer(postgres_url, Path(folder)) as url:
        yield url


@pytest.fixture(scope="session")
def redis_cluster_url() -> Iterator[str]:
    import servers

    with TemporaryDirectory(prefix="hf-redis-") as folder, servers.redis_cluster(Path(folder)) as url:
        yield url
