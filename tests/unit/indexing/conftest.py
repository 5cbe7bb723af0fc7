from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .scene import Scene

_numbers = itertools.count()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def schema() -> str:
    return f"index {next(_numbers)}\"'"


@pytest.fixture
def postgres(postgres_url: str, schema: str) -> Callable[..., Any]:
    """Opens one ledger, in a schema of the test's own, again and again."""
    from holdfast.indexing.ledger.postgres import PostgresLedger

    return lambda **options: PostgresLedger(postgres_url, schema=schema, **options)
