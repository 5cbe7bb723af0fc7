"""`holdfast notes` on the command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.cli.exit_codes import Exit

from .conftest import Program


def _git(folder: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(project: Path, holdfast: Program) -> Path:
    _git(project, "init", "-q", "-b", "main")
    _git(project, "config", "user.name", "n")
    _git(project, "config", "user.email", "e@x")
    holdfast("save", "first")
    (project / "a\x1b[31m.py").write_text("one line of the agent\nanother\n")
    holdfast("save", "agent", "--actor", "claude-code", "--session", "s")
    (project / "b.py").write_text("mine\n")
    holdfast("save", "mine")
    _git(project, "add", "-A")
    _git(project, "commit", "-q", "-m", "work")
    return project


def test_written_shown_and_checked(repository: Path, holdfast: Program) -> None:
    missing = holdfast("notes", "--check")
    assert (missing.code, missing.out.split()[1]) == (Exit.INCOMPLETE, "missing")
    done = holdfast("notes")
    assert done.code == Exit.DONE
    assert "written" in done.out.splitlines()[0]
    assert "  a\\x1b[31m.py:1-2  claude-code" in done.out.splitlines()
    assert "  b.py:1  you" in done.out.splitlines()
    assert holdfast("notes").out.splitlines()[0].endswith("unchanged")
    checked = holdfast("notes", "--check")
    assert (checked.code, checked.out.split()[1]) == (Exit.DONE, "true")


def test_json(repository: Path, holdfast: Program) -> None:
    head = _git(repository, "rev-parse", "HEAD")
    shown = holdfast("notes", "--dry-run", "--json").json
    assert (shown["ref"], shown["items"][0]["commit"]) == ("refs/notes/holdfast", head)
    assert _git(repository, "for-each-ref", "refs/notes") == ""
    written = holdfast("notes", "--json").json["items"]
    assert written[0]["changed"]
    assert written[0]["trace"]["files"] == shown["items"][0]["trace"]["files"]
    assert holdfast("notes", "--check", "--json").json["items"] == [
        {"commit": head, "status": "true", "paths": [], "detail": ""}
    ]


def test_errors(repository: Path, holdfast: Program) -> None:
    assert holdfast("notes", "nope").code == Exit.NOT_FOUND
    assert holdfast("notes", "--check", "--dry-run").code == Exit.USAGE
    assert holdfast("notes", "HEAD...main").code == Exit.REFUSED
