"""Command lines as people type them who know `git`, `jj`, `gh` and `uv`: each does what it says."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest

ANSWERED: dict[tuple[str, ...], str] = {
    # one file
    ("show", "a2:src/app.js"): "^two$",
    ("cat", "a2:src/app.js"): "^two$",
    ("cat", "a2", "src/app.js"): "^two$",
    ("show", "a2", "src/app.js"): "^two$",
    ("cat", "@now:src/app.js"): "^three$",
    ("log", "--", "src/app.js"): "^a3 .*\n.*\n.*M src/app.js",
    ("log", "src/app.js"): "^a3 .*\n.*\n.*M src/app.js",
    ("diff",): "No differences",
    ("diff", "a1"): r"^-one\n\+three$",
    ("diff", "a1", "a2"): r"^-one\n\+two$",
    ("diff", "a1..a2"): r"^-one\n\+two$",
    ("diff", "a1..a2", "--", "src"): r"^-one\n\+two$",
    ("diff", "a1", "a2", "src/app.js"): r"^-one\n\+two$",
    ("diff", "--", "src/app.js"): "No differences",
    ("diff", "src/app.js"): "No differences",
    ("diff", "--stat", "a1", "a2"): r"^M  \+1 -1  src/app.js\n1 file changed, \+1 -1$",
    ("restore", "a1", "src/app.js"): "^Restored a1: 1 written, 0 removed; undo with: holdfast undo$",
    # finding
    ("log", "--stat"): r"^ +M src/app.js  \+1 -1$",
    ("log", "--since", "10m", "--flat"): "^a3 .*\na2 .*\na1 ",
    ("log", "--since", "@10m", "--flat"): "^a3 .*\na2 .*\na1 ",
    ("log", "--until", "yesterday"): "No checkpoint matches",
    ("log", "--until", "@yesterday"): "No checkpoint matches",
    ("log", "--grep", "second"): "^a2 .*\n +second$",
    ("log", "--actor", "you", "--flat"): "^a3 .*\na2 .*\na1 ",
    ("log", "--flat"): "^a3 .*\na2 .*\na1 ",
    ("log", "-2", "--flat"): r"\Aid .*\na3 .*\na2 .*\nThere are more",
    ("log", "--flat", "-1", "src"): r"\Aid .*\na3 .*\nThere are more",
    ("log", "a1..a2"): r"\Aa2 ",
    ("show", "@now"): "^checkpoint ",
    ("diff", "@now"): "No differences",
    ("search", "two"): "^src/app.js:1: two\n +since +a2 .*\n +until +a2 .*\n +gone in a3 ",
    ("search", "KEY", "--", "*.env"): "^conf/deep/prod.env:1: KEY=1$",
    ("search", "KEY", "*.env"): "^conf/deep/prod.env:1: KEY=1$",
    ("search", "KEY", "conf"): "^conf/deep/prod.env:1: KEY=1$",
    # where things stand
    ("status",): "^last save  a3 ",
    (): "^last save  a3 ",
    ("workspaces",): r"/project .* 3 ",
    ("workspaces", "--remove-gone", "--dry-run"): "Nothing to delete: every folder is there",
    ("help", "save"): "^Usage: holdfast save ",
    ("bisect", "a1", "a3", "--", "grep", "-q", "one", "src/app.js"): "^a2 is the first bad one: second$",
    ("bisect", "a1", "--in-place", "--", "grep", "-q", "one", "src/app.js"): "^a2 is the first bad one: second$",
}

REFUSED: dict[tuple[str, ...], tuple[int, str]] = {
    ("search", "KEY", "*.none"): (3, r"no checkpoint contains \*.none"),
    ("show", "@10m"): (3, "no checkpoint is as old as '@10m'"),
    ("show", "@14:05"): (3, "no checkpoint is as old as '@14:05'"),
    ("show", "@yesterday"): (3, "no checkpoint is as old as '@yesterday'"),
    ("show", "@2026-11-01T10:00"): (3, "no checkpoint is as old as '@2026-11-01T10:00'"),
    ("cat", "@14:05:src/app.js"): (3, "no checkpoint is as old as '@14:05'"),
    ("cat", "@2026-11-01T10:00:src/app.js"): (3, "no checkpoint is as old as '@2026-11-01T10:00'"),
    ("log", "nope"): (3, "'nope' is neither a checkpoint nor a path"),
    ("cat", "a1:nope"): (3, "a1 does not contain nope"),
    ("undo",): (3, "(?s)there is no restore to undo.*holdfast restore latest.*holdfast undo --agent"),
    ("undo", "--agent"): (3, "no agent changed this folder"),
    ("log", "--oneline"): (2, "no such option '--oneline'; use: holdfast log --flat"),
    ("show", "--stat"): (2, "no such option '--stat'; use: holdfast show"),
}


@pytest.fixture
def saved(holdfast, write):
    """Three checkpoints, a year or more after every day that a test names."""
    write("conf/deep/prod.env", "KEY=1\n")
    for text, message in (("one\n", "first"), ("two\n", "second"), ("three\n", "third")):
        write("src/app.js", text)
        holdfast.saved("-m", message)
    return holdfast


@pytest.fixture
def early(monkeypatch):
    """The clock of references says noon of a day before anything was saved, for `@14:05` and days in the past."""
    import holdfast.times

    parse = holdfast.times.parse_time
    moment = datetime.now().astimezone() - timedelta(days=400)
    monkeypatch.setattr(holdfast.times, "parse_time", lambda text, *, now, zone: parse(text, now=moment, zone=zone))


@pytest.mark.parametrize("words", ANSWERED, ids=lambda words: " ".join(words) or "(nothing)")
def test_it_is_answered(saved, words):
    ran = saved(*words)
    assert re.search(ANSWERED[words], ran.out + ran.err, re.MULTILINE), (ran.out, ran.err)
    assert ran.code == 0


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_it_is_refused_with_what_to_do(saved, early, words):
    ran = saved(*words)
    code, text = REFUSED[words]
    assert ran.code == code and re.search(text, ran.err), ran


def test_a_time_with_colons_names_a_file(saved):
    soon = datetime.now().astimezone() + timedelta(seconds=1)
    for when in ("@now", f"@{soon:%Y-%m-%dT%H:%M:%S}"):
        assert saved("cat", f"{when}:src/app.js").out == "three\n"


def test_a_file_whose_name_looks_like_a_time(saved, write):
    write("@14:05", "a file\n")
    saved.saved()
    assert saved("cat", "@14:05").out == "a file\n"
