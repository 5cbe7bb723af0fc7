"""The refs of the user's git, as they are read."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from holdfast.scan.git_refs import read_git_refs


@pytest.fixture
def git(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path / ".git"


def test_recent_refs_are_read_again_next_time(git: Path) -> None:
    """P2: git may write again within one tick of the clock that stamps files, which no status would show."""
    newest = max(path.lstat().st_ctime_ns for path in (git, *git.rglob("*")))
    assert read_git_refs(git, clock=lambda: newest)[1] is None


def test_older_refs_are_watched(git: Path) -> None:
    found, watched = read_git_refs(git, clock=lambda: time.time_ns() + 3600 * 10**9)
    assert watched is not None and "refs/heads" in watched.folders
    assert found.head.startswith("ref: refs/heads/")
