"""Command lines as people type them who know `git`, `jj`, `gh` and `uv`: each does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
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
    ("restore", "--", "src/app.js"): "Nothing to restore: ",
    ("restore", "latest"): "Nothing to restore: ",
    ("init",): "There is a store already",
    ("log", "--since", "yesterday", "--flat"): "^a3 .*\na2 .*\na1 ",
    ("log", "--stat", "src/app.js"): r"^a3 .*  1 file \+1 -1\n +third\n +M src/app.js  \+1 -1$",
    ("restore", "a1", "--", "src/app.js"): "^Restored a1: 1 written, 0 removed; undo with: holdfast undo$",
    ("cat", "--", "src/app.js"): "^three$",
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
    ("bisect", "a1", "a3", "--", "grep", "-q", "one", "src/app.js"): "^a2 is the first bad checkpoint: second$",
    ("bisect", "a1", "--in-place", "--", "grep", "-q", "one", "src/app.js"): "^a2 is the first bad checkpoint: second$",
}

REFUSED: dict[tuple[str, ...], tuple[int, str]] = {
    ("search", "KEY", "*.none"): (3, r"no checkpoint contains \*.none"),
    ("search", "KEY", "--", "*.none"): (3, r"no checkpoint contains \*.none"),
    ("search", "--", "*.env"): (1, r"No checkpoint contains '\*.env'"),
    ("search", "nothing"): (1, "No checkpoint contains 'nothing'"),
    ("show", "@10m"): (3, "no checkpoint is as old as '@10m'"),
    ("show", "@14:05"): (3, "no checkpoint is as old as '@14:05'"),
    ("show", "@yesterday"): (3, "no checkpoint is as old as '@yesterday'"),
    ("show", "@2026-11-01T10:00"): (3, "no checkpoint is as old as '@2026-11-01T10:00'"),
    ("cat", "@14:05:src/app.js"): (3, "no checkpoint is as old as '@14:05'"),
    ("cat", "@2026-11-01T10:00:src/app.js"): (3, "no checkpoint is as old as '@2026-11-01T10:00'"),
    ("log", "nope"): (3, "'nope' is neither a checkpoint nor a path"),
    ("diff", "a2~1"): (3, r"'a2~1' is neither a checkpoint nor a path\n.*Only `latest` counts back"),
    ("show", "a2^"): (3, "Only `latest` counts back, as in `latest~1`"),
    ("diff", "a1...a2"): (3, r"(?s)'a1\.\.\.a2' is neither.*A range has two dots: A\.\.B"),
    ("restore", "nope.txt"): (3, "'nope.txt' is neither a checkpoint nor a path"),
    ("restore", "a1", "nope.txt"): (3, r"nope.txt is neither in the checkpoint nor in the folder(?!.*latest a1)"),
    ("restore", "--", "nope.txt"): (3, "nope.txt is neither in the checkpoint nor in the folder"),
    ("cat",): (2, "no path is given"),
    ("-C", "src", "status"): (3, r"src has no checkpoints yet\n.*the one around it: holdfast -C .*/project …"),
    ("cat", "a1:nope"): (3, "a1 does not contain nope"),
    ("undo",): (3, "(?s)nothing to undo: no earlier restore.*holdfast restore latest.*holdfast undo --agent"),
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


TIMES = ("@10m", "@1h30m", "@14:05", "@yesterday", "@2026-11-01", "@2026-11-01T10:00")
NAMED: dict[tuple[str, ...], str] = {
    ("show", "AT"): "^checkpoint +a3$",
    ("show", "AT:src/app.js"): "^three$",
    ("cat", "AT:src/app.js"): "^three$",
    ("cat", "AT", "src/app.js"): "^three$",
    ("diff", "AT"): "No differences",
    ("diff", "a1", "AT"): r"^-one\n\+three$",
    ("diff", "a1..AT"): r"^-one\n\+three$",
    ("diff", "AT", "src/app.js"): "No differences",
    ("log", "--flat", "a2..AT"): r"\Aid .*\na3 .*\n\Z",
    ("restore", "AT", "--dry-run"): "",
    ("restore", "AT", "src/app.js"): "",
    ("export", "AT", "../out"): "^Exported ",
    ("fork", "AT", "../fork"): "",
    ("pin", "AT"): "",
}


@pytest.fixture
def late(saved, monkeypatch):
    """The clock of references says noon of a day long after all saves: every time of `TIMES` is later than these."""
    import holdfast.times

    parse = holdfast.times.parse_time
    moment = datetime.now().astimezone().replace(hour=12, minute=0) + timedelta(days=4)
    first = moment - timedelta(days=2)

    def later(text, *, now, zone):
        text = text.replace("2026-11-01", f"{first:%Y-%m-%d}")
        return parse(text, now=moment, zone=zone)

    monkeypatch.setattr(holdfast.times, "parse_time", later)
    return saved


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_a_time_names_a_checkpoint_in_every_command(late, words):
    ran = late(*(word.replace("AT", "@14:05") for word in words))
    assert re.search(NAMED[words], ran.out + ran.err, re.MULTILINE) and ran.code == 0, ran


@pytest.mark.parametrize("when", TIMES)
def test_every_form_of_a_time_names_a_checkpoint(late, when):
    assert late("show", when, "--json").json["checkpoint"]["short_id"] == "a3"
    assert late("cat", f"{when}:src/app.js").out == "three\n"


@pytest.mark.parametrize("when", TIMES)
@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "with @"])
def test_every_form_of_a_time_limits_the_list(late, when, is_bare):
    when = when.removeprefix("@") if is_bare else when
    assert len(late("log", "--until", when, "--json").json["items"]) == 3
    assert late("log", "--since", when, "--json").json["items"] == []


def test_ids_sort_as_people_expect(holdfast):
    for _ in range(11):
        holdfast.saved("--allow-empty")
    listed = [line.split()[0] for line in holdfast("log", "--flat").out.splitlines()[1:]]
    assert listed == [f"a{number}" for number in range(11, 0, -1)]


def test_the_package_is_a_program(saved):
    ran = subprocess.run([sys.executable, "-m", "holdfast", "status"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.splitlines()[1].split()[:3]) == (0, ["last", "save", "a3"])


def test_a_time_with_colons_names_a_file(saved):
    soon = datetime.now().astimezone() + timedelta(seconds=1)
    for when in ("@now", f"@{soon:%Y-%m-%dT%H:%M:%S}"):
        assert saved("cat", f"{when}:src/app.js").out == "three\n"


def test_a_file_whose_name_looks_like_an_id(saved, write):
    write("a1", "a file\n")
    saved.saved()
    ran = saved("diff", "a1")
    assert ran.code == 2 and "put -- before the path, or after the checkpoint" in ran.err
    assert "-one" in saved("diff", "a1", "--").out and "No differences" in saved("diff", "--", "a1").err
    assert "latest a1 nope" not in saved("restore", "a1", "nope").err
    assert "no checkpoint" not in saved("restore", "a1", "src").err


def test_a_message_that_is_a_path(saved, write):
    write("src/app.js", "four\n")
    assert "'src' is the message; a checkpoint contains the whole folder." in saved("save", "src").err
    assert "the whole folder" not in saved("save", "-m", "src", "--allow-empty").err


def test_a_file_whose_name_looks_like_a_time(saved, write):
    write("@14:05", "a file\n")
    saved.saved()
    assert saved("cat", "@14:05").out == "a file\n"
