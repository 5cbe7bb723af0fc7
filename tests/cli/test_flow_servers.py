"""The command line on PostgreSQL and Redis, and copies between them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.flow import Place, Write, open_states
from holdfast.testing.flow_contract import conversation, point

pytestmark = pytest.mark.server

_numbers = itertools.count()


def run(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    """The one document of a command."""
    code = main([*args, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    return found


@pytest.fixture(params=["postgres", "redis"])
def location(request: pytest.FixtureRequest) -> str:
    number = next(_numbers)
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return f"{url}{'&' if '?' in url else '?'}schema=cli%20{number}"
    return f"{request.getfixturevalue('redis_url')}?prefix=cli{number}"


def fill(url: str) -> None:
    for tenant in ("", "acme"):
        with open_states(url, tenant=tenant) as states:
            for number in range(4):
                states.save(point(f"c{number}", {"messages": conversation(number), "of": {1, 2}}, f"s|\n{tenant}"))
            states.put_writes(Place(f"s|\n{tenant}", "", "c3"), [Write("t", 0, "x", (1, 2))])
            states.save(point("x", session_id="dead"))
            states.delete("dead")
            states.fork(f"s|\n{tenant}", into="fork")


def told(capsys: pytest.CaptureFixture[str], url: str) -> Any:
    """All that the commands say of a location, but numbers, which are each store's own."""
    sessions = run(capsys, "log", url)["items"]
    shown = []
    for each in sorted(sessions, key=lambda each: (each["tenant"], each["session_id"])):
        more = ("--session", each["session_id"], "--tenant", each["tenant"])
        shown += run(capsys, "log", url, *more)["items"]
        shown.append(run(capsys, "show", url, *more)["checkpoint"])
        shown.append({key: each[key] for key in ("session_id", "tenant", "checkpoints", "saved_at")})
    return [{key: value for key, value in each.items() if key != "sequence"} for each in shown]


def test_every_command_works_on_a_server(capsys: pytest.CaptureFixture[str], location: str) -> None:
    fill(location)
    assert len(run(capsys, "log", location)["items"]) == 4
    shown = run(capsys, "show", location, "c2", "--session", "s|\n")["checkpoint"]
    assert shown["state"]["of"] == {"$set": [1, 2]}
    assert run(capsys, "diff", location, "c1", "c2", "--session", "s|\n")["changes"]
    assert run(capsys, "verify", location)["ok"]
    assert {each["session_id"] for each in run(capsys, "usage", location)["items"]} == {"s|\n", "s|\nacme", "fork"}
    rules = ("--session", "s|\n", "--keep-last", "1", "--yes")
    assert len(run(capsys, "prune", location, *rules)["items"]) == 3
    pages = []
    cursor: tuple[str, ...] = ()
    while len(pages) < 10:
        page = run(capsys, "log", location, "-n", "1", *cursor)
        pages += [(each["tenant"], each["session_id"]) for each in page["items"]]
        if page["next"] is None:
            break
        cursor = ("--before", str(page["next"]))
    assert sorted(pages) == [("", "fork"), ("", "s|\n"), ("acme", "fork"), ("acme", "s|\nacme")]


def test_a_copy_there_and_back_is_the_same(
    capsys: pytest.CaptureFixture[str], location: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    fill("sqlite:///from.db")
    run(capsys, "copy", "sqlite:///from.db", location)
    run(capsys, "copy", location, "sqlite:///back.db")
    before = told(capsys, "sqlite:///from.db")
    assert before == told(capsys, location) == told(capsys, "sqlite:///back.db")
    assert {each["state"]["of"]["$set"][0] for each in before if "state" in each} == {1}
    assert main(["log", "sqlite:///back.db", "--session", "dead"]) == 3
    assert "was deleted" in capsys.readouterr().err


def test_reading_makes_no_tables(capsys: pytest.CaptureFixture[str], postgres_url: str) -> None:
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema=cli%20new"
    for _ in range(2):
        assert main(["log", url]) == 3
        assert main(["copy", "--dry-run", url, "sqlite:///to.db"]) == 3
    assert "schema 'cli new'" in capsys.readouterr().err
