"""A disk that is full to the last block is an error; no process of the user's ends by a signal over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Workspace

from .people import needs_root

KIB = 1 << 10
FREE = range(0, 48, 3)
"""KiB that are left. Where the space ends matters: in the middle of what SQLite maps, or before it is mapped."""

WORKSPACE = """
import os, pathlib, sys
from holdfast import HoldfastError, Workspace
disk, root = sys.argv[1:3]
pathlib.Path(root, "file").write_bytes(os.urandom(9))
ws = Workspace(root, store=f"{disk}/store", home=disk, environ={})
assert ws.list()
try:
    ws.save("second")
except HoldfastError as error:
    print(type(error).__name__)
assert ws.list()
"""
FLOW = """
import os, sys
from datetime import UTC, datetime
from holdfast import HoldfastError
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
disk = sys.argv[1]
try:
    with open_states(f"sqlite:///{disk}/states.db") as states:
        for number in range(20):
            meta = CheckpointMetadata(f"c{number}", str(os.getpid()), datetime.now(UTC), "node", number)
            states.save(Checkpoint(meta, {"text": os.urandom(2000).hex() * number}))
except HoldfastError as error:
    print(type(error).__name__)
"""
LEDGER = """
import sys
from pathlib import Path
from holdfast import HoldfastError
from holdfast.durable.sqlite import Database, Layout
disk = sys.argv[1]
try:
    db = Database(Path(disk, "ledger.db"), Layout("the ledger", 1, ["CREATE TABLE t (a)"], application=7))
    for _ in range(20):
        with db.writing() as connection:
            connection.execute("INSERT INTO t VALUES (?)", [b"x" * 2000])
    db.close()
except HoldfastError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB with blocks of 1 KiB."""
    place, image = tmp_path / "disk", tmp_path / "image"
    place.mkdir()
    image.write_bytes(bytes(4 << 20))
    if shutil.which("mkfs.ext4") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-b", "1024", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path, free_bytes: int) -> None:
    """Leave so much free, and not a block more."""
    filler, gap = disk / "filler", disk / "gap"
    filler.unlink(missing_ok=True)
    gap.write_bytes(bytes(free_bytes))
    with open(filler, "wb", buffering=0) as file:
        for size in (64 * KIB, KIB):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
        os.fsync(file.fileno())
    gap.unlink()


def run_on(disk: Path, code: str, *given: object) -> set[str]:
    """Run a program with so much and so much space left; what it printed in all."""
    said = set()
    for kib in FREE:
        fill(disk, kib * KIB)
        ran = subprocess.run([sys.executable, "-c", code, disk, *given], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, (kib, ran.returncode, ran.stderr)
        said.add(ran.stdout.strip())
    return said


@needs_root
class TestFullDisk:
    @pytest.mark.slow
    def test_of_the_store(self, disk: Path, tmp_path: Path) -> None:
        root = tmp_path / "project"
        root.mkdir()
        (root / "file").write_bytes(os.urandom(3000))
        Workspace(root, store=disk / "store", home=disk, environ={}).save("first")
        assert "Unavailable" in run_on(disk, WORKSPACE, root)

    @pytest.mark.slow
    @pytest.mark.parametrize("code", [FLOW, LEDGER], ids=["flow", "ledger"])
    def test_of_other_databases(self, disk: Path, code: str) -> None:
        fill(disk, 1 << 20)
        subprocess.run([sys.executable, "-c", code, disk], check=True)
        assert "Unavailable" in run_on(disk, code)

    @pytest.mark.slow
    @pytest.mark.parametrize(("code", "name"), [(FLOW, "states.db"), (LEDGER, "ledger.db")], ids=["flow", "ledger"])
    def test_of_a_database_that_has_a_log(self, disk: Path, tmp_path: Path, code: str, name: str) -> None:
        """Made elsewhere, where it could afford one."""
        subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
        shutil.copy(tmp_path / name, disk / name)
        assert "Unavailable" in run_on(disk, code)
