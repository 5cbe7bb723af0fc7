"""`holdfast save` answers without click as it does with it. That it is not loaded: `test_program.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli import fast_save

TAKEN = [
    ("save",),
    ("save", "a message"),
    ("save", "notes.txt"),
    ("save", "help"),
    ("save", "log"),
    ("save", "-m", "a message"),
    ("save", "--message", "notes.txt"),
    ("save", "a message", "--json"),
    ("--json", "save", "-m", "a message"),
    ("-C", ".", "save", "one"),
    ("-C", "sub", "save"),
    ("-C", "missing", "save"),
    ("-C", "a\0", "save"),
    ("-C", "s3://", "save", "--json"),
    ("save", "a\0"),
]
LEFT = [
    (),
    ("--version",),
    ("save", "-h"),
    ("save", "--help"),
    ("save", ""),
    ("save", "-m"),
    ("save", "-m", ""),
    ("save", "-m", "--json"),
    ("save", "-mtext"),
    ("save", "--message=text"),
    ("save", "one", "two"),
    ("save", "one", "-m", "two"),
    ("save", "-m", "one", "two"),
    ("save", "--name", "good"),
    ("save", "--", "text"),
    ("save", "text", "--pin"),
    ("save", "-C", "sub"),
    ("-C", "save"),
    ("-C", "", "save"),
    ("-C", "~", "save"),
    ("-C", "--json", "save"),
    ("--store", "elsewhere", "save"),
    ("help", "save"),
    ("log", "save"),
    ("--", "save"),
]


@pytest.mark.parametrize("is_changed", [True, False], ids=["changed", "unchanged"])
@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
def test_the_answer_is_the_one_that_click_leads_to(words, is_changed, holdfast, project: Path, monkeypatch):
    (project / "sub").mkdir()
    for folder in (project, project / "sub"):
        (folder / "notes.txt").write_text("0\n")
    for folder in (project, project / "sub"):
        holdfast("-C", str(folder), "save")
    found = []
    for number in range(2):
        if is_changed:
            for folder in (project, project / "sub"):
                (folder / "notes.txt").write_text(f"{number + 1}\n")
        ran = holdfast(*words)
        found.append((ran.code, _without_ids(ran.out), _without_ids(ran.err)))
        monkeypatch.setattr(fast_save, "understood", lambda args: None)
    assert found[0] == found[1]
    monkeypatch.undo()
    assert fast_save.understood(words) is not None


def _without_ids(text: str) -> str:
    """A text without what differs between two checkpoints: ids, numbers, times and hashes."""
    text = re.sub(r"\b[a-z]\d+(-\w{8})?\b", "ID", text)
    text = re.sub(r'"sequence": \d+|"timestamp": "[^"]*"', "", text)
    return re.sub(r"\b[0-9a-f]{40}\b", "HASH", text)


@pytest.mark.parametrize("words", LEFT, ids=lambda words: " ".join(words)[:40])
def test_other_words_are_left_to_click(words):
    assert fast_save.understood(words) is None


def test_a_shell_that_completes_is_answered_by_click(monkeypatch):
    assert fast_save.understood(["save"]) is not None
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "bash_complete")
    assert fast_save.understood(["save"]) is None


def test_what_was_saved_is_there_though_the_process_ends_at_once(holdfast, project: Path):
    (project / "notes.txt").write_text("kept\n")
    assert holdfast.spawn("save", "one").code == 0
    (project / "notes.txt").write_text("lost\n")
    assert holdfast("restore", "latest", "--yes").code == 0
    assert (project / "notes.txt").read_text() == "kept\n"
