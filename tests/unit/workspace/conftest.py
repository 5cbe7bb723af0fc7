"""A folder of its own for each test, with a home and a store beside it, and real git to judge what comes out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace


@dataclass(frozen=True)
class Project:
    """A workspace that nothing outside the test has a say in."""

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

    def open(self, **options: Any) -> Workspace:
        """Open it, as a new process would."""
        return Workspace(self.root, **({"store": self.store, "home": self.home, "environ": {}} | options))

    def write(self, path: str, data: bytes = b"content\n") -> Path:
        """Write a file, with the folders above it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(Path(os.path.realpath(tmp_path)))
    project.root.mkdir()
    project.home.mkdir()
    return project


@pytest.fixture
def ws(project: Project) -> Workspace:
    return project.open()


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., bytes]:
    """Run git and return what it answers; its complaint is the failure of the test."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}

    def run(*words: str | Path, given: bytes = b"") -> bytes:
        ran = subprocess.run(["git", *words], input=given, env=environment, capture_output=True, check=False)
        if ran.returncode:
            pytest.fail(f"git {words[:4]}: {(ran.stdout + ran.stderr).decode(errors='replace')}", pytrace=False)
        return ran.stdout

    return run
