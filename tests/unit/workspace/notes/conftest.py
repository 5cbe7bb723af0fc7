"""A folder in a real git repository, edited by a person and by agents."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace import Workspace

EMAIL = "me@example.org"


class Scene:
    """A workspace in a repository."""

    def __init__(self, area: Path, folder: str = "") -> None:
        self.repository = area / "project"
        self.root = self.repository / folder
        self.root.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Me")
        self.git("config", "user.email", EMAIL)
        self.git("config", "commit.gpgsign", "false")
        self.workspace = Workspace(self.root, store=area / "store", home=area, environ={})

    def git(self, *words: str, given: bytes | None = None, **environ: str) -> str:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["git", *words], cwd=self.repository, env={**plain, **settings, **environ}, input=given, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def mine(self, path: str, text: str | bytes) -> None:
        """The person writes a file, and a checkpoint is saved."""
        self.write(path, text)
        self.workspace.save(f"mine: {path}")

    def agents(self, path: str, text: str | bytes, turn: int = 1, actor: str = "claude-code") -> None:
        """An agent writes a file, and a checkpoint is saved."""
        self.write(path, text)
        metadata = {"turn": turn, "model": "claude-opus-4-5"}
        self.workspace.save(f"agent: {path}", actor=actor, session="s1", metadata=metadata)

    def commit(self, message: str = "work", *words: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message, *words)
        return self.git("rev-parse", "HEAD")

    def authors(self, commit: str = "HEAD", path: str | None = None) -> dict[str, str]:
        """Who wrote the lines of a commit, by line: a letter each, `a` agent, `p` person, `?` unknown."""
        (trace,) = self.workspace.traces([commit])
        return authors_in(trace)

    def note(self, commit: str = "HEAD") -> Any:
        return json.loads(self.git("notes", "--ref=holdfast", "show", commit))


def authors_in(trace: Any) -> dict[str, str]:
    letters = {"ai": "a", "human": "p", "unknown": "?"}
    found = {}
    for file in trace["files"]:
        lines = {}
        for each in file["conversations"]:
            for part in each["ranges"]:
                for line in range(part["start_line"], part["end_line"] + 1):
                    assert line not in lines
                    lines[line] = letters[each["contributor"]["type"]]
            if not each["ranges"]:
                lines[0] = letters[each["contributor"]["type"]]
        found[file["path"]] = "".join(lines[line] for line in sorted(lines))
    return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.mine("old.txt", "there before\n")
    made.commit("first")
    return made
