"""`restore -p`: hunk by hunk, then one restore with one undo."""

from __future__ import annotations

import signal
import stat

import pytest

from .test_terminal import COLOUR, Terminal

LINES = [f"line {number}\n" for number in range(40)]
ASKED = "[y,n,q"


def text(**lines: str) -> str:
    return "".join(lines.get(f"l{number}", line) for number, line in enumerate(LINES))


@pytest.fixture
def patch(holdfast, project, write):
    """Run `restore -p` in a folder in which three places of one file and another file were changed."""
    write("text", text())
    write("other", "one\n")
    holdfast.saved("base")
    write("text", text(l3="three\n", l6="six\n", l30="thirty\n"))
    write("other", "two\n")

    def run(*args: str, **environment: str) -> Terminal:
        return Terminal([*holdfast.command, "restore", "-p", *args], environment)

    return run


def answer(shown: Terminal, *replies: str) -> tuple[int, str]:
    for reply in replies:
        shown.expect_again(ASKED)
        shown.type(f"{reply}\n".encode())
    code, said = shown.end()
    return code, COLOUR.sub("", said).replace("\r\n", "\n")


def test_chosen_hunks_go_in_one_restore_with_one_undo(patch, project, holdfast):
    code, said = answer(patch(), "n", "n", "y")
    assert code == 0 and "Took back 1 change since a1: 1 written, 0 removed; undo with: holdfast undo" in said
    assert (project / "text").read_text() == text(l3="three\n", l6="six\n")
    assert (project / "other").read_text() == "two\n"
    assert holdfast("undo").out.startswith("Undid the revert of changes since a1: ")
    assert (project / "text").read_text() == text(l3="three\n", l6="six\n", l30="thirty\n")


def test_hunks_look_as_in_git(patch):
    code, said = answer(patch("latest", "text"), "q")
    assert (
        "text: modified\n@@ -1,10 +1,10 @@\n line 0\n line 1\n line 2\n-line 3\n+three\n line 4\n line 5\n-line 6\n"
        in said
    )
    assert "(1/2) Take back this hunk [y,n,q,a,d,j,J,s,?]? " in said
    assert code == 6 and "Nothing was changed." in said


def test_split(patch, project):
    answer(patch("text"), "s", "n", "y", "n")
    assert (project / "text").read_text() == text(l3="three\n", l30="thirty\n")


def test_all_of_a_file(patch, project):
    answer(patch(), "n", "a")
    assert (project / "text").read_text() == text() and (project / "other").read_text() == "two\n"


def test_rest_of_a_file_is_left(patch, project):
    answer(patch("text"), "y", "d")
    assert (project / "text").read_text() == text(l30="thirty\n")


def test_quit_keeps_what_was_decided(patch, project):
    answer(patch(), "y", "q")
    assert (project / "other").read_text() == "one\n" and "three" in (project / "text").read_text()


def test_end_of_input_is_quit(patch, project):
    shown = patch()
    shown.expect(ASKED)
    shown.type(b"\x04")
    code, said = shown.end()
    assert code == 6 and "Nothing was changed." in said


def test_ctrl_c_changes_nothing(patch, project):
    shown = patch()
    shown.expect(ASKED)
    shown.type(b"y\n")
    shown.expect_again(ASKED)
    shown.process.send_signal(signal.SIGINT)
    code, said = shown.end()
    assert code == 130, said
    assert (project / "other").read_text() == "two\n"


def test_moving_between_hunks(patch, project):
    code, said = answer(patch("text"), "j", "K", "?", "n", "y")
    assert code == 0 and "y - take back this hunk" in said and "J - go to the next hunk" in said
    assert (project / "text").read_text() == text(l3="three\n", l6="six\n")


def test_added_deleted_binary_and_mode(holdfast, project, write, patch):
    write("bin", "\0one")
    write("gone", "gone\n")
    holdfast.saved()
    write("bin", "\0two")
    (project / "gone").unlink()
    write("made", "made\n")
    (project / "text").chmod(0o755)
    shown = patch("latest", "bin", "gone", "made", "text")
    for what in ("Binary files", "Take back this change", "deletion", "addition", "mode change"):
        shown.expect(what)
        if what != "Binary files":
            shown.expect("]?")
            shown.type(b"y\n")
    assert shown.end()[0] == 0
    assert (project / "bin").read_bytes() == b"\0one" and (project / "gone").read_text() == "gone\n"
    assert not (project / "made").exists() and stat.S_IMODE((project / "text").stat().st_mode) == 0o644


def test_bytes_that_could_steer_the_terminal_are_escaped(patch, project, holdfast):
    (project / "other").write_bytes(b"\x1b[2Jcleared\x9b\n")
    _, said = answer(patch("other"), "y")
    assert "\x1b[2J" not in said and "cleared" in said
    assert (project / "other").read_text() == "one\n"


def test_first_word_may_be_a_path(patch, project, holdfast):
    answer(patch("other"), "y")
    assert (project / "other").read_text() == "one\n"
    assert patch("nowhere").end()[0] == 3


def test_nothing_changed(patch, holdfast):
    holdfast("restore", "latest")
    code, said = patch().end()
    assert code == 0 and "Nothing has changed since a1." in said


def test_dry_run_shows_the_plan(patch, project):
    code, said = answer(patch("other", "--dry-run"), "y")
    assert code == 0 and "Taking back 1 change since a1 in" in said and "replace 1 path" in said
    assert (project / "other").read_text() == "two\n"


def test_colour(patch):
    shown = patch("other")
    shown.expect(ASKED)
    assert "\x1b[31m-one\x1b[0m" in shown.said and "\x1b[32m+two\x1b[0m" in shown.said
    shown.type(b"q\n")
    shown.end()


def test_without_a_terminal_it_is_refused(patch, holdfast, project):
    ran = holdfast("restore", "-p")
    assert ran.code == 6 and "-p needs a terminal" in ran.err
    assert holdfast("restore", "-p", "--keep-new").code == 2
