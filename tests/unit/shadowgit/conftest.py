"""Real git, free of anybody's configuration, and a store for it to judge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.shadowgit import ObjectStore


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., bytes]:
    """Run git and return what it answers; its complaint is the failure of the test."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.org"}

    def run(*words: str | Path, given: bytes = b"", must_work: bool = True) -> bytes:
        ran = subprocess.run(["git", *words], input=given, env=environment, capture_output=True, check=False)
        if must_work and ran.returncode:
            pytest.fail(f"git {words[:4]}: {(ran.stdout + ran.stderr).decode(errors='replace')}", pytrace=False)
        return ran.stdout if must_work else ran.stdout + ran.stderr

    return run


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """An empty store."""
    store = ObjectStore(tmp_path / "store")
    store.create()
    return store
