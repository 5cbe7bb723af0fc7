"""`undo` and `redo`: what lies between, and what else one may have meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str, str], Path]


@pytest.fixture
def worked_since(holdfast, write: Write):
    """A restore, and two checkpoints saved after it."""
    holdfast.saved()
    write("a.txt", "two\n")
    assert holdfast("restore", "latest", "--yes").code == 0
    write("new.txt", "new\n")
    holdfast.saved()
    write("newer.txt", "newer\n")
    holdfast.saved()
    return holdfast


def test_undo_with_saves_between_changes_nothing_without_an_answer(worked_since):
    ran = worked_since("undo")
    assert ran.code == 6
    assert "needs confirmation: the last restore to a1 was " in ran.err
    assert "s ago; 2 checkpoints were saved since" in ran.err
    assert "Undoing it would: replace 1 path, remove 2 paths" in ran.err
    for choice in ("undo --yes", "undo --dry-run", "redo", "restore latest", "undo --agent"):
        assert f"holdfast {choice}" in ran.err
    assert (worked_since.project / "newer.txt").exists() and (worked_since.project / "a.txt").read_text() == "one\n"
    assert worked_since("undo", "--json").json["error"]["kind"] == "refused"


def test_undo_with_yes_does_it_and_redo_brings_the_newer_work_back(worked_since):
    assert worked_since("undo", "--yes").code == 0
    assert not (worked_since.project / "newer.txt").exists()
    assert worked_since("redo").code == 0  # nothing was saved since the undo
    assert (worked_since.project / "newer.txt").exists()


def test_redo_with_saves_between_asks_too(worked_since, write: Write):
    assert worked_since("undo", "--yes").code == 0
    write("latest.txt", "x\n")
    worked_since.saved()
    ran = worked_since("redo")
    assert ran.code == 6 and "Redoing it would: " in ran.err and (worked_since.project / "latest.txt").exists()
    assert worked_since("redo", "--yes").code == 0 and not (worked_since.project / "latest.txt").exists()


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_dry_run_lists_the_paths(worked_since, verb):
    if verb == "redo":
        worked_since("undo", "--yes")
    ran = worked_since(verb, "--dry-run")
    assert ran.code == 0 and "newer.txt" in ran.out
    assert worked_since(verb, "--dry-run", "--json").json["plan"]["checkpoint"]
    assert (worked_since.project / "newer.txt").exists() is (verb == "undo")


def test_undo_of_a_restore_just_made_does_not_ask(holdfast, write: Write):
    holdfast.saved()
    write("a.txt", "two\n")
    holdfast("restore", "latest", "--yes")
    write("a.txt", "three\n")  # unsaved: `undo` saves it
    assert holdfast("undo").code == 0 and (holdfast.project / "a.txt").read_text() == "two\n"


def test_undo_without_a_restore_names_what_may_be_meant(holdfast):
    holdfast.saved()
    ran = holdfast("undo")
    assert ran.code == 3
    assert "holdfast restore latest" in ran.err and "holdfast undo --agent" in ran.err


class TestSavesAfterAnUndo:
    """The parent of such a save is a safety checkpoint, which no list shows: the save before it is meant."""

    @pytest.fixture
    def undone(self, holdfast, write: Write):
        holdfast.saved()
        write("a.txt", "two\n")
        assert holdfast("restore", "a1").code == 0
        assert holdfast("undo").code == 0
        return holdfast

    def test_status_names_no_hidden_checkpoint(self, undone, write: Write):
        ran = undone("status")  # what was not saved before the restore still is not
        assert "1 file changed since a1, yours:\n  M a.txt" in ran.out and "a2" not in ran.out
        write("b.txt", "new\n")
        ran = undone("status")
        assert "2 files changed since a1, yours:" in ran.out and "holdfast diff;" in ran.err

    def test_status_without_the_save_before(self, undone, write: Write):
        write("b.txt", "new\n")
        undone.saved()
        assert undone("restore", "a2").code == 0
        write("c.txt", "new\n")
        assert (undone("restore", "a2").code, undone("undo").code) == (0, 0)
        assert undone("rm", "a1", "--yes").code == 0
        ran = undone("status")
        assert ran.code == 0 and "folder     " in ran.out

    def test_status_names_the_save_that_is_there_again(self, holdfast, write: Write):
        holdfast.saved()
        write("a.txt", "two\n")
        holdfast.saved()
        assert (holdfast("restore", "a1").code, holdfast("undo").code) == (0, 0)
        assert "folder     unchanged since a2\n" in holdfast("status").out

    def test_what_changed_is_compared_with_the_last_save(self, undone):
        assert undone("save", "again").out == "a4  1 file changed\n"
        assert "1 file +1 -1" in undone("log").out.splitlines()[0]
        shown = undone("show", "a4")
        assert "changed     1 file\n            M a.txt  +1 -1\n" in shown.out and "parent      a1\n" in shown.out
        assert undone("show", "a4", "--json").json["checkpoint"]["files_changed"] == ["a.txt"]
        assert undone("log", "a.txt").out.splitlines()[0].startswith("a4 ")

    def test_undo_of_an_agent_is_shown_by_the_next_save(self, holdfast, write: Write):
        holdfast.saved()
        write("a.txt", "by the agent\n")
        holdfast.saved("--actor", "claude-code")
        assert holdfast("undo", "--agent").code == 0
        write("b.txt", "mine\n")
        saved = holdfast("save", "--json").json["checkpoint"]
        assert sorted(saved["files_changed"]) == ["a.txt", "b.txt"]
