"""On a real terminal: questions are asked, colour is used, and no stored data can steer the terminal."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.cli.render import ago, escape, size

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A program on a pseudo-terminal: wait for what it says, type, read how it ends."""

    def __init__(self, args: list[str], environment: dict[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        env = os.environ | environment
        self.process = subprocess.Popen(
            args, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True, close_fds=True
        )
        os.close(slave)
        self.said = ""

    def expect(self, text: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline and self._read(1.0) is not None, f"no {text!r} in {self.said!r}"

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def expect_again(self, text: str) -> None:
        """Wait for what is printed from now on."""
        already, self.said = self.said, ""
        self.expect(text)
        self.said = already + self.said

    def listen(self, seconds: float) -> None:
        """Take what it says in this time."""
        self._read(seconds)

    def end(self) -> tuple[int, str]:
        deadline = time.monotonic() + 60
        while self._read(1.0) is not None:
            assert time.monotonic() < deadline, f"it does not end: {self.said!r}"
        code = self.process.wait(60)
        os.close(self.master)
        return code, self.said

    def _read(self, seconds: float) -> str | None:
        if not select.select([self.master], [], [], seconds)[0]:
            return ""
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return None
        self.said += data.decode("utf-8", "replace")
        return self.said if data else None


@pytest.fixture
def terminal(holdfast) -> Callable[..., Terminal]:
    return lambda *args, **environment: Terminal([*holdfast.command, *args], environment)


def test_restore_does_not_ask_and_lists_what_it_did(holdfast, project, terminal):
    holdfast("save")
    (project / "a.txt").write_text("two\n")
    (project / "new.txt").write_text("new\n")
    (project / "src" / "b.py").unlink()
    code, said = terminal("restore", "latest").end()
    assert code == 0 and "[y/N]" not in said and "undo with: holdfast undo" in said
    plain = COLOUR.sub("", said).split("\r\n")
    assert plain[:3] == ["  M a.txt", "  D new.txt", "  A src/b.py"]
    assert (project / "a.txt").read_text() == "one\n"


def test_plans_have_colour(holdfast, project, terminal):
    holdfast("save")
    (project / "a.txt").write_text("two\n")
    (project / "new.txt").write_text("new\n")
    said = terminal("restore", "latest", "--dry-run").end()[1]
    assert "\x1b[33mreplace 1 path\x1b[0m" in said and "\x1b[31mremove 1 path\x1b[0m" in said
    assert "\x1b" not in terminal("restore", "latest", "--dry-run", NO_COLOR="1").end()[1]


def test_long_work_shows_a_bar(holdfast):
    code = (
        "import holdfast.cli.progress as progress; progress.SHOWN_AFTER_SECONDS = 0\n"
        "with progress.shown() as shown: shown('looking\\nfor files', 7, 10)"
    )
    code, said = Terminal([sys.executable, "-c", code], {}).end()
    assert code == 0 and "looking\\nfor files" in said and "7/10" in said


def test_bytes_are_counted_and_a_large_file_is_named(holdfast):
    code = (
        "import holdfast.cli.progress as progress; progress.SHOWN_AFTER_SECONDS = 0\n"
        "with progress.shown() as shown:\n"
        "    shown('reading', 1 << 20, 3 << 30); shown('reading big\x1b.bin', 5 << 20, 1 << 30)\n"
    )
    code, said = Terminal([sys.executable, "-c", code], {}).end()
    assert code == 0 and "1.0 MiB/3.0 GiB" in said and "reading big\\x1b.bin" in said and "5.0 MiB/1.0 GiB" in said


def test_a_step_that_is_long_in_itself_shows_a_bar(holdfast):
    code = (
        "import time; from holdfast.cli import progress\n"
        "with progress.shown() as shown:\n"
        "    shown('looking', 0, 1)\n"
        "    while shown._bar is None: time.sleep(0.01)\n"  # as one large file would be read
    )
    code, said = Terminal([sys.executable, "-c", code], {}).end()
    assert code == 0 and "looking" in said and "0/1" in said


@pytest.mark.parametrize("reply", [b"\n", b"maybe\n", b"\xff\n", b"\x04"])
def test_any_other_answer_is_no(holdfast, terminal, reply):
    holdfast("save")
    shown = terminal("rm", "latest")
    shown.expect("Delete? [y/N] ")
    shown.type(reply)
    code, said = shown.end()
    assert code == 6 and "Nothing was changed." in said and "error" not in said
    assert len(holdfast("log", "--json").json["items"]) == 1


def test_interrupting_the_question_ends_with_one_line_and_130(holdfast, terminal):
    holdfast("save")
    shown = terminal("rm", "latest")
    shown.expect("Delete? [y/N] ")
    shown.process.send_signal(signal.SIGINT)
    code, said = shown.end()
    lines = said.partition("[y/N] ")[2].split("\n")
    assert code == 130 and [line for line in lines if line.strip()] == [line for line in lines if "interrupted" in line]


def test_colour_is_used_on_a_terminal_unless_no_color_is_set(holdfast, project, terminal):
    holdfast("save", "message")
    (project / "a.txt").write_text("two\n")
    for args in (["log"], ["diff"], ["show"]):
        assert COLOUR.search(terminal(*args).end()[1]), args
        assert "\x1b" not in terminal(*args, NO_COLOR="1").end()[1], args
        assert "\x1b" not in holdfast(*args).out, args


def test_no_stored_data_reaches_the_terminal_as_a_command_to_it(holdfast, project, terminal):
    evil = "\x1b]0;owned\x07\x1b[2J\r\nfake line\u202e\u200b\x9b31m"
    (project / evil.replace("/", "")).write_text(evil)
    (project / os.fsdecode(b"byte-\xff")).write_text("x")
    holdfast("save", "-m", evil, "--name", "n", "--session", evil, "--actor", evil, "--meta", f"{evil}={evil}")
    (project / evil).write_text(evil + "changed")
    (project / "new\nfake.txt").write_text("x")
    for args in (
        ["log"],
        ["show"],
        ["diff"],
        ["diff", "--stat"],
        ["restore", "latest", "--dry-run"],
        ["restore", evil],
    ):
        plain = COLOUR.sub("", terminal(*args).end()[1]).replace("\r\n", "\n")
        assert not set(plain) & set("\x1b\x07\r\u202e\u200b\x9b"), args
        assert "\nfake" not in plain, args
    assert "byte-\\xff" in holdfast("show").out


def test_a_table_fits_the_terminal(holdfast, terminal):
    holdfast("save", "-m", "word " * 100, "--actor", "somebody")
    lines = COLOUR.sub("", terminal("log", "--flat", COLUMNS="60").end()[1]).splitlines()
    assert lines[0].split() == ["id", "when", "by", "message"]
    assert len(lines) == 2 and all(len(line) <= 60 for line in lines) and "…" in lines[1]
    assert "s ago" in lines[1]


def test_the_id_is_whole_on_the_narrowest_terminal(holdfast, terminal):
    holdfast.saved("-m", "word " * 20, "--name", "a-long-name-of-a-checkpoint", "--actor", "claude-code")
    lines = terminal("log", "--flat", COLUMNS="40", NO_COLOR="1").end()[1].splitlines()
    assert lines[1].startswith("a1  ") and "word" in lines[1]
    assert all(len(line) <= 40 for line in lines)


def test_columns_without_room_are_left_out(holdfast, terminal, project):
    holdfast.saved()
    width = len(str(project)) + 23
    lines = terminal("workspaces", COLUMNS=str(width), NO_COLOR="1").end()[1].splitlines()
    assert lines[0].split() == ["folder", "checkpoints", "size"]
    assert lines[1].startswith(f"{project} ") and all(len(line) <= width for line in lines)


def test_rm_says_what_a_safety_copy_is_for(holdfast, write, terminal):
    holdfast.saved()
    write("a.txt", "two\n")
    holdfast("restore", "latest", "--yes")
    asked = terminal("rm", "a2")
    asked.expect("[y/N]")
    asked.type(b"n\n")
    asked.end()
    assert "before restore to a1" in asked.said and "needed to undo" in asked.said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größer 日本 👍", "plain größer 日本 👍"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[31m\x7f\x00", "\\x1b[31m\\x7f\\x00"),
        ("\x9b\x85", "\\u009b\\u0085"),
        (os.fsdecode(b"\xff"), "\\xff"),
        ("\ud800", "\\ud800"),
        ("\u202e\u2066\u200b\u200d\ufeff\u2028", "\\u202e\\u2066\\u200b\\u200d\\ufeff\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("10\u202f%\u00a0\u3000", "10\u202f%\u00a0\u3000"),
    ],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    assert escape(text) == shown


def test_sizes_and_times_are_for_people():
    assert [size(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "3.0 TiB"]
    now = datetime.now(UTC)
    assert ago(now - timedelta(minutes=5, seconds=3)) == "5 min ago"
    assert ago(now - timedelta(hours=23)) == "23 h ago"
    for far in (now - timedelta(days=2), now + timedelta(days=2)):
        assert ago(far) == far.astimezone().strftime("%Y-%m-%d %H:%M")


def test_purge_shows_the_plan_and_asks(holdfast, write, terminal):
    write(".env", "TOKEN=0123456789\n")
    holdfast("save")
    refused = holdfast("purge", ".env")
    assert refused.code == 6
    assert holdfast("show", "--json").json["checkpoint"]["purged"] == []
    shown = terminal("purge", ".env")
    shown.expect("Purge, for good? [y/N] ")
    assert "the next save saves it again" in shown.said
    shown.type(b"y\n")
    code, said = shown.end()
    assert code == 0
    assert "Purged 1 path from 1 checkpoint" in said
    assert holdfast("show", "--json").json["checkpoint"]["purged"] == [".env"]


def test_undo_with_saves_between_asks(holdfast, project, terminal):
    holdfast("save")
    (project / "a.txt").write_text("two\n")
    holdfast("restore", "latest", "--yes")
    newer = project / "newer.txt"
    newer.write_text("newer\n")
    holdfast("save")
    for answer, code in ((b"n\n", 6), (b"y\n", 0)):
        shown = terminal("undo")
        shown.expect("Undo it? [y/N] ")
        assert "1 checkpoint was saved since" in shown.said and "newer.txt" in shown.said and newer.exists()
        shown.type(answer)
        assert shown.end()[0] == code
    assert not newer.exists()
