"""Systems other than this one: Windows as far as it can be imitated. `make portable` takes Linux-only calls away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.durable import platform

WINDOWS = """
import asyncio, concurrent.futures, importlib.abc, importlib.metadata, json, logging, multiprocessing, os, random
import shutil, socket, sqlite3, subprocess, sys, sysconfig, tempfile, types, uuid
sysconfig.get_config_vars()
import click, isal, msgspec, pydantic

class Absent(importlib.abc.MetaPathFinder):
    names = {"fcntl", "termios", "tty", "pty", "pwd", "grp", "resource"}
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in Absent.names:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for name in '''O_PATH O_NOFOLLOW O_CLOEXEC O_DIRECTORY O_NONBLOCK O_NOATIME O_NOCTTY O_DIRECT
    geteuid getuid getegid getgid fork
    register_at_fork statvfs mkfifo mknod chown fchmod fchown setsid nice pread pwrite preadv readv posix_fadvise
    posix_fallocate listxattr getxattr setxattr removexattr sched_getaffinity killpg sync'''.split():
    if hasattr(os, name):
        delattr(os, name)
held = set()
def locking(fd, mode, count):
    held.discard(fd) if mode == 0 else held.add(fd)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2, LK_UNLCK=0)
sys.platform = "win32"
"""


def _run(text: str, place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WINDOWS + text]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)


def test_windows_imports_everything_but_folders(tmp_path: Path) -> None:
    ran = _run(
        """
import holdfast, holdfast.flow, holdfast.flow.sqlite, holdfast.indexing, holdfast.training, holdfast.cli.main
refused = []
for name in holdfast.__all__:
    try:
        getattr(holdfast, name)
    except holdfast.HoldfastError as error:
        refused.append(name)
print(refused)
""",
        tmp_path,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "['Workspace']\n"


def test_windows_says_in_one_sentence_that_folders_need_wsl(tmp_path: Path) -> None:
    ran = _run("from holdfast.cli.main import main\nsys.exit(main(['save', 'x']))", tmp_path)
    assert ran.returncode == 7
    assert ran.stderr.splitlines() == [
        "error: on Windows, folders can be saved inside WSL only",
        "hint:  Install Holdfast in WSL and run it there.",
    ]


def test_windows_saves_states(tmp_path: Path) -> None:
    ran = _run(
        """
from datetime import UTC, datetime
from holdfast.flow import Checkpoint, CheckpointMetadata, open_states
states = open_states("sqlite:///states.db")
for number in (1, 2):
    states.save(Checkpoint(CheckpointMetadata(f"c{number}", "s", datetime.now(UTC), "node", number), {"count": number}))
print([each.checkpoint_id for each in states.metadata("s")])
states.close()
""",
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "['c2', 'c1']\n"), ran.stderr


def test_windows_indexes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "cats.md").write_text("Cats purr and sleep.")
    ran = _run(
        """
from holdfast.indexing import FlatStore, FolderSource, HashedWords, IndexRun, Pipeline
words = HashedWords()
pipeline = Pipeline(source=FolderSource("notes"), embed={"sparse": words}, store=FlatStore("words.db"))
run = IndexRun(ledger="index.db", pipeline=pipeline)
print(run.apply(run.plan()).ok, run.search("sparse", words.query("purr"))[0].document)
run.close()
""",
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "True cats.md\n"), ran.stderr


def test_a_lock_file_excludes_others(tmp_path: Path) -> None:
    one, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert platform.lock_file(one)
        assert not platform.lock_file(other)
        platform.unlock_file(one)
        assert platform.lock_file(other)
    finally:
        os.close(one)
        os.close(other)


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o600])
def test_a_handle_of_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    monkeypatch.setattr(platform, "_O_PATH", 0)
    monkeypatch.setattr(platform, "_PROC_FDS", "")
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(mode)
    fd = platform.open_handle(str(tmp_path / "file"), None)
    try:
        platform.chmod(fd, 0o640)
    finally:
        os.close(fd)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_handle_never_follows_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_O_PATH", 0)
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError):
        platform.open_handle(str(tmp_path / "link"), None)


MEMORY = """
import sys
from pathlib import Path
from holdfast.durable import platform

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) << 12

if "small" in sys.argv:
    platform.keep_heap_small()
block = bytearray(30 << 20)
del block  # from here on glibc takes blocks up to that size from its heap
before = resident()
blocks, between = [], []
for _ in range(600):
    blocks.append(bytearray(int(sys.argv[1])))
    between.append(bytearray(2_000))
del blocks
if "back" in sys.argv:
    platform.give_memory_back()
print((resident() - before) >> 20)
"""


@pytest.mark.linux
@pytest.mark.parametrize(("block_bytes", "words"), [(200_000, ["small"]), (100_000, ["back"])])
def test_freed_memory_goes_back(block_bytes: int, words: list[str]) -> None:
    def kept(*words: str) -> int:
        call = [sys.executable, "-c", MEMORY, str(block_bytes), *words]
        return int(subprocess.run(call, capture_output=True, check=True, text=True).stdout)

    assert kept() > 40  # without, it does not
    assert kept(*words) < 20
