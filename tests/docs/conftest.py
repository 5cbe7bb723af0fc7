"""A home, a state folder and a folder to work in, for the examples of a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder to work in; whatever the examples do stays below it."""
    work = tmp_path / "work"
    for made in (work, tmp_path / "home"):
        made.mkdir()
    for name in [name for name in os.environ if name.startswith(("GIT_", "HOLDFAST_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_HELPER", "0")  # an example leaves nothing running
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # the order of `ls`
    monkeypatch.chdir(work)
    return work
