"""`restore` without a checkpoint: lists to choose from, and a terminal that is always put back."""

from __future__ import annotations

import codecs
import os
import signal
import sys
import termios

import pytest

from holdfast.cli.picker import Choice, Chooser, parse_keys
from holdfast.cli.render import display_width

from .test_terminal import COLOUR, Terminal

UP, DOWN, ESC, ENTER = b"\x1b[A", b"\x1b[B", b"\x1b", b"\r"
WHICH, PATHS = "to which checkpoint?", "Restore which paths to"
BACK = "\x1b[?1049l"


@pytest.fixture
def picker(holdfast, project, write):
    """Run `restore` in a folder with two checkpoints and newer changes."""
    write("b.txt", "one\n")
    holdfast("save", "the first")
    write("a.txt", "two\n")
    holdfast("save", "the second")
    write("a.txt", "three\n")
    write("b.txt", "three\n")

    def run(*args: str, size: tuple[int, int] = (80, 24), **environment: str) -> Terminal:
        shown = Terminal([*holdfast.command, "restore", *args], environment, size)
        shown.before = termios.tcgetattr(shown.master)
        return shown

    return run


def test_arrow_keys_choose_a_checkpoint_and_enter_restores(picker, project, holdfast):
    shown = picker()
    shown.expect(WHICH)
    shown.type(DOWN + UP + DOWN + ENTER)
    shown.expect(PATHS + " a1")
    shown.type(ENTER)
    code, said = shown.end()
    assert code == 0 and "Restored a1: 2 written, 0 removed; undo with: holdfast undo" in said
    assert (project / "a.txt").read_text() == "one\n" and (project / "b.txt").read_text() == "one\n"
    assert holdfast("undo").code == 0 and (project / "a.txt").read_text() == "three\n"


def test_typing_filters(picker, project):
    shown = picker()
    shown.expect(WHICH)
    shown.type(b"FIRST")
    shown.expect("/FIRST_")
    shown.expect("(1/2)")
    shown.type(ENTER)
    shown.expect(PATHS + " a1")
    shown.type(ENTER)
    assert shown.end()[0] == 0 and (project / "a.txt").read_text() == "one\n"


def test_space_leaves_a_path_out(picker, project):
    shown = picker()
    shown.expect(WHICH)
    shown.type(ENTER)
    shown.expect(PATHS + " a2")
    shown.type(b" ")
    shown.expect("1 chosen")
    shown.type(ENTER)
    assert shown.end()[0] == 0
    assert (project / "a.txt").read_text() == "three\n" and (project / "b.txt").read_text() == "one\n"


def test_preview_shows_the_change(picker):
    shown = picker()
    shown.expect(WHICH)
    shown.expect("the second")
    shown.type(ENTER)
    shown.expect("\x1b[32m+three\x1b[0m")
    shown.type(b"q")
    shown.expect_again(WHICH)
    shown.type(b"q")
    shown.end()


@pytest.mark.parametrize("key", [ESC, b"q"])
def test_leaving_changes_nothing(picker, project, key):
    shown = picker()
    shown.expect(WHICH)
    assert termios.tcgetattr(shown.master) != shown.before
    shown.type(key)
    shown.expect(BACK)
    shown.expect("Nothing was changed.")
    assert termios.tcgetattr(shown.master) == shown.before
    assert shown.end()[0] == 6 and (project / "a.txt").read_text() == "three\n"


def test_esc_clears_the_filter_then_goes_back_then_leaves(picker):
    shown = picker()
    shown.expect(WHICH)
    shown.type(b"sec")
    shown.expect("/sec_")
    shown.type(ENTER)
    shown.expect(PATHS)
    shown.type(ESC)
    shown.expect_again("/sec_")
    shown.type(ESC)
    shown.expect_again("type to filter")
    shown.type(ESC)
    shown.expect("Nothing was changed.")
    assert shown.end()[0] == 6


def test_ctrl_c_puts_the_terminal_back(picker, project):
    shown = picker()
    shown.expect(WHICH)
    shown.type(b"\x03")
    shown.expect(BACK)
    shown.expect("interrupted")
    assert termios.tcgetattr(shown.master) == shown.before
    assert shown.end()[0] == 130 and (project / "a.txt").read_text() == "three\n"


def test_sigterm_puts_the_terminal_back(picker):
    shown = picker()
    shown.expect(WHICH)
    shown.process.send_signal(signal.SIGTERM)
    shown.expect(BACK)
    assert shown.process.wait(60) == -signal.SIGTERM
    assert termios.tcgetattr(shown.master) == shown.before
    shown.end()


def test_ctrl_z_puts_the_terminal_back_until_it_goes_on(picker):
    shown = picker()
    shown.expect(WHICH)
    shown.type(b"\x1a")
    shown.expect(BACK)
    os.waitid(os.P_PID, shown.process.pid, os.WSTOPPED | os.WNOWAIT)
    assert termios.tcgetattr(shown.master) == shown.before
    shown.process.send_signal(signal.SIGCONT)
    shown.expect_again(WHICH)
    shown.type(b"q")
    assert shown.end()[0] == 6


def test_an_error_puts_the_terminal_back(picker):
    script = (
        "from holdfast.cli.picker import *\n"
        "def preview(key): raise RuntimeError('no preview')\n"
        "pick(Chooser('title', [Choice('a', 'a')], preview))\n"
    )
    shown = Terminal([sys.executable, "-c", script], {})
    before = termios.tcgetattr(shown.master)
    shown.expect("no preview")
    assert BACK in shown.said and termios.tcgetattr(shown.master) == before
    shown.end()


def test_a_terminal_of_another_size_is_drawn_again(picker):
    shown = picker(size=(60, 12))
    shown.expect(WHICH)
    import fcntl
    import struct

    fcntl.ioctl(shown.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    shown.process.send_signal(signal.SIGWINCH)  # the kernel tells only the foreground group of a session's terminal
    shown.expect_again(WHICH)
    shown.type(b"q")
    shown.end()


def test_without_a_terminal_the_choices_are_named(picker, holdfast, project):
    ran = holdfast("restore")
    assert ran.code == 2
    for part in (
        "no checkpoint is given",
        "holdfast restore latest",
        "holdfast restore a1",
        "the first",
        "holdfast log",
    ):
        assert part in ran.err, part
    assert holdfast("restore", "--json").json["error"]["kind"] == "usage"
    assert (project / "a.txt").read_text() == "three\n"


def test_pick_begins_with_the_paths(picker, project):
    shown = picker("a1", "--pick")
    shown.expect(PATHS + " a1")
    shown.type(b"b.txt\x01")  # of what is found, none
    shown.expect("1 chosen")
    shown.type(ENTER)
    assert shown.end()[0] == 0
    assert (project / "a.txt").read_text() == "one\n" and (project / "b.txt").read_text() == "three\n"


def test_a_path_with_the_signs_of_a_pattern_is_that_path(holdfast, project, write):
    for name in ("a[b].txt", "ab.txt", "c.txt"):
        write(name, "one\n")
    holdfast("save")
    for name in ("a[b].txt", "ab.txt", "c.txt"):
        write(name, "two\n")
    shown = Terminal([*holdfast.command, "restore", "latest", "--pick"], {})
    shown.expect("3 chosen")
    shown.type(b"\x01 ")
    shown.expect("1 chosen")
    shown.type(ENTER)
    assert shown.end()[0] == 0
    assert [(project / name).read_text() for name in ("a[b].txt", "ab.txt")] == ["one\n", "two\n"]


def test_a_folder_does_not_bring_what_was_left_out_of_it(holdfast, project, write):
    import shutil

    write("src/c.py", "c\n")
    holdfast("save")
    shutil.rmtree(project / "src")
    shown = Terminal([*holdfast.command, "restore", "latest", "--pick"], {})
    shown.expect("src/c.py")
    shown.type(b"c.py ")
    shown.expect("2 chosen")
    shown.type(ENTER)
    assert shown.end()[0] == 0
    assert sorted(path.name for path in (project / "src").iterdir()) == ["b.py"]


def test_stored_text_cannot_steer_the_terminal(picker, holdfast, project):
    (project / "evil\x1b[2J").write_text("\x1b[2J\n")
    holdfast("save", "message\x1b[2J", "--actor", "me\x1b[2J")
    (project / "evil\x1b[2J").write_text("other\n")
    shown = picker()
    shown.expect(WHICH)
    shown.type(ENTER)
    shown.expect(PATHS)
    shown.expect("+other")
    shown.type(ESC)
    shown.expect_again(WHICH)
    shown.type(ESC)
    assert "\x1b[2J" not in shown.end()[1]


# without a terminal


def chooser(count: int = 50, *, several: bool = False) -> Chooser:
    choices = [Choice(str(number), f"choice {number} 漢字 \x1b[36m{'wide ' * 30}\x1b[0m") for number in range(count)]
    return Chooser("A title " * 20, choices, lambda key: [f"about {key}\t{'x' * 200}"] * 60, several=several)


@pytest.mark.parametrize("columns", [8, 20, 80, 200])
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 12, 24, 60])
@pytest.mark.parametrize("several", [False, True])
def test_every_screen_fits(columns, rows, several):
    found = chooser(several=several)
    for key in ["", *["down"] * 30, "page down", "end", "7", "scroll down", "z", "clear", "home"]:
        found.press(key)
        lines = found.lines(columns, rows)
        assert len(lines) <= rows
        assert all(display_width(line) <= columns for line in lines)
        current = [line for line in lines if COLOUR.sub("", line).startswith(">")]
        assert len(current) == 1 or key == "z" or "z" in found._filter


def test_current_choice_stays_on_the_screen():
    found = chooser()
    for _ in range(49):
        found.press("down")
        found.lines(80, 10)
    assert any("> choice 49" in line for line in found.lines(80, 10))
    assert found.press("enter") and found.chosen == ["49"]


def test_nothing_chosen_does_not_end():
    found = chooser(3, several=True)
    found.press("all")
    assert not found.press("enter") and found.chosen is None
    assert any("Nothing is chosen" in line for line in found.lines(80, 24))
    empty = chooser(0)
    assert not empty.press("enter")
    assert any("Nothing to choose from." in line for line in empty.lines(80, 24))


def test_a_filter_may_begin_with_q():
    found = Chooser("", [Choice("1", "queue"), Choice("2", "other")], lambda key: [])
    for key in "/q":
        assert not found.press(key)
    assert found.press("enter") and found.chosen == ["1"]


def test_keys_in_pieces_and_of_any_alphabet():
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    data = "äa漢".encode() + b"\x1b[A\x1bOB\x1b[200~\x1b[1;5C\x7f\r"
    keys = [key for at in range(len("äa漢".encode())) for key in parse_keys(data[at : at + 1], decoder)]
    assert keys == ["ä", "a", "漢"]
    assert list(parse_keys(data[len("äa漢".encode()) :], decoder)) == ["up", "down", "backspace", "enter"]
    assert list(parse_keys(b"\x1b", decoder)) == ["escape"]


def test_a_turn_stands_together_below_its_prompt(holdfast, project, write):
    from holdfast import Workspace
    from holdfast.cli.commands.restore import _checkpoint_choices

    ws = Workspace(project)
    ws.save("mine")
    for number in range(2):
        write("a.txt", f"{number}\n")
        metadata = {"turn": "t1", "prompt": "Fix the cart"}
        ws.save(f"edit {number}", actor="claude-code", session="s", metadata=metadata)
    lines = [COLOUR.sub("", choice.text) for choice in _checkpoint_choices(ws.list())]
    for line, end in zip(
        lines, ("claude-code  Fix the cart", "claude-code    edit 0", "you          mine"), strict=True
    ):
        assert line.endswith(end)
