"""What docs/security.md says: the first commands of a new user connect to nothing but sockets of that user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_AUDIT = """\
import sys

def audit(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        told = True
    else:
        # A Unix socket has a path, everything else a pair
        told = event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(arguments[1], tuple)
    if told:
        with open({log!r}, "a") as file:
            print(event, arguments[1:], file=file)

sys.addaudithook(audit)
"""
_FIRST = (
    "install claude-code", "doctor", "save first", "status", "log", "verify", "restore latest", "uninstall claude-code",
    "demo",
)  # fmt: skip


@pytest.fixture
def connections(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which each Python process that is started notes what it connects to."""
    log, hooks = tmp_path / "connections", tmp_path / "audit"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(_AUDIT.format(log=str(log)))
    monkeypatch.setenv("PYTHONPATH", str(hooks))
    return log


def test_the_first_commands_connect_to_nothing(connections: Path, folder: Path) -> None:
    (folder / "a.txt").write_text("one")
    for words in _FIRST:
        done = subprocess.run([sys.executable, "-m", "holdfast.cli", *words.split()], cwd=folder, capture_output=True)
        assert done.returncode in (0, 8), (words, done.stderr)
    assert not connections.exists(), connections.read_text()


def test_a_connection_would_be_noticed(connections: Path) -> None:
    code = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    assert "socket.connect" in connections.read_text()
