"""A workspace and its store, which can be put back to the moment before an operation as often as it takes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from holdfast import Workspace
from holdfast.testing.disk_contract import EntryDescription, describe

LONG_AGO_NS = 1_600_000_000_123_456_789


class Scene:
    """One area on disk: `live/ws`, `live/store`, and copies of both from earlier moments."""

    def __init__(self, area: Path) -> None:
        self.area = area
        self.live = area / "live"
        self.ws = self.live / "ws"
        self.store = self.live / "store"
        self.out = self.live / "out"
        self.home = area / "home"
        self.ws.mkdir(parents=True)
        self.home.mkdir()

    def open(self, *, at: datetime | None = None) -> Workspace:
        """Open the workspace; `at` stops its clock, for an operation that puts the time into files."""
        return Workspace(self.ws, store=self.store, home=self.home, environ={}, clock=lambda: at or datetime.now(UTC))

    def adopt(self, other: Scene) -> None:
        """Become a copy of another scene, which must then go: a store that is there twice belongs to the first."""
        shutil.rmtree(self.live)
        _copy(other.live, self.live)

    def keep(self, moment: str = "before") -> None:
        """Remember how everything is now."""
        shutil.rmtree(self.area / moment, ignore_errors=True)
        _copy(self.live, self.area / moment)

    def reset(self, moment: str = "before") -> None:
        """Put everything back to how it was at a moment that was kept."""
        shutil.rmtree(self.live)
        _copy(self.area / moment, self.live)

    def describe(self) -> dict[str, EntryDescription]:
        return describe(self.ws)

    def describe_exported(self) -> dict[str, EntryDescription]:
        """What an export has written; nothing where there is none, or only an empty folder."""
        return describe(self.out) if self.out.is_dir() and any(self.out.iterdir()) else {}

    def is_interrupted(self) -> bool:
        """Whether a restore was under way, and had not ended."""
        return self.journal.exists() and not json.loads(self.journal.read_bytes())["done"]

    @property
    def journal(self) -> Path:
        return self.store / "holdfast" / "journal.json"

    def refs(self) -> dict[str, str]:
        """The ids of all checkpoints and their commits, as git would read them."""
        tags = self.store / "refs" / "tags"
        found = [path for path in tags.iterdir() if path.suffix != ".new"] if tags.is_dir() else []
        return {path.name: path.read_text().strip() for path in found}

    def fsck(self) -> list[str]:
        """What git finds wrong with the store; objects that nothing names are in order."""
        command = ["git", f"--git-dir={self.store}", "fsck", "--strict", "--no-progress"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=self.area, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        found = [line for line in lines if not line.startswith(("dangling ", "notice: "))]
        return found if found or not done.returncode else [f"git fsck ended with {done.returncode}"]

    def objects(self) -> bytes:
        """Every object of the store, whether anything names it or not, inflated by git."""
        command = ["git", f"--git-dir={self.store}", "cat-file", "--batch-all-objects", "--batch"]
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(command, capture_output=True, env=environ, cwd=self.area, check=True).stdout


def settle_times(folder: Path) -> None:
    """Give everything below a folder an old time of its own, so that a restore has times to bring back."""
    for number, path in enumerate(sorted(folder.rglob("*"), reverse=True)):
        when = LONG_AGO_NS + number * 1_000_000_007
        os.utime(path, ns=(when, when), follow_symlinks=False)
    os.utime(folder, ns=(LONG_AGO_NS, LONG_AGO_NS))


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
