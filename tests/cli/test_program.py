"""The program as such: quick to start, quiet in pipes, whole in its help, and its demo is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from holdfast import __version__
from holdfast.cli.group import COMMANDS, SECTIONS
from holdfast.flow import open_states
from waiting import settle

from .conftest import Program


def test_version_loads_neither_the_engine_nor_the_drawing(holdfast):
    code = (
        "import sys; from holdfast.cli.main import main; main(['--version']);"
        "print(sorted({'pygit2', 'rich', 'sqlite3', 'isal', 'holdfast.workspace'} & set(sys.modules)));"
        "print([name for name in sys.modules if name.startswith('holdfast.cli.commands')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"holdfast {__version__}\n[]\n[]\n"


_NEVER = {"asyncio", "email", "msgspec", "platformdirs", "pygit2", "rich", "subprocess", "tempfile", "tomllib"}
_READING = {"isal", "holdfast.shadowgit.objects", "holdfast.workspace.engine", "holdfast.workspace.stored.state"}
_NOT_FOR_LOG = {"dataclasses", "inspect", "holdfast.model.uncovered", "holdfast.workspace.config"}
_RESTORING = {
    "shutil",
    "holdfast.model.changes",
    "holdfast.workspace.restore.restore",
    "holdfast.workspace.stored.diff",
}


@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ("--help", {"sqlite3", "holdfast.workspace"} | _READING),
        ("log", {"click", "hashlib", "shlex", *_NOT_FOR_LOG} | _READING | _RESTORING),
        (
            "log --flat",
            {"click", "hashlib", "shlex", "holdfast.location.reports", *_NOT_FOR_LOG} | _READING | _RESTORING,
        ),
        ("status", {"click", "hashlib", "base64", "shlex", "holdfast.workspace.pathspec"} | _RESTORING),
        (
            "save",
            {"click", "hashlib", "shlex", "holdfast.location", "holdfast.adapters.agents.session_file"} | _RESTORING,
        ),
    ],
)
@pytest.mark.parametrize("configuration", [None, "watch = 1"])
def test_a_command_loads_only_its_own_file_and_what_it_needs(holdfast, project, command, spared, configuration):
    holdfast("save", "message")
    holdfast("log")  # what the checkpoint changed is known from now on
    never = spared | _NEVER
    if configuration and command.startswith("log"):  # reads the file, and checks no values
        (project / "holdfast.toml").write_text(configuration)
        never = never - {"tomllib"}
    code = (
        f"import sys; before = set(sys.modules); from holdfast.cli.main import main; main({command.split()!r});"
        "print([name for name in sys.modules if name.startswith('holdfast.cli.commands.')]);"
        f"print(sorted({never!r} & (set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-2:] == ["[]", "[]"]


def test_a_save_of_nothing_new_loads_neither_openssl_nor_dataclasses(holdfast, project):
    settle(project)  # what is younger is read again
    holdfast("save")
    code = (
        "import sys; from holdfast import Workspace; Workspace('.').save();"
        "print(sorted({'dataclasses', 'hashlib', 'inspect', 'queue', 'encodings.unicode_escape'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_save_of_a_few_files_does_not_load_openssl(holdfast, project):
    holdfast("save")
    for number in range(10):
        (project / f"{number}.txt").write_text(f"{number} word\n" * 300)
    code = (
        "import sys; from holdfast import Workspace; assert Workspace('.').save().is_new;"
        "print(sorted({'dataclasses', 'hashlib', '_hashlib', 'inspect'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_look_at_a_flow_location_loads_no_event_loop(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    open_states(url).close()
    code = (
        f"import sys; before = set(sys.modules); from holdfast.cli.main import main; main(['log', {url!r}]);"
        "print(sorted({'asyncio', 'holdfast.flow', 'holdfast.workspace'} & (set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "['holdfast.flow']"


def test_a_short_command_does_not_look_for_garbage(holdfast):
    code = (
        "import gc, sys; from holdfast.cli.start import main; sys.argv = ['holdfast', '--version']; looks = [];"
        "gc.callbacks.append(lambda phase, info: looks.append(phase)); gc.collect(); looks.clear(); main();"
        "print(looks, gc.get_freeze_count() > 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[] True"


@pytest.mark.parametrize(("command", "cleans_up"), [("status", False), ("log", False), ("show", True)])
def test_log_and_status_end_without_a_clean_up(holdfast, command, cleans_up):
    """All they wrote is there nevertheless."""
    holdfast.saved()
    code = (
        f"import atexit, os, sys; from holdfast.cli.start import main; sys.argv = ['holdfast', {command!r}];"
        "atexit.register(os.write, 2, b'cleaned up'); sys.exit(main())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "a1" in ran.stdout and ran.stdout.endswith("\n")
    assert ran.stderr == ("cleaned up" if cleans_up else "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_short_help_and_takes_json(holdfast, name):
    for flag in ("-h", "--help"):
        ran = holdfast(name, flag)
        assert ran.code == 0 and "--json" in ran.out and not ran.err
        assert len(ran.out.splitlines()) < 40


@pytest.mark.parametrize("name", ["apply", "explain", "init", "plan", "rollback", "search", "status", "verify"])
def test_every_command_below_index_takes_json(holdfast, name):
    ran = holdfast("index", name, "--help")
    assert ran.code == 0 and "--json" in ran.out and len(ran.out.splitlines()) < 35


def test_the_help_lists_every_command_in_full(holdfast):
    listed = holdfast("--help").out.partition("Show this message and exit.")[2]
    names = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    assert names == list(COMMANDS) and "..." not in listed
    titles = [line.rstrip(":") for line in listed.splitlines() if line and not line.startswith(" ")]
    assert titles == list(SECTIONS)


@pytest.mark.parametrize("name", COMMANDS)
def test_one_letter_means_one_thing_everywhere(holdfast, name):
    letters = dict(re.findall(r"^  (-\w), (--[\w-]+)", holdfast(name, "--help").out, re.MULTILINE))
    meant = {
        "-h": "--help",
        "-m": "--message",
        "-n": "--limit",
        "-o": "--output",
        "-y": "--yes",
        "-E": "--regex",
        "-i": "--ignore-case",
        "-p": "--patch",
    }
    assert letters.items() <= meant.items()


@pytest.mark.parametrize("name", ["bisect", "diff", "guard", "search"])
def test_the_usage_names_what_comes_after_the_dashes(holdfast, name):
    usage = holdfast(name, "--help").out.splitlines()[0]
    assert usage.endswith(" -- COMMAND..." if name in ("bisect", "guard") else " [-- PATHS...]")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_line_of_each_help(holdfast, name):
    assert holdfast(name, "--help").out.partition("\n\n")[2].lstrip().startswith(COMMANDS[name])


def test_without_a_command_help_is_shown_with_usage_exit_code(holdfast):
    ran = holdfast()
    assert ran.code == 2 and ran.out == "" and ran.err == holdfast("--help").out


def test_a_reader_that_has_seen_enough_is_no_error(holdfast, project):
    for n in range(3):
        (project / "a.txt").write_text(f"{n}\n" * 100_000)
        holdfast("save", f"message {n}")
    for args in ("log", "diff latest~1 latest", "diff latest~1 latest --json", "log --bogus"):
        command = f"{sys.executable} -m holdfast.cli {args} 2>&1 | head -c 1; exit ${{PIPESTATUS[0]}}"
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert len(ran.stdout) == 1 and ran.stderr == "", ran
        assert ran.returncode == (2 if "bogus" in args else 0)


def test_a_reader_that_is_gone_before_the_first_line_is_no_error(holdfast):
    holdfast("save")
    for args in (["log"], ["log", "--json"], ["show"], ["diff"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb") as gone:
            ran = subprocess.run(
                [*holdfast.command, *args], stdout=gone, stderr=subprocess.PIPE, text=True, check=False
            )
        assert ran.returncode == 0 and "Broken" not in ran.stderr and "error" not in ran.stderr, (args, ran)


def test_closed_streams_are_no_error(holdfast):
    command = f"{sys.executable} -m holdfast.cli save >&- 2>&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0
    assert len(holdfast("log", "--json").json["items"]) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_answer_that_cannot_be_written_is_an_error(holdfast):
    holdfast("save")
    command = f"{sys.executable} -m holdfast.cli log > /dev/full"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 7 and "could not be written" in ran.stderr and "Traceback" not in ran.stderr


def test_a_diff_in_a_pipe_has_the_bytes_of_the_file(holdfast, project):
    holdfast("save")
    (project / "a.txt").write_bytes(b"caf\xe9\x1b\n")
    ran = holdfast.spawn("diff")
    assert "+" + os.fsdecode(b"caf\xe9\x1b") in ran.out.splitlines()


def test_the_demo_is_true_and_leaves_nothing_behind(holdfast, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ran = holdfast.spawn("demo", TMPDIR=str(scratch), PATH="/nonexistent")
    assert ran.code == 0, ran.out + ran.err
    assert "5 of 5 comparisons hold" in ran.out and "✗" not in ran.out
    for typed in ("save", "restore latest", "undo", "redo", "undo --agent claude-code"):
        assert f"$ holdfast {typed}" in ran.out
    assert "undo with: holdfast undo\n" in ran.out
    lines = ran.out.splitlines()
    assert len(lines) <= 36 and max(map(len, lines)) <= 80, "one and a half screens"
    assert lines[-1] == "Next: holdfast save in your project; holdfast install claude-code for an agent."
    assert not list(scratch.iterdir()) and not (tmp_path / "state").exists()


def test_the_demo_in_json_is_one_document(holdfast):
    ran = holdfast("demo", "--json")
    assert ran.code == 0 and ran.json["ok"] is True and all(ran.json["comparisons"].values())


def test_the_demo_fails_when_something_does_not_come_back(holdfast, monkeypatch):
    from holdfast.cli.commands import demo

    found = demo.snapshot
    calls = iter(range(100))

    def forgetful(project):
        taken = found(project)
        if next(calls) == 2:  # the look after the restore
            del taken["src/app.py"]
        return taken

    monkeypatch.setattr(demo, "snapshot", forgetful)
    ran = holdfast("demo")
    assert ran.code == 1 and "✗ every byte, mode, time" in ran.out and "src/app.py is missing" in ran.out


@pytest.mark.parametrize("words", [("--version", "--verbose"), ("--verbose", "--version"), ("doctor",)], ids=" ".join)
def test_implementation_of_the_scan_is_shown(words: tuple[str, ...], holdfast: Program) -> None:
    def said(**environ: str) -> str:
        ran = holdfast.spawn(*words, **environ)
        return ran.out + ran.err

    assert "native" in said() and "pure Python" not in said()
    assert "pure Python, because HOLDFAST_NATIVE is 0" in said(HOLDFAST_NATIVE="0")
