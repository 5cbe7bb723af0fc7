"""A project with a home and a state folder of its own, for a server that is a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Workspace


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small folder; where nobody says otherwise, stores are made below `tmp_path`."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith(("GIT_", "HOLDFAST_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def ws(project: Path) -> Workspace:
    """The same workspace that the server has."""
    return Workspace(project)
