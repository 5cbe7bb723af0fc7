"""`export`, `search`, `why`, `purge`, `guard`, and `bisect`."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from waiting import wait_for


def test_every_one_of_them_prints_one_document(holdfast, project, write, tmp_path):
    write("a.txt", "Needle\n")
    holdfast("save")
    write("a.txt", "none\n")
    holdfast("save")
    ran = {
        "why": holdfast("why", "a.txt", "--json"),
        "export": holdfast("export", "latest", str(tmp_path / "out"), "--json"),
        "search": holdfast("search", "Needle", "--json"),
        "guard": holdfast.spawn("guard", "--json", "--", "echo", "printed by the command"),
        "bisect": holdfast.spawn("bisect", "latest~1", "--json", "--", "grep", "Needle", "a.txt"),
        "plan": holdfast("purge", "a.txt", "--dry-run", "--json"),
        "purge": holdfast("purge", "a.txt", "--yes", "--json"),
    }
    for name, one in ran.items():
        assert one.code == 0, (name, one)
        assert isinstance(one.json, dict), name
        assert one.out.isascii(), name
    assert ran["why"].json["items"][0]["held"] is True
    assert sorted(ran["export"].json["exported"]["written"]) == ["a.txt", "src", "src/b.py"]
    [match] = ran["search"].json["items"]
    assert (match["path"], match["first"]["short_id"], match["disappeared_in"]["short_id"]) == ("a.txt", "a1", "a2")
    assert ran["guard"].json["exit_code"] == 0
    assert "printed by the command" in ran["guard"].err
    assert ran["bisect"].json["first_bad"]["short_id"] == "a2"
    assert ran["plan"].json["plan"]["paths"] == ["a.txt"]
    assert ran["plan"].json["purged"] is None
    assert ran["purge"].json["purged"]["objects"] > 0


# why


def test_why_answers_from_the_current_folder(holdfast, project, write, monkeypatch):
    write(".holdfastignore", "*.log\n")
    write("src/x.log", "x")
    holdfast("save")
    monkeypatch.chdir(project / "src")
    ran = holdfast("why", "x.log", "b.py")
    assert ran.out.splitlines() == [
        "src/x.log is not included: it is excluded (.holdfastignore:1: *.log)",
        "src/b.py is included: no rule excludes it",
    ]


def test_why_says_that_the_last_checkpoint_still_holds_it(holdfast, write):
    write("x.log", "x")
    holdfast("save")
    write(".holdfastignore", "*.log\n")
    assert "a1, contains it" in holdfast("why", "x.log").err


# export


def test_export_writes_some_paths_and_refuses_a_folder_in_use(holdfast, project, tmp_path):
    holdfast("save")
    assert "Exported 1 path of a1" in holdfast("export", "latest", str(tmp_path / "out"), "a.txt").out
    assert os.listdir(tmp_path / "out") == ["a.txt"]
    ran = holdfast("export", "latest", str(tmp_path / "out"))
    assert (ran.code, "not empty" in ran.err) == (6, True)
    assert holdfast("export", "latest", str(project / "inside")).code == 6


# search


def test_search_says_since_when_until_when_and_by_whom(holdfast, write):
    write("a.txt", "has Needle\n")
    holdfast("save", "came", "--actor", "claude", "--session", "s1")
    write("a.txt", "none\n")
    holdfast("save", "went")
    lines = holdfast("search", "needle", "-i", "--", "a.*").out.splitlines()
    assert lines[0] == "a.txt:1: has Needle"
    assert lines[1].split()[:2] == ["since", "a1"]
    assert "claude s1" in lines[1]
    assert lines[3].split()[:3] == ["gone", "in", "a2"]
    assert "No checkpoint contains 'needle'." in holdfast("search", "needle", "--", "src").err
    assert holdfast("search", "(", "-E").code == 6


def test_what_is_found_cannot_steer_the_terminal(holdfast, write):
    write("a.txt", "Needle \x1b[31m\n")
    holdfast("save")
    assert "\x1b" not in holdfast("search", "Needle").out


def test_search_says_that_there_are_more(holdfast, write):
    for number in range(3):
        write(f"{number}.txt", "Needle\n")
    holdfast("save")
    ran = holdfast("search", "Needle", "-n", "2")
    assert len(ran.out.splitlines()) == 4
    assert ran.err == "There are more: holdfast search -n 4 Needle\n"
    assert holdfast("search", "-i", "NEEDLE", "-n", "1", "--", "*.txt").err.split(": ")[1] == (
        "holdfast search -i -n 2 NEEDLE -- '*.txt'\n"
    )


# purge


def test_purge_is_incomplete_if_the_bytes_are_elsewhere(holdfast, write):
    write(".env", "TOKEN=0123456789\n")
    write("copy", "TOKEN=0123456789\n")
    holdfast("save")
    ran = holdfast("purge", ".env", "--yes")
    assert ran.code == 8
    assert "copy  (a1)" in ran.err


# guard


def test_guard_restores_after_a_failure_and_keeps_its_exit_code(holdfast, project):
    ran = holdfast.spawn("guard", "--", "sh", "-c", "echo spoilt > a.txt; touch new; exit 7")
    assert ran.code == 7
    assert (project / "a.txt").read_text() == "one\n"
    assert not (project / "new").exists()
    assert "undo with: holdfast undo" in ran.err
    assert ran.out == ""


def test_guard_runs_in_the_folder_that_is_named(holdfast, project, tmp_path, monkeypatch):
    """Elsewhere the command would change files that nobody saved."""
    monkeypatch.chdir(tmp_path)
    ran = holdfast.spawn("-C", str(project), "guard", "--", "sh", "-c", "echo spoilt > a.txt; exit 7")
    assert ran.code == 7 and not (tmp_path / "a.txt").exists()
    assert (project / "a.txt").read_text() == "one\n" and "1 written" in ran.err


def test_guard_brings_the_folder_itself_back(holdfast, project):
    ran = holdfast.spawn("guard", "--", "sh", "-c", f"rm -rf {project}; exit 7")
    assert (ran.code, ran.out) == (7, "")
    assert (project / "a.txt").is_file()


def test_guard_leaves_what_succeeded_and_what_it_is_told_to_keep(holdfast, project):
    assert holdfast.spawn("guard", "-m", "mine", "--", "sh", "-c", "echo done > a.txt; echo said").out == "said\n"
    assert (project / "a.txt").read_text() == "done\n"
    assert holdfast("log", "--json").json["items"][0]["message"] == "mine"
    ran = holdfast.spawn("guard", "--keep", "--", "sh", "-c", "echo spoilt > a.txt; exit 7")
    assert (ran.code, (project / "a.txt").read_text()) == (7, "spoilt\n")
    assert "holdfast restore a2" in ran.err


def test_guard_takes_back_what_a_signal_cut_short(holdfast, project):
    ran = holdfast.spawn("guard", "--", "sh", "-c", "echo spoilt > a.txt; kill -9 $$")
    assert ran.code == 128 + 9
    assert (project / "a.txt").read_text() == "one\n"


def interrupt_once_ready(words: list[str], ready: Path, **environment: str) -> int:
    """Start a program, interrupt its group once its command has made a file, and return how it ended."""
    environ = os.environ | environment
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, env=environ, start_new_session=True) as process:
        wait_for(ready.exists)
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(60)


def test_ctrl_c_ends_the_command_and_takes_it_back(holdfast, project, tmp_path):
    script = f"echo spoilt > a.txt; touch {tmp_path}/ready; exec sleep 60"
    words = [*holdfast.command, "guard", "--", "sh", "-c", script]
    assert interrupt_once_ready(words, tmp_path / "ready") == 130
    assert (project / "a.txt").read_text() == "one\n"


def test_command_that_succeeds_on_ctrl_c_is_left_alone(holdfast, project, tmp_path):
    waiting = "while :; do sleep 0.05; done"  # a trap waits for what runs, which may have begun after the signal
    script = f"trap 'exit 0' INT; echo done > a.txt; touch {tmp_path}/ready; {waiting}"
    words = [*holdfast.command, "guard", "--", "sh", "-c", script]
    assert interrupt_once_ready(words, tmp_path / "ready") == 0
    assert (project / "a.txt").read_text() == "done\n"


def test_guard_without_a_command_or_with_one_that_is_not_there(holdfast):
    assert holdfast("guard").code == 2
    ran = holdfast("guard", "--", "no-such-command-here")
    assert (ran.code, "no command no-such-command-here" in ran.err) == (3, True)


# bisect


@pytest.fixture
def line(holdfast, write):
    for number in range(8):
        write("a.txt", f"{number}\n")
        holdfast("save", str(number))


@pytest.mark.usefixtures("line")
def test_bisect_finds_the_first_that_fails_and_touches_nothing(holdfast, project, tmp_path):
    ran = holdfast.spawn("bisect", "a1", "latest", "--", "sh", "-c", "test $(cat a.txt) -lt 5", TMPDIR=str(tmp_path))
    assert ran.code == 0
    assert ran.out == "a6 is the first bad checkpoint: 5\n"
    assert "a1  good  (at most 3 more)" in ran.err
    assert "holdfast diff a5 a6" in ran.err
    assert (project / "a.txt").read_text() == "7\n"
    assert not list(tmp_path.glob("holdfast-bisect-*"))


@pytest.mark.usefixtures("line")
def test_bisect_skips_125_and_shows_its_checkpoint(holdfast):
    script = (
        'n=$(cat a.txt); echo "$HOLDFAST_CHECKPOINT"; [ $n = 4 ] && exit 125; [ $n = 5 ] && exit 125; test $n -lt 4'
    )
    ran = holdfast.spawn("bisect", "a1", "a8", "--", "sh", "-c", script)
    assert ran.code == 8
    assert "could not be tested: a5, a6, a7" in ran.out
    assert "a1-" in ran.err


@pytest.mark.usefixtures("line")
def test_bisect_refuses_what_makes_no_sense_and_hints(holdfast):
    assert "an earlier checkpoint as GOOD" in holdfast.spawn("bisect", "a1", "a8", "--", "false").err
    assert "a later checkpoint as BAD" in holdfast.spawn("bisect", "a1", "a8", "--", "true").err
    assert holdfast("bisect", "a8", "a1", "--", "true").code == 6
    assert holdfast("bisect", "a1", "a8").code == 2
    assert holdfast("bisect", "a1", "a8", "--", "no-such-command-here").code == 3


@pytest.mark.usefixtures("line")
def test_ctrl_c_stops_a_bisect_and_leaves_no_scratch_folder(holdfast, tmp_path):
    waiting = "while :; do sleep 0.05; done"  # as above
    script = f"trap 'exit 0' INT; touch {tmp_path}/ready; {waiting}"
    words = [*holdfast.command, "bisect", "a1", "a8", "--", "sh", "-c", script]
    assert interrupt_once_ready(words, tmp_path / "ready", TMPDIR=str(tmp_path)) == 130
    assert not list(tmp_path.glob("holdfast-bisect-*"))


def test_the_scratch_folder_is_for_its_owner_only(holdfast, project, write, tmp_path: Path) -> None:
    write("a.txt", "1\n")
    holdfast("save")
    write("a.txt", "2\n")
    holdfast("save")
    modes = tmp_path / "modes"
    script = f"stat -c %a .. >> {modes}; test $(cat a.txt) = 1"
    holdfast.spawn("bisect", "a1", "a2", "--", "sh", "-c", script, TMPDIR=str(tmp_path))
    assert set(modes.read_text().split()) == {"700"}


def test_search_says_what_the_folder_has(holdfast, write):
    write("a.txt", "Needle\n")
    holdfast.saved()
    write("a.txt", "without\n")
    assert "no longer in the folder; not saved yet" in holdfast("search", "Needle").out
    holdfast.saved()
    gone = holdfast("search", "Needle").out
    assert "gone in a2" in gone and "folder" not in gone
    write("a.txt", "Needle, typed again\n")
    again = holdfast("search", "Needle").out
    assert "gone in a2" in again and "again in the folder now" in again


def test_guard_says_that_a_command_changed_nothing(holdfast):
    ran = holdfast("guard", "--", "false")
    assert ran.code == 1 and ran.err.splitlines()[-1] == "The command failed (1) and changed no file"


def test_guard_says_whether_it_saved_anything(holdfast, project):
    holdfast.saved()
    assert holdfast("guard", "--", "true").err.startswith("Already saved as a1\n")
    (project / "a.txt").write_text("two\n")
    assert holdfast("guard", "--", "true").err.startswith("Saved a2\n")
