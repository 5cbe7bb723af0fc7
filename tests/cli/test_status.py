"""`holdfast status`, and `holdfast` alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.cli import status_output
from unprivileged import unprivileged

from .conftest import Program


def test_nothing_changed(holdfast: Program, project: Path) -> None:
    holdfast.saved("before the refactoring")
    out = holdfast("status").out
    assert f"workspace  {project}" in out and "last save  a1  " in out and "before the refactoring" in out
    assert "folder     unchanged since a1" in out and "for 1 checkpoint" in out and "hooks      none installed" in out
    assert " changed since" not in out and "attention" not in out
    assert len(out.splitlines()) <= 24


def test_what_changed_and_whose_it_is(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    (project / "a.txt").write_text("two\n")
    (project / "new.txt").write_text("new\n")
    (project / "src" / "b.py").unlink()
    ran = holdfast("status")
    assert "3 files changed since a1, yours:\n  M a.txt\n  A new.txt\n  D src/b.py\n" in ran.out
    assert "holdfast save" in ran.err
    found = holdfast("status", "--json").json
    assert {each["path"]: each["status"] for each in found["changes"]} == {
        "a.txt": "M",
        "new.txt": "A",
        "src/b.py": "D",
    }
    assert found["changed_by"] == "user" and found["latest"]["short_id"] == found["head"]["short_id"] == "a1"


def test_before_the_first_save(holdfast: Program, project: Path) -> None:
    holdfast("init")
    ran = holdfast("status")
    assert " not saved yet, yours:\n  A a.txt\n" in ran.out
    assert "Save it with: holdfast save" in ran.err and "holdfast diff" not in ran.err
    ran = holdfast("restore")
    assert ran.code == 3 and "has no checkpoints yet" in ran.err and "holdfast save" in ran.err


def test_it_changes_nothing(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    (project / "a.txt").write_text("two\n")
    store = Path(holdfast("status", "--json").json["store"])

    def stored() -> dict[Path, bytes]:  # the catalog is a cache, and notes when it was last checked
        files = (path for path in store.rglob("*") if path.is_file() and "catalog" not in path.name)
        return {path: path.read_bytes() for path in files}

    before = stored()
    holdfast("status")
    assert stored() == before


def test_alone_in_a_workspace(holdfast: Program, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holdfast.saved()
    for folder in (project, project / "src"):
        monkeypatch.chdir(folder)
        alone, named = (re.sub(r"\d+ s ago|disk used .*", "", ran.out) for ran in (holdfast(), holdfast("status")))
        assert alone == named and f"workspace  {project}" in alone


@pytest.mark.parametrize("folder", [".", "/", "/tmp"])
def test_alone_elsewhere_is_the_help(holdfast: Program, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    ran = holdfast()
    assert ran.code == 2 and "Usage: holdfast" in ran.err


def test_where_there_is_no_workspace(holdfast: Program) -> None:
    ran = holdfast("status")
    assert ran.code == 3 and "holdfast save" in ran.err


def test_click_answers_alike(holdfast: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    holdfast.saved()
    here = holdfast("status").code, holdfast("status", "--json").json.keys()
    monkeypatch.setattr(status_output, "understood", lambda args: False)
    assert (holdfast("status").code, holdfast("status", "--json").json.keys()) == here


def test_after_a_restore(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    (project / "a.txt").write_text("two\n")
    holdfast.saved()
    holdfast("restore", "a1", "--yes")
    out = holdfast("status").out
    assert "last save  a2" in out and "folder     restored to a1, unchanged since" in out
    (project / "a.txt").write_text("three\n")
    out = holdfast("status").out
    assert "restored to a1, and changed since" in out and "1 file changed since a1" in out


def test_after_changes_were_taken_back(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    (project / "a.txt").write_text("agent\n")
    holdfast.saved("--actor", "claude-code")
    holdfast("undo", "--agent")
    assert "folder     an agent's changes since a1 were taken back, unchanged since" in holdfast("status").out
    holdfast("undo")
    ws = Workspace(project)
    ws.revert(ws.changes("a1"))
    assert "folder     some changes since a1 were taken back, unchanged since" in holdfast("status").out


def test_what_was_not_taken_back_is_unsaved(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    (project / "a.txt").write_text("mine\n")
    (project / "b.txt").write_text("mine\n")
    ws = Workspace(project)
    changes = ws.changes("a1")
    ws.revert(changes, [hunk for each in changes.files if each.path == "b.txt" for hunk in each.hunks])
    out = holdfast("status").out
    assert "1 file changed since a1, yours:" in out and "a.txt" in out and "b.txt" not in out
    ws.revert(ws.changes("a1"))
    assert "folder     unchanged since a1" in holdfast("status").out


def test_a_large_new_file_needs_attention(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    with open(project / "model.bin", "wb") as file:
        file.truncate(110 << 20)
    assert (
        "Needs attention:\n  1 new file is large, 110 MiB in all, and would be saved; "
        "to leave it out, add this line to .holdfastignore: /model.bin\n    model.bin\n"
    ) in holdfast("status").out
    (found,) = holdfast("status", "--json").json["attention"]
    assert (found["code"], found["paths"]) == ("large-file", ["model.bin"])


def test_many_changes_fit_on_a_screen(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    for number in range(40):
        (project / f"f{number:02}").write_text("x\n")
    out = holdfast("status").out
    assert "  … and 30 more" in out and len(out.splitlines()) <= 24


def test_an_incomplete_save_needs_attention(holdfast: Program, project: Path) -> None:
    os.chmod(project / "a.txt", 0)
    unprivileged(lambda: holdfast("save"))
    found = unprivileged(lambda: holdfast("status", "--json")).json["attention"]
    codes = [each["code"] for each in found]
    assert codes == ["incomplete", "unreadable"]


def test_an_interrupted_restore_needs_attention(holdfast: Program, project: Path) -> None:
    holdfast.saved()
    store = Path(holdfast("status", "--json").json["store"])
    (store / "holdfast" / "journal.json").write_text("{")
    codes = [each["code"] for each in holdfast("status", "--json").json["attention"]]
    assert codes == ["interrupted-restore"] or codes == ["running-restore"]


class TestHooks:
    @pytest.fixture(autouse=True)
    def _installed(self, holdfast: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOLDFAST_HELPER", "0")
        holdfast.saved()
        assert holdfast("install", "claude-code").code == 0

    def _event(self, project: Path, name: str) -> None:
        fields = {
            "hook_event_name": name,
            "session_id": "s",
            "cwd": str(project),
            "tool_name": "Edit",
            "tool_use_id": "t",
        }
        command = [sys.executable, "-m", "holdfast.cli", "hook", "claude-code"]
        subprocess.run(command, input=json.dumps(fields).encode(), check=True, timeout=60)

    def test_that_never_fired(self, holdfast: Program) -> None:
        assert "hooks      claude-code: installed, not run here yet" in holdfast("status").out

    def test_that_fired(self, holdfast: Program, project: Path) -> None:
        self._event(project, "PreToolUse")
        assert "claude-code: last event " in holdfast("status").out
        (project / "a.txt").write_text("the agent's\n")
        ran = holdfast("status")
        assert "1 file changed since a1, by claude-code, which is working" in ran.out
        assert holdfast("status", "--json").json["changed_by"] == "claude-code"

    def test_that_are_broken(self, holdfast: Program, tmp_path: Path) -> None:
        settings = tmp_path / "home" / ".claude" / "settings.json"
        found = json.loads(settings.read_text())
        settings.write_text(json.dumps(found | {"disableAllHooks": True}))
        out = holdfast("status").out
        assert "claude-code: not working" in out and "claude-code: hooks are disabled" in out
