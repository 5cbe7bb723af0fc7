"""A project of its own for each test, in a real git repository, with a home and a store beside it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.project import SyncCheckpointManager
from holdfast.testing.disk_contract import describe

FEATURES = [
    {"id": "auth-001", "status": "completed"},
    {"id": "auth-002", "status": "completed"},
    {"id": "auth-003", "status": "in_progress"},
    {"id": "auth-004", "status": "pending"},
]


@dataclass(frozen=True)
class Place:
    """A project that nothing outside the test has a say in."""

    area: Path

    @property
    def root(self) -> Path:
        return self.area / "project"

    @property
    def store(self) -> Path:
        return self.area / "store"

    @property
    def home(self) -> Path:
        return self.area / "home"

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "HOLDFAST_STORE_ROOT": str(self.area / "stores")}

    @property
    def options(self) -> dict[str, Any]:
        return {"store": self.store, "home": self.home, "environ": self.environ}

    def open(self, **options: Any) -> SyncCheckpointManager:
        """A manager, as a new process would make it."""
        return SyncCheckpointManager(self.root, **(self.options | options))

    def write(self, path: str, text: str = "content\n") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run real git; what it printed."""
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        environ = self.environ | {"GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            [*command, *arguments], cwd=cwd or self.root, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """Commit everything; the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git_bytes(self, git: Path | None = None) -> dict[str, bytes]:
        """Every file of the user's repository."""
        folder = git or self.root / ".git"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def described(self) -> dict[str, Any]:
        """Everything of the folder but the user's git."""
        return {path: said for path, said in describe(self.root).items() if path.split("/")[0] not in (".git", "", ".")}


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    """An empty folder without git."""
    place = Place(Path(os.path.realpath(tmp_path)))
    place.root.mkdir()
    place.home.mkdir()
    return place


@pytest.fixture
def place(bare: Place) -> Place:
    """A small project in git, with a feature list and a progress file, and something that is not committed."""
    bare.git("init", "-q")
    bare.write("src/app.ts", "first\n")
    bare.write("feature_list.json", json.dumps(FEATURES))
    bare.write("claude-progress.txt", "session 5\n")
    bare.commit("first")
    bare.write("src/app.ts", "not committed\n")
    return bare


@pytest.fixture
def manager(place: Place) -> SyncCheckpointManager:
    return place.open()
