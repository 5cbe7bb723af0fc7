"""With `--json` every command prints exactly one document, and every name comes through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from docs.pages import documented
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states

NASTY = [b"bytes-\xff\xfe", b"line\nbreak", b"\x1b[31mred", "mañana \u202e\u200b".encode()]


@pytest.fixture
def nasty(project) -> list[str]:
    for name in NASTY:
        with open(os.path.join(os.fsencode(project), name), "w") as file:
            file.write("one\n")
    return sorted(os.fsdecode(name) for name in NASTY)


def change(project, nasty):
    for name in nasty:
        (project / name).write_text("two\n")


def test_every_command_prints_one_document(holdfast, project, nasty):
    documents = {
        "init": holdfast("--json", "init"),
        "save": holdfast("save", "--json"),
        "log": holdfast("log", "--json"),
        "show": holdfast("show", "--json"),
    }
    change(project, nasty)
    documents |= {
        "diff": holdfast("diff", "--json"),
        "plan": holdfast("restore", "latest", "--dry-run", "--json"),
        "restore": holdfast("restore", "latest", "--yes", "--json"),
        "nothing": holdfast("restore", "latest", "--yes", "--json"),
        "undo": holdfast("undo", "--json"),
        "redo": holdfast("redo", "--json"),
        "verify": holdfast("verify", "--json"),
        "where": holdfast("where", "--json"),
        "rm": holdfast("rm", "latest", "--yes", "--json"),
        "version": holdfast("--version", "--json"),
    }
    for name, ran in documents.items():
        assert ran.code == 0, (name, ran)
        assert isinstance(ran.json, dict), name
        assert ran.out.isascii(), name


def test_what_every_command_prints_is_as_the_page_says(holdfast, project, tmp_path):
    with open_states("sqlite:///from.db") as states:
        states.save(Checkpoint(CheckpointMetadata("c", "s", datetime.now(UTC), "n", 1), {}))
    told, fork = documented(), str(tmp_path / "fork")
    for name, *words in (
        ("init",), ("save",), ("show",), ("pin", "latest"), ("log",), ("cat", "latest:a.txt"), ("status",),
        ("workspaces",), ("workspaces --remove-gone",), ("restore", "latest", "--dry-run"),
        ("fork", "latest", fork), ("adopt", fork, "--yes"), ("undo",), ("redo",), ("guard", "--json", "--", "true"),
        ("export", "latest", str(tmp_path / "out")), ("prune", "--keep-last", "1", "--dry-run"),
        ("purge", "a.txt", "--dry-run"), ("copy", "sqlite:///from.db", "sqlite:///to.db", "--dry-run"),
        ("copy", "sqlite:///from.db", "sqlite:///to.db"), ("search", "one"), ("why", "a.txt"),
        ("blame", "a.txt"), ("install", "codex"), ("uninstall", "codex"), ("doctor",), ("completion", "bash"),
        ("rm", "latest", "--yes"), ("index init",),
    ):  # fmt: skip
        ran = holdfast("--json", *name.split(), *words)
        assert (ran.code, ran.json.keys()) == (0, told[name]), (name, ran)


def test_lists_have_one_shape(holdfast, project):
    for text in ("one", "two", "three"):
        (project / "a.txt").write_text(f"{text}\n")
        holdfast("save", text)
    for words, count in (
        (("log", "-n", "2"), 2), (("usage", "-n", "2"), 2), (("search", "t"), 2), (("why", "a.txt"), 1),
        (("blame", "a.txt"), 1), (("prune", "--keep-last", "1", "--dry-run"), 2), (("rm", "a1", "--yes"), 1),
        (("prune", "--keep-last", "1", "--yes"), 1), (("prune", "--keep-last", "1"), 0), (("doctor", "codex"), 1),
        (("install", "codex", "--dry-run"), None),  # its hooks, and one for each of its commands
    ):  # fmt: skip
        found = holdfast(*words, "--json").json
        assert list(found)[:2] == ["items", "next"], (words, found)
        assert len(found["items"]) == count if count is not None else len(found["items"]) > 1, (words, found)
        assert (found["next"] is not None) == (words[0] == "log"), words


def test_usage_and_search_say_whether_there_is_more(holdfast, project):
    for text in ("one", "two", "three"):
        (project / "a.txt").write_text(f"{text}\n")
        holdfast("save", text)
    for words, more in (("usage", "-n", "2"), 1), (("usage",), 0), (("search", "t", "-n", "1"), True):
        assert holdfast(*words, "--json").json["more"] == more


def test_any_name_round_trips_through_save_diff_and_restore(holdfast, project, nasty):
    assert set(nasty) <= set(holdfast("save", "--json").json["checkpoint"]["files_changed"])
    change(project, nasty)
    diff = holdfast("diff", "--json").json
    assert sorted(diff["modified_files"]) == nasty
    assert diff["line_counts"][nasty[0]] == {"added": 1, "removed": 1}
    done = holdfast("restore", "latest", "--yes", "--json").json
    assert sorted(done["plan"]["replaced"]) == nasty
    assert set(nasty) <= set(done["restored"]["written"])


def test_a_program_of_its_own_prints_the_same_bytes(holdfast, project, nasty):
    ran = holdfast.spawn("save", "--json", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    found = {name.encode("utf-8", "surrogateescape") for name in json.loads(ran.out)["checkpoint"]["files_changed"]}
    assert set(NASTY) <= found


@pytest.mark.slow
def test_another_locale_finds_earlier_saves(holdfast, project, nasty):
    other = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (project / "größe").mkdir()
    (project / "größe" / "日本").write_text("text\n")
    saved = holdfast.saved()
    again = holdfast.spawn("save", "--json", **other)
    assert (again.code, again.json["new"], again.json["checkpoint"]["id"]) == (0, False, saved)
    (project / "größe" / "日本").unlink()
    done = holdfast.spawn("restore", "latest", "--yes", "--json", **other)
    assert done.json["restored"]["written"] == ["größe/日本"]
    assert "größe/日本" in holdfast.spawn("show", "latest", **other).out


@pytest.mark.parametrize(
    "inside",
    [
        "sys.executable = '/nowhere/python'",
        "sys.executable = None",
        "sys.orig_argv[0] = ''",
        "sys.orig_argv[1:1] = ['-X', 'utf8']",
    ],
)
def test_program_that_cannot_restart_keeps_its_locale(inside):
    """As within a program that is no Python, or does not heed its options, which would go on like that for ever."""
    code = f"import sys; from holdfast.cli.start import main; {inside}; assert not sys.flags.utf8_mode; exit(main())"
    other = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        env={**os.environ, **other}, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("holdfast ")


def test_times_are_iso_in_utc_wherever_the_program_runs(holdfast):
    holdfast("save")
    assert holdfast.spawn("show", "--json", TZ="Asia/Kolkata").json["checkpoint"]["timestamp"].endswith("+00:00")


def test_a_plan_that_was_only_shown_is_not_done(holdfast, project):
    for text in ("one", "two", "three"):
        (project / "a.txt").write_text(text)
        holdfast("save", text)
    for command, done in (
        (["prune", "--keep-last=2"], "pruned"), (["restore", "latest~1"], "restored"), (["purge", "a.txt"], "purged"),
    ):  # fmt: skip
        listed = {"items", "next"} if done == "pruned" else set()
        assert holdfast(*command, "--dry-run", "--json").json.keys() == {"plan", done} | listed
        assert holdfast(*command, "--dry-run", "--json").json[done] is None
        assert holdfast(*command, "--yes", "--json").json[done]


def test_an_error_is_a_document_on_stdout_too(holdfast):
    holdfast("save")
    ran = holdfast("show", "nonsense", "--json")
    assert ran.code == 3 and not ran.err
    error = ran.json["error"]
    assert error["kind"] == "not-found" and "nonsense" in error["message"] and "hint" in error


def test_a_usage_error_is_a_document_too(holdfast):
    for args in (["--json"], ["--json", "sav"], ["log", "--limit", "x", "--json"], ["--json", "--bogus"]):
        ran = holdfast(*args)
        assert ran.code == 2 and not ran.err
        assert ran.json["error"]["kind"] == "usage"


def test_json_never_asks_even_where_somebody_could_answer(holdfast, project, monkeypatch):
    holdfast("save")
    (project / "a.txt").write_text("two\n")
    monkeypatch.setattr("holdfast.cli.streams.can_ask", lambda: True)
    monkeypatch.setattr("holdfast.cli.streams.ask", lambda question: True)
    ran = holdfast("rm", "latest", "--json")
    assert ran.code == 6 and ran.json["error"]["kind"] == "refused"
    assert (project / "a.txt").read_text() == "two\n"


def test_a_path_called_json_after_dashes_is_a_path(holdfast, project):
    (project / "--json").write_text("one\n")
    holdfast("save")
    (project / "--json").write_text("two\n")
    assert holdfast("diff", "--name-only", "--", "--json").out == "--json\n"
