"""`holdfast log` answers without click as it does with it. That it is not loaded: `test_program.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import fast_log

TAKEN = [
    ("log",),
    ("log", "-n", "2"),
    ("log", "-n", "0"),
    ("log", "-n", "1", "-n", "3"),
    ("log", "--json"),
    ("--json", "log", "-n", "1"),
    ("-C", ".", "log"),
    ("-C", "sub", "log"),
    ("-C", "missing", "log"),
    ("-C", "a\0", "log"),
    ("-C", "empty", "log", "--json"),
    ("-C", "run", "log"),
    ("-C", "s3://", "log"),
    ("log", "--all"),
    ("log", "--session", "s", "-n", "1"),
    ("log", "--session", "none", "--json"),
    ("log", "--actor", "nobody"),
    ("log", "--before", "latest"),
    ("log", "--before", "a1"),
    ("log", "--before", "nonsense", "--all"),
]
LEFT = [
    (),
    ("--version",),
    ("log", "-h"),
    ("log", "--all=1"),
    ("log", "--session"),
    ("log", "--session", ""),
    ("log", "--before", "--all"),
    ("log", "--tenant", "t"),
    ("log", "-n"),
    ("log", "-n", "-1"),
    ("log", "-n", "+1"),
    ("log", "-n", "٣"),
    ("log", "-n", "9" * 5000),
    ("log", "-n3"),
    ("log", "log"),
    ("log", "sqlite:///log"),
    ("log", "-C", "sub"),
    ("-n", "1", "log"),
    ("-C", "log"),
    ("-C", "", "log"),
    ("-C", "--json", "log"),
    ("-C", "~", "log"),
    ("--store", "elsewhere", "log"),
    ("save", "log"),
    ("--", "log"),
]


@pytest.fixture
def folders(holdfast, project: Path) -> None:
    """A workspace with three checkpoints, a restore, and places beside it that have none."""
    for name in ("sub", "empty", "run/.holdfast"):
        (project / name).mkdir(parents=True)
    (project / "run" / "last").write_text("")
    for number in range(3):
        (project / "notes.txt").write_text(f"{number}\n")
        holdfast.saved(f"number {number}\nmore", "--session", "s")
    assert holdfast("restore", "latest~1", "--yes").code == 0


def _by_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_log, "understood", lambda args: None)


@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
@pytest.mark.usefixtures("folders")
def test_the_answer_is_the_one_that_click_leads_to(words, holdfast, monkeypatch):
    assert fast_log.understood(words)
    here = holdfast(*words)
    _by_click(monkeypatch)
    assert holdfast(*words) == here


@pytest.mark.parametrize("words", LEFT, ids=lambda words: " ".join(words)[:40])
def test_other_words_are_left_to_click(words):
    assert fast_log.understood(words) is None


def test_the_next_page_is_named_alike(holdfast, project, monkeypatch):
    for number in range(3):
        holdfast.saved(f"number {number}", "--name", f"v{number}")
    here = holdfast("-C", str(project), "log", "-n", "1")
    assert f"holdfast -C {project} log -n 1 --before a3" in here.err
    _by_click(monkeypatch)
    assert holdfast("-C", str(project), "log", "-n", "1") == here


def test_a_configuration_that_is_wrong_is_not_read_for_a_list(holdfast, project, monkeypatch):
    holdfast.saved("one")
    (project / "holdfast.toml").write_text("nonsense = 1\n")
    here = holdfast("log")
    assert here.code == 0 and here.err == ""
    assert "The configuration is not used" in holdfast("show").err
    _by_click(monkeypatch)
    assert holdfast("log") == here


def test_a_shell_that_completes_is_answered_by_click(monkeypatch):
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "bash_complete")
    assert fast_log.understood(["log"]) is None
