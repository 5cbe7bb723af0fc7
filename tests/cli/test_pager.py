"""Long output on a terminal goes through a pager, and colour where it is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from .test_terminal import COLOUR, Terminal

LONG = "".join(f"line {number}\n" for number in range(200))
COLLECT = "cat > $COLLECTED"


@pytest.fixture
def screen(holdfast, project, tmp_path):
    """Run the program on a terminal of 80 by 24, with a pager that collects what it is given in a file."""

    def run(*args: str, **environment: str) -> Terminal:
        environment = {"HOLDFAST_PAGER": COLLECT, "COLLECTED": str(tmp_path / "collected")} | environment
        return Terminal([*holdfast.command, *args], environment)

    holdfast("save")
    (project / "a.txt").write_text(LONG)
    return run


@pytest.fixture
def collected(tmp_path):
    return tmp_path / "collected"


def test_long_output_goes_to_the_pager_whole_and_in_colour(screen, collected):
    code, said = screen("diff").end()
    assert (code, said) == (0, "")
    text = collected.read_text()
    assert COLOUR.search(text) and COLOUR.sub("", text).splitlines()[-1] == "+line 199"


def test_short_output_does_not(screen, collected):
    code, said = screen("diff", "--stat").end()
    assert code == 0 and "1 file changed" in COLOUR.sub("", said) and not collected.exists()


@pytest.mark.parametrize(
    ("args", "environment"),
    [
        (["--no-pager", "diff"], {}),
        (["diff", "--no-pager"], {}),
        (["diff"], {"HOLDFAST_PAGER": ""}),
        (["diff"], {"HOLDFAST_PAGER": "cat"}),
        (["diff"], {"HOLDFAST_PAGER": "no-such-pager -x"}),
        (["diff"], {"TERM": "dumb"}),
    ],
)
def test_no_pager(screen, collected, args, environment):
    code, said = screen(*args, **environment).end()
    assert code == 0 and "+line 199" in said and not collected.exists()


def test_notes_go_to_the_pager_too_in_order(screen, collected, holdfast, project):
    for number in range(30):
        (project / "a.txt").write_text(str(number))
        holdfast("save", f"message {number}")
    assert screen("log", "--flat", "-n", "25").end()[1] == ""
    lines = COLOUR.sub("", collected.read_text()).splitlines()
    assert "message 29" in lines[1] and "message 5" in lines[-2] and lines[-1].startswith("There are more: ")


def test_pager_of_the_user_is_used(screen, collected, holdfast):
    environment = os.environ | {"PAGER": COLLECT, "COLLECTED": str(collected)}
    shown = Terminal([*holdfast.command, "diff"], environment)
    assert shown.end()[0] == 0 and collected.exists()


def test_a_pager_that_is_left_early_ends_quietly(screen, project):
    (project / "a.txt").write_text(LONG * 2000)
    code, said = screen("diff", HOLDFAST_PAGER="head -n 3 | cat").end()
    assert code == 0 and "error" not in said and "a.txt" in said


def test_ctrl_c_in_the_pager_ends_quietly(screen, project):
    (project / "a.txt").write_text(LONG * 2000)
    shown = screen("diff", HOLDFAST_PAGER="less -FRX", TERM="xterm")
    shown.expect("+line 10")
    os.killpg(shown.process.pid, signal.SIGINT)
    deadline = time.monotonic() + 60
    while shown.process.poll() is None and time.monotonic() < deadline:
        shown.type(b"q")  # again and again: less drops what is typed while it answers Ctrl-C
        shown.listen(0.2)
    code, said = shown.end()
    assert code == 0 and "interrupted" not in said and "Traceback" not in said


def test_not_on_a_terminal_nothing_is_paged(holdfast, screen, collected):
    environment = os.environ | {"HOLDFAST_PAGER": COLLECT, "COLLECTED": str(collected)}
    ran = subprocess.run([*holdfast.command, "diff"], env=environment, capture_output=True, check=True)
    assert b"+line 199\n" in ran.stdout and not collected.exists()


@pytest.mark.parametrize(
    ("args", "environment", "has_colour"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color=always"], {"NO_COLOR": "1"}, True),
        (["--color=never"], {"FORCE_COLOR": "1"}, False),
        (["--color=auto"], {}, False),
    ],
)
def test_colour_in_a_pipe(holdfast, screen, args, environment, has_colour):
    for words in (["diff"], ["diff", "--stat"], ["log"], ["restore", "latest", "--dry-run"]):
        for ran in (holdfast.spawn(*args, *words, **environment), holdfast.spawn(*words, *args, **environment)):
            assert ran.code == 0 and bool(COLOUR.search(ran.out)) == has_colour, words


def test_an_option_of_one_run_is_not_kept_for_the_next(holdfast, screen):
    assert "\x1b" in holdfast("log", "--color=always").out
    assert "\x1b" not in holdfast("log").out


def test_columns_align_in_colour(holdfast, project, write):
    holdfast("save")
    write("a.txt", LONG)
    write("b.txt", "")
    painted = holdfast("diff", "--stat", "--color=always").out
    assert COLOUR.sub("", painted) == holdfast("diff", "--stat").out
    assert "\x1b[32m+200\x1b[0m \x1b[31m-1\x1b[0m" in painted
