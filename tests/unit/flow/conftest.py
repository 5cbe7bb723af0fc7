"""Connections to the servers that can be cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import psycopg
import pytest

from .cutting import Wired, wire

_numbers = itertools.count()


@pytest.fixture(params=["postgres", "redis"])
def wired(request: pytest.FixtureRequest) -> Iterator[Wired]:
    """The URL of a server behind a wire, and the options of a store of one's own there."""
    url = request.getfixturevalue(f"{request.param}_url")
    own = f"lost{next(_numbers)}"
    with TemporaryDirectory(prefix="hf-wire-") as name:
        if request.param == "redis":
            with wire(Path(name) / "s", url.removeprefix("unix://")) as between:
                yield f"unix://{name}/s", {"prefix": own}, between
            return
        given = psycopg.conninfo.conninfo_to_dict(url)
        if not str(given.get("host", "")).startswith("/"):
            pytest.skip("the server has no socket")
        place = f".s.PGSQL.{given.get('port', 5432)}"
        with wire(Path(name) / place, f"{given['host']}/{place}") as between:
            yield f"postgresql://postgres@/postgres?host={quote(name, safe='')}", {"schema": own}, between
