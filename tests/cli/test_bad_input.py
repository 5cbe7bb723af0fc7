"""Everything that can be typed wrongly, and what is answered: one table, to be read at a glance.

The exit code tells the kind (3 not found, 4 conflict, 6 refused, 7 unavailable, 2 wrong use); the first line says what
is so, the second what to do next. Nothing is changed by any of them.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys

import pytest

NOWHERE = "no/such/place"
LONG = "9" * 5000

# what is typed: its exit code, the fact, what to do next (… stands for any text)
ANSWERS: dict[tuple[str, ...], tuple[int, str, str]] = {
    # references
    ("show", "nonsense"): (3, "'nonsense' is neither a checkpoint nor a path", "See `holdfast log`."),
    ("show", "takn"): (3, "'takn' is neither a checkpoint nor a path", "Did you mean taken?"),
    ("show", "a"): (4, "'a' is ambiguous: a1-…, a3-…", "Give more of the id."),
    ("show", "a2"): (3, "there is no checkpoint 'a2' any more", "It was deleted or pruned, and its number …"),
    ("show", "a1-zzzz"): (3, "there is no checkpoint 'a1-zzzz'", "That number belongs to a1-…"),
    ("show", "latest~7"): (3, "there is no checkpoint 'latest~7'", "The oldest save is latest~1."),
    ("show", f"latest~{LONG}"): (3, "there is no checkpoint 'latest~999…'", "…"),
    ("restore", "a2", "-y"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("rm", "taken", "a2", "-y"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("pin", "a2"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("export", "a2", "../out"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("diff", "latest", "a2"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("diff", "lates"): (3, "'lates' is neither a checkpoint nor a path", "Did you mean latest?"),
    ("diff", "--", "lates"): (3, "lates is neither in the checkpoint nor in the folder", "Check its spelling."),
    ("log", "takn"): (3, "'takn' is neither a checkpoint nor a path", "Did you mean taken?"),
    ("cat", "latest"): (2, "no path is given; write REF:PATH", "…"),
    ("cat", "latest:none.txt"): (3, "a3 does not contain none.txt", "Check its spelling."),
    ("cat", "latest:src"): (6, "src is a folder in a3", "Name a file."),
    ("show", "@soon"): (3, "there is no checkpoint '@soon': 'soon' is not a time", "Write 10m…"),
    ("show", "@2001-01-01"): (3, "no checkpoint is as old as '@2001-01-01'", "The oldest, a1, was saved at …"),
    ("log", "--since", "soon"): (2, "'soon' is not a time", "Write 10m…"),
    ("log", "--grep", "("): (2, "'(' is not a valid regular expression: …", "…"),
    ("bisect", "a2", "--", "true"): (3, "there is no checkpoint 'a2' any more", "…"),
    ("bisect", "latest", "taken", "--", "true"): (6, "a3 is not older than a1", "Give the earlier, good one…"),
    ("log", "--before", "nonsense"): (3, "there is no checkpoint 'nonsense'", "…"),
    # paths
    ("restore", "latest", NOWHERE, "-y"): (3, f"{NOWHERE} is neither in the checkpoint nor in the folder", "Check…"),
    ("restore", "latest", "../../x", "-y"): (6, "'../../x' is outside the workspace", "Name a path inside it."),
    ("restore", "latest", "a\0", "-y"): (6, r"a path 'a\x00' cannot be a path", "A path has no NUL…"),
    ("purge", NOWHERE, "-y"): (3, f"no checkpoint contains {NOWHERE}", "Check its spelling."),
    ("why", "/etc/passwd"): (6, "'/etc/passwd' is outside the workspace", "Name a path inside it."),
    ("export", "latest", "src/out"): (6, "… and the workspace are inside one another", "Choose a folder elsewhere."),
    ("export", "latest", f"../{NOWHERE}/x"): (3, "… is not a folder", "Create it first."),
    ("export", "latest", ""): (6, "the folder to write to is empty", "Name a path."),
    # folders and stores
    ("-C", "", "log"): (2, "-C is empty", "See: holdfast --help"),
    ("--store", "", "log"): (2, "--store is empty", "See: holdfast --help"),
    ("-C", NOWHERE, "log"): (3, "… does not exist", "Choose an existing project folder."),
    ("-C", "a\0", "log"): (6, r"the workspace 'a\x00' cannot be a path", "A path has no NUL…"),
    ("--store", "src", "log"): (6, "the store … and the workspace … are inside one another", "Choose a store outside…"),
    ("-C", "/etc", "save"): (6, "/etc is a system folder", "Choose the project folder."),
    # numbers
    ("log", "-n", "-1"): (
        2,
        "invalid value for '-n' / '--limit': -1 is less than 0",
        "See: holdfast log --help",
    ),
    ("log", "-n", "many"): (2, "invalid value for '-n' / '--limit': 'many' is not a whole number", "See: …"),
    ("save", "--step", "1.5"): (2, "invalid value for '--step': '1.5' is not a whole number", "See: …"),
    ("watch", "--quiet", "nan"): (
        2,
        "invalid value for '--quiet': 'nan' is not a number",
        "See: …",
    ),
    ("watch", "--every", "inf"): (2, "invalid value for '--every': inf is not in the range …", "See: …"),
    ("prune", "--keep-for", "soon"): (
        2,
        "--keep-for is 'soon', which is not a duration",
        "Write a number and s, …",
    ),
    ("prune", "--keep-for", f"{LONG[:40]}d"): (
        2,
        "--keep-for is '…', which is too long",
        "Leave it out to …",
    ),
    ("prune", "--max-size", "-1"): (2, "--max-size is '-1', which is not a size", "Write a number of bytes, …"),
    ("prune",): (6, "no rule says what to keep, so nothing is deleted", "Pass --keep-last N, …"),
    # names and values
    ("save", "--name", "taken", "--allow-empty"): (4, "…'taken'…", "…"),
    ("save", "--name", "a\nb"): (6, r"'a\nb' cannot name a checkpoint", "Use up to 200 characters…"),
    ("save", "--state", "../x=a.json"): (3, "there is no file 'a.json'", "Pass --state NAME=FILE.json."),
    ("save", "--meta", "novalue"): (2, "--meta takes KEY=VALUE, not 'novalue'", "See: holdfast save --help"),
    ("show", "--state", "x"): (3, "a3 has no state 'x'", "It has: none."),
    ("search", ""): (6, "there is no text to search for", "Give some text."),
    ("search", "-E", "("): (
        6,
        "'(' is not a valid regular expression: missing ), unterminated subpattern…",
        "Leave out -E…",
    ),
    # wrong use
    ("log", "--session"): (2, "option '--session' requires an argument", "See: holdfast log --help"),
    ("--store",): (2, "option '--store' requires an argument", "See: holdfast --help"),
    ("log", "-C", "x"): (2, "log has no option -C", "It goes before the command: holdfast -C PATH log"),
    ("log", "--allow-home"): (
        2,
        "log has no option --allow-home",
        "It goes before the command: …",
    ),
    ("save", "one", "two"): (
        2,
        "got unexpected extra argument (two)",
        'Quote a message of several words: holdfast save "two words"',
    ),
    ("guard",): (2, "no command is given; put it after --", "See: holdfast guard --help"),
    ("guard", "make"): (2, "no command is given; put it after --", "See: holdfast guard --help"),
    ("guard", "make", "-j4"): (2, "no command is given; put it after --", "See: holdfast guard --help"),
    ("bisect", "taken", "latest", "make"): (2, "no command is given; put it after --", "See: holdfast bisect --help"),
    ("search", "x", "y z"): (3, "no checkpoint contains y z", "… part of the text: holdfast search 'x y z'"),
    ("bisect", "taken"): (2, "no command is given; put it after --", "See: holdfast bisect --help"),
    ("bisect", "taken", "--", "no-such-command"): (3, "there is no command no-such-command", "Nothing was run."),
    ("bisect", "taken", "--", "a\0b"): (6, r"'a\x00b' cannot be run", "A command has no NUL; nothing was run."),
    ("restor", "latest"): (2, "there is no command 'restor'; did you mean restore?", "See: holdfast --help"),
    # nobody to ask
    ("rm", "taken"): (6, "needs confirmation, but stdin is not a terminal", "Pass --yes."),
    ("restore", "taken", "--pick"): (6, "--pick needs a terminal", "Name the paths instead."),
}


@pytest.fixture(scope="module")
def state(settled):
    """Three checkpoints, of which the second was deleted."""
    for number in range(2):
        (settled.project / "a.txt").write_text(f"{number}\n")
        settled.saved()
    assert settled("rm", "a2", "--yes").code == 0
    return settled


def matches(said: str, pattern: str) -> bool:
    """Whether a line is as the table has it, `…` standing for anything."""
    place = 0
    parts = pattern.split("…")
    for number, part in enumerate(parts):
        at = said.find(part, place)
        if at < 0 or (number == 0 and at):
            return False
        place = at + len(part)
    return place == len(said) or not parts[-1]


@pytest.mark.parametrize("typed", ANSWERS, ids=lambda typed: " ".join(typed)[:40])
def test_wrong_input_gets_an_answer_and_changes_nothing(state, typed):
    code, what, hint = ANSWERS[typed]
    ran = state(*typed)
    lines = [line for line in ran.err.splitlines() if line.startswith(("error: ", "hint:  "))]
    assert ran.code == code, ran
    assert matches(lines[0].removeprefix("error: "), what), ran.err
    assert matches(lines[1].removeprefix("hint:  "), hint), ran.err
    assert len(ran.err) < 1300 and "\x1b" not in ran.err
    document = state("--json", *typed).json["error"]
    assert matches(document["message"], what) and matches(document["hint"], hint)
    assert [each["short_id"] for each in state("log", "--all", "--json").json["items"]] == ["a3", "a1"]
    assert (state.project / "a.txt").read_text() == "1\n"


def test_pages_of_the_log_follow_each_other(holdfast, write):
    for number in range(7):
        write("a.txt", f"{number}\n")
        holdfast.saved(f"message {number}")
    first = holdfast("log", "-n", "3")
    assert "There are more: holdfast log -n 3 --before a5" in first.err
    pages, before = [], []
    while True:
        page = holdfast("log", "-n", "3", "--json", *before).json
        pages.append([each["message"] for each in page["items"]])
        if page["next"] is None:
            break
        before = ["--before", page["next"]]
        holdfast("rm", before[1], "--yes")  # also when the last of the page is gone
    assert pages == [["message 6", "message 5", "message 4"], ["message 3", "message 2", "message 1"], ["message 0"]]
    assert holdfast("log", "--before", "a1").err == "There are no older ones.\n"


@pytest.mark.parametrize("limit", [0, 1 << 12, 1 << 16])
def test_a_save_that_may_not_write_says_so_and_leaves_nothing(holdfast, write, project, limit):
    holdfast.saved("before")
    (project / "noise.bin").write_bytes(os.urandom(1 << 20))
    ran = subprocess.run(
        [*holdfast.command, "save", "--json"],
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ran.returncode == 7, ran
    assert os.strerror(errno.EFBIG) in json.loads(ran.stdout)["error"]["message"]
    assert [each["message"] for each in holdfast("log", "--json").json["items"]] == ["before"]
    assert holdfast("verify").code == 0
    assert holdfast("save", "after").code == 0


def test_python_warnings_are_not_shown(holdfast):
    holdfast.saved()
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "holdfast.cli", "search", "-E", "x[["], capture_output=True, check=False
    )
    assert (ran.returncode, b"not a valid regular expression" in ran.stderr) == (6, True)
    ran = holdfast.spawn("search", "-E", "x[[]y", PYTHONWARNINGS="default")
    assert (ran.code, ran.err) == (1, "No checkpoint contains 'x[[]y'.\n")
