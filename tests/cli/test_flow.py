"""The general commands on a flow location, and `holdfast copy`, over SQLite."""

from __future__ import annotations

import base64
import json
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast.flow import MADE_OF_PARENTS, Checkpoint, CheckpointMetadata, Place, States, Write, open_states
from holdfast.serde import Registry, Serde, from_json, read_keys

if TYPE_CHECKING:
    from .conftest import Program

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
URL = "sqlite:///state.db"
ODD = [
    "a|b",
    "two\nlines",
    "\x1b[31mred",
    "back\\slash",
    "c1\x9b",
    "\u202eturned",
    " ",
    "a  b",
    "nul\0",
    "\ud800",
    "%",
    "ä☃",
]


class Cart(NamedTuple):
    items: tuple[str, ...]


REGISTRY = Registry()
REGISTRY.add(Cart, "shop.Cart", version=3, upgrades={1: dict, 2: dict})
STATE = {"cart": Cart(("tea",)), "set": {1, 2}, "price": Decimal("1.50"), "$key": {(1, 2): b"\0"}, "n": float("nan")}


def save(states: States, session: str, name: str, state: Any = None, **more: Any) -> None:
    fields: dict[str, Any] = {"timestamp": NOON, "node_name": "node", "step": 1} | more
    states.save(Checkpoint(CheckpointMetadata(name, session, **fields), {"n": name} if state is None else state))


@pytest.fixture
def opened(project: Path) -> Callable[..., States]:
    return lambda url=URL, **options: open_states(url, registry=REGISTRY, **options)


@pytest.fixture
def store(opened: Callable[..., States]) -> str:
    """Two sessions of the tenant without a name, one of another."""
    with opened() as states:
        for step in range(5):
            state = {"step": step, "messages": ["word " * 50] * step}
            save(states, "chat", f"c{step}", state, step=step, tags=("good",) if step == 3 else (), extra={"cost": 1})
        save(states, "chat", "inner-1", namespace="sub|graph")
        save(states, "other", "c1", STATE)
        states.put_writes(Place("other", "", "c1"), [Write("task", 0, "channel", Cart(("wrote",)))])
    with opened(tenant="acme") as states:
        save(states, "theirs", "t1")
    return URL


# log


def test_log_lists_the_sessions_of_all_tenants(holdfast: Program, store: str) -> None:
    lines = [line.split() for line in holdfast("log", store).out.splitlines()]
    assert [line[0] for line in lines] == ["session", "theirs", "other", "chat"]
    assert (lines[1][-1], lines[3][1]) == ("acme", "6")
    found = holdfast("log", store, "--json").json
    assert [(each["session_id"], each["tenant"], each["checkpoints"]) for each in found["items"]] == [
        ("theirs", "acme", 1), ("other", "", 1), ("chat", "", 6),
    ]  # fmt: skip
    assert all(each["bytes"] > 0 for each in found["items"])
    assert found["next"] is None
    only = holdfast("log", store, "--tenant", "acme", "--json").json["items"]
    assert [each["session_id"] for each in only] == ["theirs"]


def test_log_pages_through_sessions_and_checkpoints(holdfast: Program, store: str) -> None:
    for more, key, name, total in (
        ((), "items", "session_id", 3),
        (("--session", "chat"), "items", "checkpoint_id", 6),
    ):
        seen, cursor = [], None
        while cursor is not None or not seen:
            before = () if cursor is None else ("--before", str(cursor))
            page = holdfast("log", store, *more, "-n", "2", *before, "--json").json
            assert len(page[key]) <= 2
            seen += [each[name] for each in page[key]]
            cursor = page["next"]
        assert seen == [each[name] for each in holdfast("log", store, *more, "-n", "0", "--json").json[key]]
        assert len(seen) == total
    told = holdfast("log", store, "--session", "chat", "--tenant", "", "-n", "2").err.split(": ", 1)[1]
    again = shlex.split(told)
    assert again[:-1] == ["holdfast", "log", store, "--session", "chat", "--tenant", "", "-n", "2", "--before"]
    assert len(holdfast(*again[1:], "--json").json["items"]) == 2


def test_log_of_a_session_tells_what_each_checkpoint_is(holdfast: Program, store: str) -> None:
    lines = holdfast("log", store, "--session", "chat").out.splitlines()
    assert [line.split()[0] for line in lines] == ["checkpoint", "inner-1", "c4", "c3", "c2", "c1", "c0"]
    assert "good" in lines[3] and "sub|graph" in lines[1]
    [first, *_] = holdfast("log", store, "--session", "chat", "--namespace", "", "--json").json["items"]
    assert (first["checkpoint_id"], first["step"], first["timestamp"]) == ("c4", 4, NOON.isoformat())
    assert first["extra"] == {"cost": 1}


def test_a_session_that_is_not_there_is_said_and_where_it_is(holdfast: Program, store: str, opened) -> None:
    with opened() as states:
        save(states, "dead", "x")
        states.delete("dead")
    for session, said in (("nobody", "holdfast log"), ("theirs", "--tenant"), ("dead", "deleted")):
        ran = holdfast("log", store, "--session", session)
        assert ran.code == 3
        assert said in ran.err


# ids of any characters


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_any_name_is_escaped_and_accepted_back(holdfast: Program, opened: Callable[..., States], name: str) -> None:
    with opened() as states:
        save(states, name, name, node_name=name, tags=(name,), extra={name: name})
    for args in (
        ("log", URL),
        ("usage", URL),
        ("verify", URL),
        ("prune", URL, "--all", "--keep-last", "1", "--dry-run"),
    ):
        ran = holdfast(*args)
        assert ran.code == 0
        assert all(char.isprintable() or char == "\n" for char in ran.out + ran.err)
    [line] = holdfast("log", URL).out.splitlines()[1:]
    shown = line[: line.index("  1  ")].rstrip().removeprefix('"').removesuffix('"')
    for given in {shown, name} - {"nul\0", "\ud800"}:
        listed = holdfast("log", URL, "--session", given, "--json").json["items"]
        assert [each["checkpoint_id"] for each in listed] == [name]
        found = holdfast("show", URL, given, "--session", given)
        assert found.code == 0
        assert all(char.isprintable() or char == "\n" for char in found.out)
        assert holdfast("show", URL, given, "--session", given, "--json").json["checkpoint"]["session_id"] == name


# show


def test_show_prints_the_state_without_its_classes(holdfast: Program, store: str) -> None:
    shown = holdfast("show", store, "--session", "other").out
    assert 'shop.Cart (version 3) {items: tuple ["tea"]}' in shown
    assert "price: decimal 1.50" in shown
    assert "channel by task: shop.Cart (version 3)" in shown


def test_show_in_json_has_all_of_the_state(holdfast: Program, store: str) -> None:
    found = holdfast("show", store, "c1", "--session", "other", "--json").json["checkpoint"]
    again = Serde(REGISTRY).decode(from_json(json.dumps(found["state"])))
    assert repr(again) == repr(STATE)
    [write] = found["writes"]
    assert Serde(REGISTRY).decode(from_json(json.dumps(write["value"]))) == Cart(("wrote",))


@pytest.mark.parametrize(
    ("word", "meant"),
    [("c2", "c2"), ("latest", "c4"), ("latest~1", "c3"), ("inner", "inner-1"), (None, "c4")],
)
def test_checkpoint_is_named_by_id_prefix_or_position(
    holdfast: Program, store: str, word: str | None, meant: str
) -> None:
    words = [] if word is None else [word]
    ran = holdfast("show", store, *words, "--session", "chat", "--json")
    assert ran.json["checkpoint"]["checkpoint_id"] == meant


def test_a_word_that_means_nothing_or_several_is_said(holdfast: Program, store: str, opened) -> None:
    with opened() as states:
        save(states, "chat", "inner-1", namespace="another")
        save(states, "chat", "c2", namespace="another")
        save(states, "chat", "latest~1")
    assert holdfast("show", store, "zz", "--session", "chat").code == 3
    assert holdfast("show", store, "latest~99", "--session", "chat").code == 3
    ambiguous = holdfast("show", store, "c", "--session", "chat")
    assert ambiguous.code == 6 and "6 checkpoints begin" in ambiguous.err
    twice = holdfast("show", store, "inner-1", "--session", "chat")
    assert twice.code == 6 and "--namespace" in twice.err
    one = holdfast("show", store, "inner-1", "--session", "chat", "--namespace", "another", "--json")
    assert one.json["checkpoint"]["namespace"] == "another"
    main = holdfast("show", store, "c2", "--session", "chat", "--json")  # not that of another namespace
    assert main.json["checkpoint"]["namespace"] == ""
    exact = holdfast("show", store, "latest~1", "--session", "chat", "--json")  # an id is an id
    assert exact.json["checkpoint"]["checkpoint_id"] == "latest~1"


def test_naive_and_extreme_times_are_shown(holdfast: Program, opened) -> None:
    with opened() as states:
        for number, moment in enumerate((datetime.min, datetime.max.replace(tzinfo=UTC), datetime(2026, 1, 2))):
            save(states, "s", f"c{number}", timestamp=moment)
    assert holdfast("log", URL, "--session", "s").code == 0
    assert "2026-01-02 00:00:00" in holdfast("show", URL, "--session", "s").out


# diff


def test_unregistered_classes_can_be_shown(holdfast: Program, opened) -> None:
    with opened() as states:
        for number in range(3):
            save(states, "s", f"c{number}", {"cart": Cart(("tea",) * number)}, extra={"of": Cart(())})
    [newest, *_] = holdfast("log", URL, "--session", "s", "--json").json["items"]
    assert newest["extra"] == {"of": {"$object": ["shop.Cart", 3, {"items": {"$tuple": []}}]}}
    changed = holdfast("diff", URL, "c1", "c2", "--session", "s").out
    assert (
        changed
        == """~ ['cart']: shop.Cart (version 3) {items: tuple ["tea"]} → \
shop.Cart (version 3) {items: tuple ["tea", "tea"]}\n"""
    )
    assert holdfast("prune", URL, "--session", "s", "--keep-last", "1", "--yes").code == 0
    assert holdfast("copy", URL, "sqlite:///to.db").code == 0


def test_diff_names_every_place_that_differs(holdfast: Program, store: str) -> None:
    found = holdfast("diff", store, "c1", "c2", "--session", "chat", "--json").json
    assert [(each["kind"], each["path"]) for each in found["changes"]] == [
        ("changed", "['step']"), ("added", "['messages'][1]"),
    ]  # fmt: skip
    assert (found["changes"][0]["before"], found["changes"][0]["after"]) == (1, 2)
    assert "~ ['step']: 1 → 2" in holdfast("diff", store, "c1", "c2", "--session", "chat").out
    last_two = holdfast("diff", store, "--session", "chat", "--json").json
    assert (last_two["before"]["checkpoint_id"], last_two["after"]["checkpoint_id"]) == ("c3", "c4")
    assert holdfast("diff", store, "c0", "inner-1", "--session", "chat").code == 6
    alone = holdfast("diff", store, "--session", "other")
    assert alone.code == 3 and "none before it" in alone.err


# prune


def test_prune_shows_its_plan_asks_and_deletes_just_that(holdfast: Program, store: str) -> None:
    rules = ("--session", "chat", "--keep-last", "2")
    planned = holdfast("prune", store, *rules, "--dry-run", "--json").json["items"]
    assert [each["checkpoint_id"] for each in planned] == ["c0", "c1", "c2", "c3"]
    assert "chat / c0" in holdfast("prune", store, *rules, "--dry-run").out
    refused = holdfast("prune", store, *rules)
    assert refused.code == 6 and "Would delete" in refused.err
    assert len(holdfast("log", store, "--session", "chat", "--json").json["items"]) == 6
    done = holdfast("prune", store, *rules, "--yes", "--json").json
    assert done["items"] == planned and done["pruned"]["bytes_freed"] > 0
    left = holdfast("log", store, "--session", "chat", "--json").json["items"]
    assert [each["checkpoint_id"] for each in left] == ["inner-1", "c4"]
    assert "Nothing to delete" in holdfast("prune", store, *rules, "--yes").out


def test_prune_of_all_stays_with_one_tenant(holdfast: Program, store: str, opened) -> None:
    with opened(tenant="acme") as states:
        save(states, "theirs", "t2")
    ran = holdfast("prune", store, "--all", "--keep-per-session", "1", "--yes")
    assert "acme" in ran.err and ran.code == 0
    assert len(holdfast("log", store, "--session", "chat", "--json").json["items"]) == 2
    assert len(holdfast("log", store, "--session", "theirs", "--tenant", "acme", "--json").json["items"]) == 2


def test_prune_wants_to_know_of_what_and_what_to_keep(holdfast: Program, store: str) -> None:
    assert holdfast("prune", store, "--keep-last", "1").code == 2
    assert holdfast("prune", store, "--all", "--session", "chat", "--keep-last", "1").code == 2
    assert holdfast("prune", store, "--all").code == 6


def test_prune_leaves_delta_channels_whole(holdfast: Program, opened) -> None:
    with opened() as states:
        for name, parent in (("a", None), ("b", "a"), ("c", "b")):
            marks = {"messages": name == "c"}
            save(states, "s", name, parent_id=parent, extra={MADE_OF_PARENTS: marks})
    ran = holdfast("prune", URL, "--session", "s", "--keep-last", "1", "--yes")
    assert ran.code == 0
    left = holdfast("log", URL, "--session", "s", "--json").json["items"]
    assert [each["checkpoint_id"] for each in left] == ["c", "b"]


# verify, usage


def test_verify_names_what_is_damaged(holdfast: Program, store: str) -> None:
    assert holdfast("verify", store).code == 0
    with closing(sqlite3.connect("state.db")) as db, db:
        db.execute("UPDATE checkpoints SET digest = x'00' WHERE checkpoint_id = 't1'")
        db.execute("UPDATE writes SET data = x'ff'")
    db.close()
    damaged = holdfast("verify", store)
    assert damaged.code == 5
    assert "other/c1" in damaged.out and "tenant acme: theirs/t1" in damaged.out
    assert "chat" not in damaged.out
    found = holdfast("verify", store, "--json")
    assert found.code == 5 and found.json["ok"] is False
    assert holdfast("verify", store, "--session", "chat").code == 0
    assert holdfast("verify", store, "--session", "other").code == 5


def test_what_is_damaged_hides_nothing_else(holdfast: Program, store: str) -> None:
    with closing(sqlite3.connect("state.db")) as db, db:
        db.execute("UPDATE checkpoints SET meta = x'0091c0' WHERE checkpoint_id = 'c3'")
        db.execute("UPDATE sessions SET saved_at = 9223372036854775807 WHERE session = 'other'")
    db.close()
    assert holdfast("log", store).code == holdfast("usage", store).code == 0
    listed = holdfast("log", store, "--session", "chat")
    assert listed.code == 0 and "damaged" in listed.out and "c0" in listed.out
    [broken] = [each for each in holdfast("log", store, "--session", "chat", "--json").json["items"] if "error" in each]
    assert broken["checkpoint_id"] == "c3"
    assert holdfast("show", store, "c3", "--session", "chat").code == 5
    copied = holdfast("copy", store, "sqlite:///to.db")
    assert copied.code == 5 and "chat / c3 was not copied" in copied.err
    left = holdfast("log", "sqlite:///to.db", "--session", "chat", "--json").json["items"]
    assert [each["checkpoint_id"] for each in left] == ["inner-1", "c4", "c2", "c1", "c0"]


def test_a_tenant_that_is_not_there_is_said_and_which_are(holdfast: Program, store: str) -> None:
    more = {"log": (), "verify": (), "usage": (), "copy": ("sqlite:///to.db",), "prune": ("--all", "--keep-last", "1")}
    more["show"] = ("--session", "chat")
    for command, args in more.items():
        ran = holdfast(command, store, *args, "--tenant", "acne")
        assert ran.code == 3 and "'acme'" in ran.err, command


def test_usage_tells_bytes_by_session(holdfast: Program, store: str, opened) -> None:
    with opened() as states:
        states.fork("chat", "c4", into="fork")
        total = states.usage().total_bytes
    found = holdfast("usage", store, "--json").json
    assert {(each["session_id"], each["tenant"]) for each in found["items"]} == {
        ("chat", ""), ("fork", ""), ("other", ""), ("theirs", "acme"),
    }  # fmt: skip
    assert {each["tenant"]: each["total_bytes"] for each in found["tenants"]}[""] == total
    assert holdfast("usage", store, "-n", "1", "--json").json["more"] == 3
    assert "chat" in holdfast("usage", store, "--session", "chat").out
    assert "acme" in holdfast("usage", store).out


# copy


def test_copy_brings_everything_over_and_says_so_first(holdfast: Program, store: str, opened) -> None:
    with opened() as states:
        save(states, "dead", "x")
        states.delete("dead")
    planned = holdfast("copy", store, "sqlite:///to.db", "--dry-run")
    assert planned.code == 0 and "7 checkpoints of 2 sessions" in planned.out and "tenant acme" in planned.out
    assert not os.path.exists("to.db")
    assert holdfast("copy", store, "sqlite:///to.db").code == 0
    assert _told(holdfast, store) == _told(holdfast, "sqlite:///to.db")
    assert holdfast("log", "sqlite:///to.db", "--session", "dead").err.startswith("error: session 'dead' was deleted")
    again = holdfast("copy", store, "sqlite:///to.db", "--json").json["copied"]
    assert [(each["tenant"], each["checkpoints"], each["skipped"]) for each in again] == [("", 0, 7), ("acme", 0, 1)]


def _told(holdfast: Program, url: str) -> list[dict[str, Any]]:
    """What is printed about a store, without its numbers."""
    shown = holdfast("show", url, "--session", "other", "--json").json["checkpoint"]
    listed = holdfast("log", url, "--session", "chat", "--json").json["items"]
    sessions = holdfast("log", url, "--json").json["items"]
    numbers = ("sequence", "latest")
    return [{key: each[key] for key in each if key not in numbers} for each in (*sessions, *listed, shown)]


def test_copy_of_one_session_and_one_tenant(holdfast: Program, store: str) -> None:
    assert holdfast("copy", store, "sqlite:///one.db", "--session", "other").code == 0
    assert [each["session_id"] for each in holdfast("log", "sqlite:///one.db", "--json").json["items"]] == ["other"]
    assert holdfast("copy", store, "sqlite:///two.db", "--tenant", "acme").code == 0
    assert [each["tenant"] for each in holdfast("log", "sqlite:///two.db", "--json").json["items"]] == ["acme"]
    assert holdfast("copy", store, "sqlite:///three.db", "--session", "nobody").code == 3
    assert not os.path.exists("three.db")


def test_copy_names_what_it_could_not_copy(holdfast: Program, store: str, opened) -> None:
    with opened("sqlite:///to.db") as states:
        save(states, "chat", "c1", {"another": 1})
    ran = holdfast("copy", store, "sqlite:///to.db")
    assert ran.code == 4 and "chat was not copied" in ran.err
    assert holdfast("show", "sqlite:///to.db", "--session", "other").code == 0
    same = holdfast("copy", store, "sqlite:///./state.db")
    assert same.code == 6 and "the same" in same.err


# keys


def keys_file(name: str, key: bytes) -> str:
    Path(f"{name}.json").write_text(json.dumps({name: base64.b64encode(key).decode()}))
    return f"{name}.json"


def test_an_encrypted_store_is_read_with_the_keys_in_a_file(
    holdfast: Program, opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = keys_file("one", bytes(range(32)))
    with opened(keys=read_keys(file)) as states:
        save(states, "s", "c", {"secret": "hush"})
    for args in (("show", URL, "--session", "s"), ("verify", URL), ("log", URL, "--session", "s")):
        closed = holdfast(*args)
        assert closed.code == 6 and "HOLDFAST_FLOW_KEYS" in closed.err
        assert holdfast(*args, "--keys", file).code == 0
    assert holdfast("log", URL).code == holdfast("usage", URL).code == 0
    monkeypatch.setenv("HOLDFAST_FLOW_KEYS", file)
    assert "hush" in holdfast("show", URL, "--session", "s").out
    with opened("sqlite:///plain.db") as states:
        save(states, "s", "c")
    plain = holdfast("show", "sqlite:///plain.db", "--session", "s")
    assert plain.code == 6 and "Leave out --keys" in plain.err
    monkeypatch.setenv("HOLDFAST_FLOW_KEYS", "")
    assert holdfast("show", "sqlite:///plain.db", "--session", "s").code == 0


def test_copy_of_encrypted_states_is_encrypted_by_default(holdfast: Program, opened) -> None:
    one, two = keys_file("one", bytes(32)), keys_file("two", bytes([1] * 32))
    with opened(keys=read_keys(one)) as states:
        save(states, "s", "c", {"secret": "hush"})
    more = {"same": (), "other": ("--to-keys", two), "plain": ("--to-plaintext",)}
    for name, options in more.items():
        assert holdfast("copy", URL, f"sqlite:///{name}.db", "--keys", one, *options).code == 0
    for name, keys in (("same", one), ("other", two), ("plain", None)):
        given = ("--keys", keys) if keys else ()
        assert "hush" in holdfast("show", f"sqlite:///{name}.db", "--session", "s", *given).out
    for name in ("same", "other"):
        assert b"hush" not in Path(f"{name}.db").read_bytes()
        assert holdfast("show", f"sqlite:///{name}.db", "--session", "s").code == 6


def test_a_file_that_holds_no_keys_is_said_and_not_repeated(holdfast: Program, store: str) -> None:
    Path("bad.json").write_text('{"k": "c2VjcmV0"}')
    Path("worse.json").write_text("c2VjcmV0")
    for file, code in (("bad.json", 6), ("worse.json", 6), ("none.json", 3), (".", 7)):
        ran = holdfast("show", store, "--session", "chat", "--keys", file)
        assert ran.code == code
        assert "c2VjcmV0" not in ran.out + ran.err


# what is wrong


def test_a_location_that_is_not_there_is_not_made(holdfast: Program, project: Path) -> None:
    before = sorted(os.listdir())
    commands = ("log", "show", "diff", "verify", "usage", "prune")
    more = {"show": ("--session", "s"), "diff": ("--session", "s"), "prune": ("--all", "--keep-last", "1")}
    for command in commands:
        ran = holdfast(command, "sqlite:///new.db", *more.get(command, ()))
        assert ran.code == 3, (command, ran)
        assert ran.err.count("\n") == 2
    assert holdfast("copy", "sqlite:///new.db", "sqlite:///to.db").code == 3
    Path("empty.db").touch()
    assert holdfast("log", "sqlite:///empty.db").code == 3
    assert Path("empty.db").stat().st_size == 0
    assert sorted(os.listdir()) == sorted([*before, "empty.db"])


def test_a_file_of_another_program_is_refused_and_not_changed(holdfast: Program) -> None:
    for name, version in (("zero.db", 0), ("one.db", 1)):
        with closing(sqlite3.connect(name)) as db, db:
            db.execute("CREATE TABLE t (a)")
            db.execute(f"PRAGMA user_version={version}")
        db.close()
        before = Path(name).read_bytes()
        assert holdfast("log", f"sqlite:///{name}").code == 6
        assert holdfast("copy", URL, f"sqlite:///{name}").code == 3
        assert Path(name).read_bytes() == before
    Path("text.db").write_text("no database " * 100)
    assert holdfast("log", "sqlite:///text.db").code == 5


def test_a_store_of_a_newer_holdfast_is_refused(holdfast: Program, store: str) -> None:
    with closing(sqlite3.connect("state.db")) as db, db:
        db.execute("PRAGMA user_version=99")
    db.close()
    ran = holdfast("log", store)
    assert ran.code == 6 and "newer Holdfast" in ran.err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://u:sesame@h/x", 6), ("sqlite://u:sesame@h", 6), ("sqlite:state.db", 6), ("memory://", 6),
        ("postgresql://u:sesame@127.0.0.1:1/d", 7), ("postgresql://u:se/same@127.0.0.1:1/d", 6),
        ("postgresql://u:sesame@127.0.0.1:x/d", 6), ("postgresql://127.0.0.1:1/d?password=sesame", 7),
        ("redis://:sesame@127.0.0.1:1/0", 7), ("redis://:se/same@127.0.0.1:1/0", 6), ("redis://u:sesame@h:1/0?x=1", 6),
    ],
)  # fmt: skip
def test_location_error_is_one_sentence_without_password(holdfast: Program, url: str, code: int) -> None:
    for more in ((), ("--json",), ("extra",)):
        ran = holdfast("log", url, *more)
        assert ran.code == (2 if more == ("extra",) else code)
        assert "sesame" not in ran.out + ran.err and "same@" not in ran.out + ran.err
    assert ran.err.count("\n") == 2
    assert "sesame" not in holdfast("log", "extra", url).err


def test_options_that_do_not_fit_together_are_a_usage_error(holdfast: Program, store: str) -> None:
    wrong = [
        ("log", store, "--actor", "x"), ("log", store, "--all"), ("show", store), ("show", store, "--state", "x"),
        ("diff", store, "--session", "s", "--stat"), ("log", store, "--before", "x"), ("-C", ".", "log", store),
        ("log", "state.db"), ("log", "nothing"), ("log", "--tenant", "x"),
        ("show", store, "a", "b"), ("diff", store, "a", "b", "c"), ("verify", "--session", "x"),
        ("usage", "--session", "x"), ("prune", "--all"),
        ("prune", "--session", "x"), ("copy", store), ("copy", store, "to.db"), ("log", store, "--namespace", "n"),
    ]  # fmt: skip
    for args in wrong:
        assert holdfast(*args).code == 2, args
    assert "sqlite:///state.db" in holdfast("log", "state.db").err
    Path("a#b?.db").touch()
    assert "; write sqlite:///a%23b%3F.db\n" in holdfast("log", "a#b?.db").err


def test_a_workspace_is_looked_at_without_loading_the_flow(holdfast: Program) -> None:
    holdfast("save")
    code = (
        "import sys; from holdfast.cli.main import main; main([sys.argv[1]]);"
        "print([name for name in sys.modules if name.startswith('holdfast.flow')])"
    )
    for command in ("log", "show", "verify"):
        ran = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=True)
        assert ran.stdout.splitlines()[-1] == "[]"
