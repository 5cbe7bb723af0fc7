"""A folder that agents work in, with a state folder of its own; and no way to any network."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from holdfast import Workspace


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: None) -> Path:
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    for name in [
        name for name in os.environ if name.startswith(("GIT_", "HOLDFAST_", "XDG_", "OPENAI_", "ANTHROPIC_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    (folder / "a.txt").write_text("0\n")
    return folder


@pytest.fixture
def ws(project: Path) -> Workspace:
    return Workspace(project)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whatever connects to anything."""

    def refuse(self: socket.socket, address: object) -> None:
        raise AssertionError(f"a test asked the network for {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
