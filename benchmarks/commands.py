"""Commands that people type all day, measured as whole processes.

    python benchmarks/commands.py            # `status` against `git status` on 30,000 files
    python benchmarks/commands.py --many     # `log`, `show`, `diff --stat`, `workspaces` at 10 and 10,000 checkpoints

Everything happens in a temporary home folder. Runs take turns, so that whatever else the machine does hits all of them;
medians of the processor's time (of the process and what it starts, user and system) and, in brackets, by the clock.
Half a minute each, on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.agents.protocol import is_listening
from report import verdict
from trees import edit, realistic, spread
from upkeep import generate

GOAL, SAVE_GOAL = 1.2, 0.3
HELPER_STARTS_S = 30
COUNTS = (10, 10_000)
HOLDFAST = (sys.executable, "-m", "holdfast.cli")
HELPER = (
    "import os; from holdfast.adapters.agents.helper import stay; from holdfast.cli.start import load_runner; "
    "stay(dict(os.environ), load_runner)"
)
PASS = (sys.executable, "-c", "pass")


class Cost(NamedTuple):
    """What a run took, in seconds."""

    processor: float
    clock: float


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--many", action="store_true", help="many checkpoints instead of many files")
    parser.add_argument("--files", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-commands-") as area:
        if options.many:
            _many(Path(area), options.rounds)
        else:
            _status(Path(area), options.files, options.rounds)


def _status(area: Path, files: int, rounds: int) -> None:
    tree = realistic(area / "tree", files=files)
    environ = _environ(area)
    _git(tree.root, environ, "init", "-q")
    _git(tree.root, environ, "config", "gc.auto", "0")  # nothing of git runs beside it
    _git(tree.root, environ, "config", "maintenance.auto", "false")
    _git(tree.root, environ, "add", "-A")
    _git(tree.root, environ, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all")
    subprocess.run([*HOLDFAST, "save"], cwd=tree.root, env=environ, check=True, capture_output=True)
    time.sleep(0.1)  # files that were just written are read again
    works = {"git status": ("git", "status"), "holdfast status": (*HOLDFAST, "status"), "python -c pass": PASS}
    for what in ("nothing changed", "10 files changed"):
        costs = _measured(works, tree.root, environ, rounds)
        for name, cost in costs.items():
            git = costs["git status"]
            ratio = cost.processor / git.processor
            goal = verdict(ratio, GOAL) if name == "holdfast status" else ""
            ratios = f"{ratio:5.2f} × ({cost.clock / git.clock:.2f} ×)  {goal}".rstrip()
            print(f"{files:,} files, {what:<17} {name:<16} {_shown(cost)}  {ratios}", flush=True)
        edit(tree, spread(tree, 10, seed=7), seed=8)
    _with_helper(tree.root, environ, files, rounds)


def _with_helper(folder: Path, environ: Mapping[str, str], files: int, rounds: int) -> None:
    """`status` and `save` by the clock, in a helper, against git. The helper's own time is not the process's, so it is
    shown apart."""
    process = subprocess.Popen([sys.executable, "-c", HELPER], env=environ, stdin=subprocess.DEVNULL)
    try:
        _wait_for(process, environ)
        for name, theirs, ours in (
            ("status", ["git status"], [*HOLDFAST, "status"]),
            (
                "save",
                ["git add -A", "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"],
                [*HOLDFAST, "save"],
            ),
        ):
            works = {"git": ("sh", "-c", " && ".join(theirs)), "holdfast": ours}
            before = _spent_by(process.pid)
            costs = _measured(works, folder, environ, rounds)
            helper = (_spent_by(process.pid) - before) / (rounds + 1)
            cost, git = costs["holdfast"], costs["git"]
            ratio = (cost.processor + helper) / git.processor
            goal = verdict(ratio, SAVE_GOAL) if name == "save" else ""
            print(
                f"{files:,} files, in the helper: {name:<8} {_shown(cost)} + {helper * 1000:.0f} ms"
                f"  {ratio:5.2f} × ({cost.clock / git.clock:.2f} ×)  {goal}".rstrip(),
                flush=True,
            )
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], environ: Mapping[str, str]) -> None:
    """Wait until a helper answers."""
    until = time.monotonic() + HELPER_STARTS_S
    while not is_listening(environ):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit("the helper does not start")
        time.sleep(0.01)


def _spent_by(pid: int) -> float:
    """The processor's time of a running process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _many(area: Path, rounds: int) -> None:
    found: dict[str, list[Cost]] = {}
    environ = _environ(area)
    for count in COUNTS:
        ws = generate(area / str(count), count, store=None, environ=environ)
        project = ws.path
        middle = ws.list(6)[-1].id
        works = {
            "log": (*HOLDFAST, "log"),
            "log --flat": (*HOLDFAST, "log", "--flat"),
            "log PATH": (*HOLDFAST, "log", "own"),
            "log PATH, all read": (*HOLDFAST, "log", "folder-0/file-0.txt"),
            "show": (*HOLDFAST, "show", middle),
            "diff --stat": (*HOLDFAST, "diff", "--stat", "latest~1", "latest"),
            "status": (*HOLDFAST, "status"),
            "workspaces": (*HOLDFAST, "workspaces"),
            "python -c pass": PASS,
        }
        for name, cost in _measured(works, project, environ, rounds).items():
            found.setdefault(name, []).append(cost)
        shutil.rmtree(area / str(count))
        shutil.rmtree(ws.store)
    passed = found.pop("python -c pass")
    for name, (few, many) in found.items():
        parts = [f"{each.processor / base.processor:6.1f} ×" for each, base in zip((few, many), passed, strict=True)]
        print(f"{name:<20} of `python -c pass`: {' '.join(parts)}   {_shown(few)} {_shown(many)}", flush=True)


def _measured(
    works: Mapping[str, Sequence[str]], folder: Path, environ: Mapping[str, str], rounds: int
) -> dict[str, Cost]:
    """The medians of some commands, which take turns; the first round is not counted."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, words in works.items():
            began, before = time.perf_counter(), _spent()
            subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True)
            if number:
                costs[name].append(Cost(_spent() - before, time.perf_counter() - began))
    return {name: Cost(*map(statistics.median, zip(*each, strict=True))) for name, each in costs.items()}


def _spent() -> float:
    """The processor's time of all processes that were started so far and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shown(cost: Cost) -> str:
    return f"{cost.processor * 1000:6.0f} ms ({cost.clock * 1000:.0f} ms)"


def _environ(area: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "HOLDFAST_", "XDG_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # compiling each time is not what people wait for
    home = area / "home"
    home.mkdir(exist_ok=True)
    return kept | {"HOME": str(home), "XDG_STATE_HOME": str(area / "state")}


def _git(folder: Path, environ: Mapping[str, str], *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, env=environ, check=True, capture_output=True)


if __name__ == "__main__":
    main()
