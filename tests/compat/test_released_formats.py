"""Stores of every released format are opened, and every checkpoint in them comes back exactly.

For each format that is released a store is made once, by `make_store.py`, committed beside this file as
`format-N.tar.xz` and never made again: it stands for the stores that people have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from holdfast import Workspace
from holdfast.workspace.store_paths import FORMAT

from .make_store import picture, told

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("format-*.tar.xz"))


class Released:
    """A copy of a store, and a folder to restore into."""

    def __init__(self, archive: Path, area: Path) -> None:
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(archive) as tar:
            tar.extractall(area, **options)
        (area / "store").chmod(0o700)  # the archive has other modes; a store that is open to others is refused
        self.root = area / "project"
        self.store = area / "store"
        self._home = area / "home"
        self.root.mkdir()
        self._home.mkdir()
        self.expected: dict[str, Any] = json.loads((area / "expected.json").read_bytes())

    def open(self) -> Workspace:
        return Workspace(self.root, store=self.store, home=self._home, environ={})


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Released:
    area = Path(os.path.realpath(tmp_path))
    try:
        os.setxattr(area, "user.probe", b"")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    return Released(request.param, area)


def test_there_is_a_store_of_every_format_there_has_been() -> None:
    assert [path.name for path in ARCHIVES] == [f"format-{number}.tar.xz" for number in range(1, FORMAT + 1)]


def test_every_checkpoint_comes_back_exactly(released: Released) -> None:
    ws = released.open()
    for checkpoint_id in [*released.expected, *reversed(released.expected)]:
        result = ws.restore(checkpoint_id)
        assert result.ok, result.failed
        assert picture(released.root) == released.expected[checkpoint_id]["files"]
        assert result.state == released.expected[checkpoint_id]["record"]["state"]


def test_every_checkpoint_comes_back_without_what_was_remembered(released: Released) -> None:
    for name in ("catalog.db", "scan.cache"):
        (released.store / "holdfast" / name).unlink()
    ws = released.open()
    for checkpoint_id, expected in released.expected.items():
        assert ws.restore(checkpoint_id).ok
        assert picture(released.root) == expected["files"]


def test_every_checkpoint_says_what_it_said(released: Released) -> None:
    ws = released.open()
    assert {each.id for each in ws.list(limit=None, safety=True)} == released.expected.keys()
    for checkpoint_id, expected in released.expected.items():
        assert told(ws.get(checkpoint_id)) == expected["record"]
    assert ws.get("before refactor").pinned


def test_it_is_sound_for_us_and_for_git(released: Released) -> None:
    assert released.open().verify().problems == []
    words = ["git", "--git-dir", released.store, "fsck", "--strict", "--no-dangling"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_work_goes_on_in_it(released: Released) -> None:
    ws = released.open()
    ws.redo()
    (released.root / "new").write_bytes(b"new\n")
    saved = ws.save("by the present version")
    assert saved.sequence > max(row["record"]["sequence"] for row in released.expected.values())
    ws.merge()
    shutil.rmtree(released.root)
    released.root.mkdir()
    assert released.open().restore(saved.id).ok
    assert (released.root / "new").read_bytes() == b"new\n"
    assert released.open().verify().ok
