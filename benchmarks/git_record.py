"""Recording the user's git, measured: a repository with 100,000 commits and 2,000 branches, and no remote.

    python benchmarks/git_record.py
    python benchmarks/git_record.py --commits 10000
    python benchmarks/git_record.py --repository PATH   # a copy of its .git; the repository itself is not touched

Everything happens in a temporary folder. `cpu` is processor time, of this process and of the git programs that it ran.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from holdfast import Workspace
from holdfast.workspace.stored.object_sink import ObjectSink
from report import verdict

BRANCHES = 2000
FILES = 1000
LOOKS = 50
GOAL_MS = 20


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--repository", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-git-record-") as area:
        folder = Path(area, "project")
        folder.mkdir()
        if options.repository:
            shutil.copytree(options.repository / ".git", folder / ".git")
        else:
            make(folder, options.commits)
        _git(folder, "reset", "-q", "--hard")
        count = _git(folder, "rev-list", "--count", "--all")
        print(f"{count} commits, {len(_git(folder, 'for-each-ref').splitlines())} refs, {_megabytes(folder / '.git')}")
        measure(folder, Path(area, "store"))


def measure(folder: Path, store: Path) -> None:
    """Print what recording costs: at first, with nothing changed, after a commit, after `git add`."""
    workspace = Workspace(folder, store=store)
    workspace.defer_git()
    _print("first save, without git's objects", lambda: workspace.save("first"))
    _print("holding git's objects for the first time", workspace.hold_git)
    print(f"{'git in the store, of all':<50} {workspace.usage(paths=0).git_bytes / 1e6:>9.1f} MB")
    time.sleep(0.1)  # files that changed just now may change again without new times
    workspace.save("again", allow_empty=True)
    recorder, scanner = workspace._engine.saver.git, workspace._engine.scanner
    sink, git = ObjectSink(workspace._repository.objects), scanner.git_dir()
    median_s = _print_median("recording git, nothing changed", lambda: recorder.record(sink, git))
    print(f"recording git, nothing changed: {verdict(median_s * 1000, GOAL_MS, unit=' ms')}")
    _print_median("a save, nothing changed", lambda: workspace.save("same"))
    for number in range(3):
        (folder / "new.txt").write_text(f"{number}\n")
        _git(folder, "add", ".")
        _git(folder, "commit", "-q", "-m", f"{number}")
        _print("a save after one commit", lambda: workspace.save("committed"))
        _print("holding its objects", workspace.hold_git)
    (folder / "new.txt").write_text("staged\n")
    _git(folder, "add", ".")
    _print("a save after `git add`", lambda: workspace.save("staged"))
    _print("holding its objects", workspace.hold_git)


def make(folder: Path, commits: int) -> None:
    """Make a repository by `git fast-import`."""
    _git(folder, "init", "-q", "-b", "main")
    process = subprocess.Popen(["git", "fast-import", "--quiet"], cwd=folder, stdin=subprocess.PIPE)
    assert process.stdin is not None
    _write_stream(process.stdin, commits)
    process.stdin.close()
    if process.wait():
        raise SystemExit("git fast-import failed")


def _write_stream(out: IO[bytes], commits: int) -> None:
    for number in range(1, commits + 1):
        data = b"line %d\n" % number * 5
        out.write(b"commit refs/heads/main\nmark :%d\ncommitter n <e@x> %d +0000\n" % (number, 1_600_000_000 + number))
        out.write(b"data 8\nc%07d\n" % number)
        out.write(b"M 100644 inline d%d/f%d.txt\n" % (number % 50, number % FILES))
        out.write(b"data %d\n%s\n" % (len(data), data))
    for number in range(min(BRANCHES, commits)):
        out.write(b"reset refs/heads/b%d/x%d\nfrom :%d\n\n" % (number % 20, number, commits - number % 500))


def _git(folder: Path, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    names = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "gc.auto=0")
    done = subprocess.run(["git", *names, *words], cwd=folder, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _print(label: str, act: Callable[[], object]) -> None:
    cpu, begun = _cpu_s(), time.perf_counter()
    act()
    _row(label, time.perf_counter() - begun, _cpu_s() - cpu)


def _print_median(label: str, act: Callable[[], object]) -> float:
    walls, cpu = [], _cpu_s()
    for _ in range(LOOKS):
        begun = time.perf_counter()
        act()
        walls.append(time.perf_counter() - begun)
    _row(f"{label} (median of {LOOKS})", statistics.median(walls), (_cpu_s() - cpu) / LOOKS)
    return statistics.median(walls)


def _row(label: str, wall_s: float, cpu_s: float) -> None:
    print(f"{label:<50} {wall_s * 1000:>9.1f} ms {cpu_s * 1000:>9.1f} ms cpu", flush=True)


def _megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
