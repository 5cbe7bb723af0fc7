"""`log` for people: turns, figures, filters."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Program

HOOK = (sys.executable, "-m", "holdfast.cli", "hook", "claude-code")


def _event(project: Path, name: str, **more: object) -> None:
    fields = {"hook_event_name": name, "session_id": "s", "cwd": str(project), "tool_name": "Edit", **more}
    subprocess.run(HOOK, input=json.dumps(fields).encode(), check=True, timeout=60)


@pytest.fixture
def agent(holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """A save of a person, then two turns of an agent: two edits, then one."""
    monkeypatch.setenv("HOLDFAST_HELPER", "0")
    holdfast.saved("my own work")
    for number, prompt in enumerate(("Fix the login test\nplease", "Now the docs")):
        _event(project, "UserPromptSubmit", prompt=prompt, prompt_id=f"p{number}")
        for edit in range(2 - number):
            about = {"tool_use_id": f"t{number}{edit}", "prompt_id": f"p{number}"}
            _event(project, "PreToolUse", **about)
            (project / f"made{number}{edit}.py").write_text("one\ntwo\n")
            (project / "a.txt").write_text(f"{number} {edit}\n")
            _event(project, "PostToolUse", **about)
    return holdfast


def test_a_turn_is_one_entry(agent: Program) -> None:
    lines = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN", line) for line in agent("log").out.splitlines()]
    assert lines == [
        "a4  claude-code  WHEN  turn 2, 2 files +3 -1",
        "    Now the docs",
        "    M a.txt, A made10.py",
        "a3  claude-code  WHEN  turn 1, 3 files +5 -1, 2 checkpoints",
        "    Fix the login test",
        "    M a.txt, A made00.py, A made01.py",
        "a1  you          WHEN  2 files",
        "    my own work",
        "    A a.txt, A src/b.py",
    ]


def test_flat_has_one_line_for_each(agent: Program) -> None:
    lines = agent("log", "--flat").out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "a4", "a3", "a2", "a1"]
    assert "  you " in lines[-1] and "claude-code s" in lines[1]


def test_stat_lists_every_file(agent: Program) -> None:
    lines = agent("log", "--stat", "-n", "1").out.splitlines()
    assert lines[2:] == ["    M a.txt  +1 -1", "    A made10.py  +2 -0"]
    flat = agent("log", "--stat", "--flat", "-n", "1").out.splitlines()
    assert flat[1:] == ["    M a.txt  +1 -1", "    A made10.py  +2 -0"]
    (item,) = agent("log", "--stat", "-n", "1", "--json").json["items"]
    assert item["changes"][1] == {"status": "A", "path": "made10.py", "added": 2, "removed": 0}


def test_json_says_which_belong_to_one_turn(agent: Program) -> None:
    found = agent("log", "--json").json
    short = {each["id"]: each["short_id"] for each in found["items"]}
    turns = [([short[each] for each in turn["checkpoints"]], turn["prompt"], turn["actor"]) for turn in found["turns"]]
    assert turns == [
        (["a4"], "Now the docs", "claude-code"),
        (["a3", "a2"], "Fix the login test", "claude-code"),
        (["a1"], None, "user"),
    ]


def test_pages_are_of_turns(agent: Program) -> None:
    page = agent("log", "-n", "1")
    assert "There are more: holdfast log -n 1 --before a4" in page.err
    assert agent("log", "-n", "1", "--before", "a4").out.startswith("a3 ")
    last = agent("log", "-n", "1", "--before", "a2")
    assert last.out.startswith("a1 ") and not last.err


def test_many_files_are_counted_and_a_few_named(holdfast: Program, project: Path) -> None:
    for number in range(30):
        (project / f"f{number:02}").write_text("x\n")
    holdfast.saved("many")
    assert "    A a.txt, A f00, A f01, A f02, … 28 more" in holdfast("log").out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--grep", "docs"], ["a4"]),
        (["--grep", "^Fix .* test$"], ["a3", "a2"]),
        (["--grep", "my OWN"], []),
        (["--actor", "claude-code"], ["a4", "a3", "a2"]),
        (["--actor", "user"], ["a1"]),
        (["--since", "10m"], ["a4", "a3", "a2", "a1"]),
        (["--since", "today", "--until", "now"], ["a4", "a3", "a2", "a1"]),
        (["--until", "yesterday"], []),
        (["--since", "2001-01-01", "--until", "2001-01-02"], []),
        (["--actor", "claude-code", "--grep", "login", "-n", "1"], ["a3"]),
    ],
)
def test_filters(agent: Program, options: list[str], found: list[str]) -> None:
    listed = agent("log", "--json", *options).json["items"]
    assert [each["short_id"] for each in listed] == found
    if not found:
        assert agent("log", *options).err == "No checkpoint matches.\n"


def test_a_checkpoint_by_time(agent: Program) -> None:
    assert agent("show", "@now", "--json").json["checkpoint"]["short_id"] == "a4"
    assert agent("diff", "@1d").code == 3
    assert "no checkpoint is as old" in agent("restore", "@yesterday", "-y").err


def test_your_own_are_listed_by_the_word_that_log_shows(holdfast, write):
    first = holdfast.saved()
    write("a.txt", "two\n")
    holdfast.saved("--actor", "claude-code")
    for word in ("you", "user"):
        assert [each["id"] for each in holdfast("log", "--json", "--actor", word).json["items"]] == [first], word
