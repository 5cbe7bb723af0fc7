"""What made a first-time reader stop, who knows `git`, `grep`, `jj` and `gh`, and what is there instead."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.group import COMMANDS

from .conftest import Program

Write = Callable[[str, str], Path]


class TestSearch:
    def test_nothing_found_exits_as_grep_does(self, holdfast: Program, write: Write) -> None:
        write("a.txt", "text\n")
        holdfast.saved()
        assert holdfast("search", "text").code == 0
        ran = holdfast("search", "nothing")
        assert (ran.code, ran.out, ran.err) == (1, "", "No checkpoint contains 'nothing'.\n")
        ran = holdfast("search", "nothing", "--json")
        assert ran.code == 1 and ran.json["items"] == []
        assert holdfast("search", "text", "nowhere").code == 3

    def test_a_text_that_begins_with_a_dash(self, holdfast: Program, write: Write) -> None:
        write("a.txt", "-v\n-v\n")
        write("b.txt", "-v\n")
        holdfast.saved()
        assert holdfast("search", "--", "-v").out.count(": -v\n") == 2
        assert holdfast("search", "--", "-v", "b.txt").out.startswith("b.txt:1: -v\n")
        assert holdfast("search").code == 2 and holdfast("search", "--").code == 2
        more = holdfast("search", "-n", "1", "--", "-v").err
        assert holdfast(*shlex.split(more.removeprefix("There are more: holdfast "))).out.count(": -v\n") == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    {
        "save two words": 'Quote a message of several words: holdfast save "two words"',
        "undo a1": "To go back to a checkpoint: holdfast restore REF.",
        "undo 2": "To undo a turn of an agent: holdfast undo --turn N",
        "redo a1": "To go to a checkpoint: holdfast restore REF",
        "prune --keep 3": "no such option '--keep'; did you mean --keep-every, --keep-for or --keep-last?",
        "save --mesage x": "did you mean --message, --meta or --state?",
        "workspaces list": "error: FOLDER, --dry-run and --yes go with --remove-gone",
        "pin": "error: missing argument 'REF': no checkpoint is given",
        "rm": "error: missing argument 'REF': no checkpoint is given",
        "unpin a1": "use: holdfast pin --off a1",
        "rm -f a1": "use: holdfast rm --yes",
        "prune --force": "use: holdfast prune --yes",
        "restore a1 --force": "use: holdfast restore, which does not ask",
        "search -r text": "use: holdfast search TEXT",
        "search -v": "use: holdfast search -- -v",
    }.items(),
)
def test_the_message_says_what_to_type(holdfast: Program, typed: str, said: str) -> None:
    ran = holdfast(*shlex.split(typed))
    assert ran.code == 2 and said in ran.err, ran


def test_blame_takes_the_checkpoint_first_as_git_does(holdfast: Program, write: Write) -> None:
    write("src/app.py", "one\n")
    holdfast.saved()
    write("src/app.py", "one\ntwo\n")
    holdfast.saved()
    assert holdfast("blame", "a1", "src/app.py") == holdfast("blame", "src/app.py", "a1")
    assert "two" not in holdfast("blame", "a1", "src/app.py").out
    assert "there is no checkpoint 'src/app.py'" not in holdfast("blame", "a1", "src/app.py").err
    assert holdfast("blame", "nowhere", "a1").code == 3


class TestLogOfPaths:
    @pytest.fixture
    def saved(self, holdfast: Program, write: Write) -> Program:
        for name in ("a", "b", "lib/one.py", "lib/two.py", "z"):
            write(name, "1\n")
        holdfast.saved()
        write("a", "1\n2\n")
        write("lib/one.py", "2\n")
        holdfast.saved()
        return holdfast

    def test_only_what_changed_at_them_is_listed(self, saved: Program) -> None:
        lines = saved("log", "lib").out.splitlines()
        assert lines[0].endswith("1 file +1 -1") and lines[1] == "    M lib/one.py"
        assert lines[2].endswith("2 files") and lines[3] == "    A lib/one.py, A lib/two.py"
        assert "A lib/two.py" in saved("log", "--", "*two*").out

    def test_without_paths_everything_is(self, saved: Program) -> None:
        assert saved("log").out.splitlines()[1] == "    M a, M lib/one.py"

    def test_it_is_found_among_many(self, saved: Program, write: Write) -> None:
        for number in range(60):
            write(f"many/{number:02}", "1\n")
        write("zz", "1\n")
        saved.saved()
        assert "    A zz\n" in saved("log", "zz").out


class TestUndoAgent:
    @pytest.fixture
    def worked(self, holdfast: Program, write: Write) -> Program:
        write("a", "1\n")
        holdfast.saved()
        for turn in ("1", "2"):
            write(turn, "new\n")
            holdfast.saved("--actor", "claude-code", "--session", "s", "--meta", f"turn={turn}")
        return holdfast

    def test_after_the_last_turn_nothing_else_is_tried(self, worked: Program) -> None:
        assert worked("undo", "--agent").code == 0 and worked("undo", "--agent").code == 0
        ran = worked("undo", "--agent")
        assert ran.code == 3 and "every turn of an agent is undone already" in ran.err
        assert "`holdfast undo` brings back the last one" in ran.err
        assert worked("undo").code == 0

    def test_another_name_lists_those_who_worked(self, worked: Program) -> None:
        ran = worked("undo", "--agent", "claude")
        assert ran.code == 3 and "These did: claude-code." in ran.err

    def test_without_an_agent_it_leads_to_the_hooks(self, holdfast: Program, write: Write) -> None:
        write("a", "1\n")
        holdfast.saved()
        ran = holdfast("undo", "--agent")
        assert ran.code == 3 and "holdfast doctor" in ran.err and "holdfast restore -p" in ran.err


def test_no_help_text_has_the_limits_of_a_number_as_a_formula(holdfast: Program) -> None:
    for name in COMMANDS:
        assert "x<=" not in holdfast(name, "--help").out and "x>=" not in holdfast(name, "--help").out
