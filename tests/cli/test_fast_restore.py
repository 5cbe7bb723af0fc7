"""`holdfast restore REF` answers without click as it does with it. That it is not loaded: `test_program.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from holdfast.cli import fast_restore
from holdfast.workspace.stored.repository import BISECT_NOTE

TAKEN = [
    ("restore", "latest"),
    ("restore", "latest", "--yes"),
    ("restore", "-y", "latest", "--json"),
    ("--json", "restore", "latest"),
    ("restore", "first"),
    ("restore", "log"),
    ("restore", "notes.txt"),
    ("restore", "latest~9"),
    ("restore", "a\0"),
    ("-C", ".", "restore", "latest"),
    ("-C", "sub", "restore", "latest"),
    ("-C", "missing", "restore", "latest"),
    ("-C", "a\0", "restore", "latest"),
    ("-C", "s3://", "restore", "latest", "--json"),
]
LEFT = [
    (),
    ("restore",),
    ("restore", "--help"),
    ("restore", "--yes"),
    ("restore", ""),
    ("restore", "latest", "notes.txt"),
    ("restore", "latest", "--dry-run"),
    ("restore", "latest", "--keep-new"),
    ("restore", "--", "notes.txt"),
    ("restore", "latest", "-C", "sub"),
    ("-C", "restore"),
    ("-C", "", "restore", "latest"),
    ("-C", "--json", "restore", "latest"),
    ("-C", "~/project", "restore", "latest"),
    ("restore", "sqlite:///states.db"),
    ("--yes", "restore", "latest"),
    ("--store", "elsewhere", "restore", "latest"),
    ("help", "restore"),
    ("log", "restore"),
    ("--", "restore", "latest"),
]


@pytest.mark.parametrize("is_changed", [True, False], ids=["changed", "unchanged"])
@pytest.mark.parametrize("words", TAKEN, ids=" ".join)
def test_answer_is_the_one_that_click_leads_to(words, is_changed, holdfast, project: Path, monkeypatch):
    (project / "sub").mkdir()
    for folder in (project, project / "sub"):
        (folder / "notes.txt").write_text("0\n")
    for folder in (project, project / "sub"):
        holdfast("-C", str(folder), "save", "--name", "first")
        (folder / "notes.txt").write_text("another\n")
        holdfast("-C", str(folder), "restore", "first")  # a first one says more than others
    found = []
    for number in range(2):
        if is_changed:
            for folder in (project, project / "sub"):
                (folder / "notes.txt").write_text(f"{number + 1}\n")
        ran = holdfast(*words)
        found.append((ran.code, _without_ids(ran.out), _without_ids(ran.err)))
        monkeypatch.setattr(fast_restore, "understood", lambda args: None)
    assert found[0] == found[1]
    monkeypatch.undo()
    assert fast_restore.understood(words) is not None


def test_what_opening_says_is_said_once_where_ref_is_no_checkpoint(holdfast, project: Path, monkeypatch):
    (project / "notes.txt").write_text("0\n")
    holdfast("save", "--name", "old")
    (project / "notes.txt").write_text("1\n")
    before = holdfast("--json", "save").json["checkpoint"]["id"]
    holdfast("restore", "old")
    (own,) = Path(os.environ["XDG_STATE_HOME"]).glob("holdfast/workspaces/*/holdfast")
    (own / BISECT_NOTE).write_text(before)
    for words in (("restore", "missing"), ("restore", "notes.txt")):
        ran = holdfast(*words)
        with monkeypatch.context() as patched:
            patched.setattr(fast_restore, "understood", lambda args: None)
            assert holdfast(*words) == ran
        assert ran.err.count("A bisect --in-place was killed") == 1


def _without_ids(text: str) -> str:
    """A text without what differs between two checkpoints."""
    text = re.sub(r"\b[a-z]\d+(-\w{8})?\b", "ID", text)
    return re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)


@pytest.mark.parametrize("words", LEFT, ids=lambda words: " ".join(words)[:40])
def test_other_words_are_left_to_click(words):
    assert fast_restore.understood(words) is None


def test_completion_is_left_to_click(monkeypatch):
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "bash_complete")
    assert fast_restore.understood(("restore", "latest")) is None


def test_restores(holdfast, project: Path):
    (project / "notes.txt").write_text("0\n")
    holdfast("save")
    (project / "notes.txt").write_text("another\n")
    assert fast_restore.understood(["restore", "latest"]) is not None
    holdfast("restore", "latest")
    assert (project / "notes.txt").read_text() == "0\n"
