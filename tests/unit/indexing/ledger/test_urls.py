"""Ledgers by URL: which schema it names, and how long the network is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.indexing.ledger import _split_schema, open_ledger


def test_schemas_keep_indexes_in_one_database_apart(postgres_url: str, schema: str) -> None:
    """Or the documents of one project would be taken out as those that the other has not."""
    place = quote(schema, safe="")
    with open_ledger(f"{postgres_url}#{place}one") as one, open_ledger(f"{postgres_url}#{place}two") as two:
        one.begin("shape", {}, "store")
        assert one.id() != two.id()
        assert (len(one.generations()), len(two.generations())) == (1, 0)
    with open_ledger(f"{postgres_url}#{place}one") as again:
        assert len(again.generations()) == 1


@pytest.mark.parametrize(
    ("options", "waits_ms"), [({}, "30000"), ({"timeout_s": 7}, "7000"), ({"timeout_s": 1e8}, "1000000000")]
)
def test_silent_network_times_out(postgres: Callable[..., Any], options: dict[str, float], waits_ms: str) -> None:
    with postgres(**options) as ledger:
        assert ledger._connected().info.get_parameters()["tcp_user_timeout"] == waits_ms


def test_a_url_may_say_how_long_the_network_is_waited_for(postgres_url: str) -> None:
    sign = "&" if "?" in postgres_url else "?"
    with open_ledger(f"{postgres_url}{sign}tcp_user_timeout=7&connect_timeout=9") as ledger:
        said = ledger._connected().info.get_parameters()
        assert (said["tcp_user_timeout"], said["connect_timeout"], said["keepalives_idle"]) == ("7", "9", "30")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("postgresql://host/db", ("postgresql://host/db", "")),
        ("postgresql://host/db#docs", ("postgresql://host/db", "docs")),
        ("postgresql://me:a#b@host/db", ("postgresql://me:a#b@host/db", "")),
        ("postgresql://me:a#b@host/db#two%20words", ("postgresql://me:a#b@host/db", "two words")),
    ],
)
def test_a_sign_in_a_password_is_no_schema(place: str, found: tuple[str, str]) -> None:
    assert _split_schema(place) == found
