"""Build outputs that are newer than restored sources are named; `touch` has tools build again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import Workspace
from holdfast.durable import use_disk
from holdfast.project import SyncCheckpointManager
from holdfast.testing.faulty_disks import CountingDisk, KillingDisk, die_in_child

MAKEFILE = "program: main.txt\n\tcp main.txt program\n\tchmod +x program\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose program was built before the checkpoint, and again by an agent since."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "Makefile").write_text(MAKEFILE)
    (root / ".gitignore").write_text("program\nbuild/\nbig.o\n")
    (root / "main.txt").write_text("mine\n")
    (root / "main.txt").chmod(0o640)
    set_age(root, 1000)
    return root


@pytest.fixture
def ws(root: Path) -> Workspace:
    ws = Workspace(root, store=root.parent / "store", home=root.parent, environ={})
    ws.save("before")
    (root / "main.txt").write_text("the agent's\n")
    set_age(root / "main.txt", 100)
    return ws


def set_age(path: Path, seconds: int) -> None:
    for each in (path, *path.rglob("*")):
        os.utime(each, (time.time() - seconds,) * 2)


def make(root: Path) -> None:
    subprocess.run(["make", "-s"], cwd=root, check=True)


def test_an_output_made_since_is_named(root: Path, ws: Workspace) -> None:
    make(root)
    done = ws.restore("latest")
    assert done.stale_outputs == ["program"]
    assert done.ok
    make(root)
    assert (root / "program").read_text() == "the agent's\n"  # what the report is about


def test_outputs_that_are_not_held_are_named_by_their_folder(root: Path, ws: Workspace) -> None:
    (root / "build" / "deep").mkdir(parents=True)
    (root / "build" / "deep" / "main.o").write_text("object")
    (root / "big.o").write_bytes(bytes(2 << 20))
    assert ws.restore("latest").stale_outputs == ["big.o", "build/"]


def test_older_outputs_are_not_named(root: Path, ws: Workspace) -> None:
    (root / "build").mkdir()
    (root / "build" / "old.o").write_text("object")
    (root / "program").write_text("old")
    set_age(root / "build", 500)
    set_age(root / "program", 500)
    assert ws.restore("latest").stale_outputs == []


def test_the_list_is_bounded(root: Path, ws: Workspace) -> None:
    (root / ".gitignore").write_text("*.o\n")
    ws.save("rules")
    (root / "main.txt").write_text("again\n")
    set_age(root / "main.txt", 100)
    for number in range(100):
        (root / f"{number}.o").write_text("object")
    assert len(ws.restore("latest").stale_outputs) == 20


def test_touch_has_make_build_again(root: Path, ws: Workspace) -> None:
    make(root)
    began_ns = time.time_ns()
    done = ws.restore("latest", touch=True)
    assert done.ok and done.stale_outputs == []
    status = (root / "main.txt").stat()
    assert status.st_mtime_ns >= began_ns
    assert (status.st_mode & 0o777, (root / "main.txt").read_text()) == (0o640, "mine\n")
    assert (root / "Makefile").stat().st_mtime_ns < began_ns  # was not changed, and keeps its time
    make(root)
    assert (root / "program").read_text() == "mine\n"
    before = (root / "main.txt").stat().st_mtime_ns
    ws.undo()
    assert (root / "main.txt").read_text() == "the agent's\n"
    assert (root / "main.txt").stat().st_mtime_ns < began_ns
    ws.redo()
    assert (root / "main.txt").stat().st_mtime_ns == before


def test_touch_of_an_undo_and_a_redo(root: Path, ws: Workspace) -> None:
    ws.restore("latest")
    for turn, text in ((ws.undo, "the agent's\n"), (ws.redo, "mine\n")):
        began_ns = time.time_ns()
        turn(touch=True)
        assert (root / "main.txt").read_text() == text
        assert (root / "main.txt").stat().st_mtime_ns >= began_ns


def test_touch_holds_a_plan_to_what_was_shown(root: Path, ws: Workspace) -> None:
    assert ws.restore("latest", plan=ws.preview("latest"), touch=True).ok


def test_touch_leaves_the_time_of_what_only_has_another_time(root: Path, ws: Workspace) -> None:
    set_age(root / "Makefile", 50)
    before = (root / "Makefile").stat().st_mtime_ns
    ws.restore("latest", touch=True)
    assert (root / "Makefile").stat().st_mtime_ns == before


def test_touch_outlives_a_kill(root: Path, ws: Workspace) -> None:
    (root / "other.txt").write_text("made since")
    counting = CountingDisk()
    with use_disk(counting):
        ws.restore("latest", touch=True)
    ws.undo()
    began_ns = time.time_ns()
    swaps = [call.number for call in counting.calls if call.name in ("exchange", "place")]
    here = Workspace(root, store=ws.store, home=root.parent, environ={})
    assert die_in_child(KillingDisk(at=swaps[0], when="before"), lambda: here.restore("latest", touch=True))
    again = Workspace(root, store=ws.store, home=root.parent, environ={})
    assert again.recovered is not None and again.recovered.outcome == "finished"
    assert (root / "main.txt").read_text() == "mine\n"
    assert (root / "main.txt").stat().st_mtime_ns >= began_ns


def test_touch_of_a_rollback(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "main.txt").write_text("mine\n")
    set_age(root, 1000)
    manager = SyncCheckpointManager(root, store=tmp_path / "store", home=tmp_path, environ={})
    saved = manager.create_checkpoint("before")
    (root / "main.txt").write_text("the agent's\n")
    began_ns = time.time_ns()
    manager.rollback(saved.id, touch=True)
    assert (root / "main.txt").read_text() == "mine\n"
    assert (root / "main.txt").stat().st_mtime_ns >= began_ns
    manager.undo(touch=True)
    assert (root / "main.txt").read_text() == "the agent's\n"


def test_the_command_says_it_in_one_line_and_in_json(root: Path, ws: Workspace) -> None:
    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast.cli", "-C", root, "--store", ws.store, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "HOME": "/"})

    make(root)
    ran = holdfast("restore", "latest", "--yes")
    line = "Possibly outdated, built after what was replaced: program. Build again, or restore with --touch."
    assert line in ran.stderr.splitlines()
    holdfast("undo")
    make(root)
    said = json.loads(holdfast("--json", "restore", "latest", "--yes").stdout)
    assert said["restored"]["stale_outputs"] == ["program"]
    holdfast("undo", "--touch")
    assert "Newer" not in holdfast("restore", "latest", "--yes", "--touch").stderr
    make(root)
    assert (root / "program").read_text() == "mine\n"
