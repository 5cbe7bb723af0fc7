"""A project with a commit, a feature list and a progress file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_STORE_ROOT", str(tmp_path / "stores"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    root.mkdir()
    (root / "app.ts").write_text("committed\n")
    features = [{"id": "auth-001", "passes": True}, {"id": "auth-002", "passes": False}]
    (root / "feature_list.json").write_text(json.dumps(features))
    (root / "claude-progress.txt").write_text("session 5\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root
