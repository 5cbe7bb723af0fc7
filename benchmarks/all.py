"""Run every benchmark and write docs/benchmarks.md from what they print.

    python benchmarks/all.py                       # all of them, an hour on an idle machine
    python benchmarks/all.py --only workspace hook # some; the others keep the figures of their last run
    python benchmarks/all.py --page                # write the page again from benchmarks/results.json

Each section of the page has the command, the commit, the day, the machine and its load before and after the run. Nobody
edits figures by hand: a test compares the page with benchmarks/results.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import report

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
TIMEOUT_S = 1800


INTRODUCTION = """\
# Benchmarks

`python benchmarks/all.py` writes this page from what the scripts in `benchmarks/` print; nobody edits figures by hand.
Every ratio compares two things in one run, in turns. Holdfast syncs what it writes to the medium; git by default does
not. A load above 0.5 means that other programs used the machine, and that times by the clock say less than ratios. Why
goals are missed, and figures of earlier versions: [history of benchmarks](internals/benchmark-history.md)."""


class Benchmark(NamedTuple):
    """A script, the goals it is held against, and what a reader must know to judge its figures."""

    title: str
    words: tuple[str, ...]
    about: str


BENCHMARKS = {
    "workspace": Benchmark(
        "Checkpoints of 30,000 files, against git",
        ("workspace.py", "--trees", "realistic", "--no-memory", "--peers"),
        "Goals, of `git add -A` and `git commit`: nothing changed 0.4 × in the library, 0.75 × for the command; ten "
        "changed 0.5 × and 0.85 ×; first save 0.2 ×. Restore of ten, of `git reset --hard`: 0.8 × and 1.2 ×.",
    ),
    "large": Benchmark(
        "Checkpoints of 100,000 files, against git",
        ("workspace.py", "--trees", "small", "--no-memory", "--repeat", "3", "--peers"),
        "Goals: the ratios of 30,000 files, times 1.1.",
    ),
    "commands": Benchmark(
        "`holdfast status` and `holdfast save`, against git",
        ("commands.py",),
        "Processor time, and time by the clock in brackets. Goals: `status` 1.2 × `git status`; `save` in the helper "
        "0.3 ×.",
    ),
    "start": Benchmark(
        "Commands with 10 and with 10,000 checkpoints",
        ("commands.py", "--many"),
        "Processor time of whole processes, as a ratio to `python -c pass`.",
    ),
    "hook": Benchmark(
        "A hook of a coding agent",
        ("hook.py",),
        "Goal: 1.7 × `python -c pass` when nothing changed, with the helper.",
    ),
    "git": Benchmark(
        "The record of git's own state, 100,000 commits",
        ("git_record.py",),
        "Goal: 20 ms when nothing changed.",
    ),
    "secrets": Benchmark(
        "The scan for secrets, on a labelled set",
        ("secret_scan.py",),
        "Goal: a tenth of the time of a save.",
    ),
    "upkeep": Benchmark(
        "Size of the store, compact, restore from deltas",
        ("upkeep.py",),
        "No goal of its own; the times are those of one call each.",
    ),
    "blame": Benchmark(
        "Blame, 10,000 checkpoints of 200 files",
        ("upkeep.py", "--blame"),
        "Goal: 2 s and 200 MB.",
    ),
    "flow": Benchmark(
        "States of agent graphs, against LangGraph's savers",
        ("flow.py",),
        "Goals: saves 0.7 ×; 64 sessions on PostgreSQL three times the throughput; a first load of 1,000 steps 2 ×.",
    ),
    "training": Benchmark(
        "Training checkpoints, 1 GB in 200 tensors",
        ("training.py", "--rounds", "3", "--only", "saving,loading,stalling,small"),
        "Goals: first save 1.2 × `torch.save` + fsync, a tenth changed 0.2 ×, full load 1.5 × safetensors.",
    ),
    "indexing": Benchmark(
        "Indexes, against CocoIndex and LangChain",
        ("indexing.py", "--rounds", "3"),
        "Goals: first run 1.0 × LangChain's time; unchanged 0.5 × and no text sent.",
    ),
    "plan": Benchmark(
        "A plan over a million documents, against `os.walk`",
        ("indexing.py", "--scale"),
        "Goal: 6 ×, and 500 MiB of memory.",
    ),
    "search": Benchmark(
        "Searching a flat file, against sqlite-vec",
        ("indexing.py", "--search"),
        "Goal: 3 ×.",
    ),
}


def main() -> int:
    """Run what was asked for, keep the results, write the page; ends with 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--page", action="store_true", help="run nothing, write the page again")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = []
    for name in () if options.page else options.only:
        found = run(BENCHMARKS[name])
        if found is None:
            failed.append(name)
            continue
        results[name] = found
        _replace(RESULTS, json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    _replace(PAGE, page(results))
    if failed:
        print(f"failed: {', '.join(failed)}; the page keeps their last figures", file=sys.stderr)
    return int(bool(failed))


def run(benchmark: Benchmark) -> dict[str, Any] | None:
    """Run one script and return what it printed, with the circumstances; None if it failed."""
    print(f"{time.strftime('%H:%M')}  {' '.join(benchmark.words)}", file=sys.stderr, flush=True)
    before, began = os.getloadavg()[0], time.perf_counter()
    command = [sys.executable, str(HERE / benchmark.words[0]), *benchmark.words[1:]]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, cwd=HERE.parent, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or not done.stdout.strip():
        return None
    return {
        "command": " ".join(benchmark.words),
        "commit": _commit(),
        "day": datetime.now(UTC).date().isoformat(),
        "machine": report.environment(Path(tempfile.gettempdir()), ()),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began),
        "output": done.stdout.rstrip(),
    }


def page(results: dict[str, Any]) -> str:
    """Return docs/benchmarks.md: what was measured, and what was not."""
    parts = [INTRODUCTION]
    parts += [_section(benchmark, results[name]) for name, benchmark in BENCHMARKS.items() if name in results]
    missing = [
        f"- {each.title}: `benchmarks/{each.words[0]}`" for name, each in BENCHMARKS.items() if name not in results
    ]
    if missing:
        parts.append("## Not measured yet with this version\n\n" + "\n".join(missing))
    return "\n\n".join(parts) + "\n"


def _section(benchmark: Benchmark, found: dict[str, Any]) -> str:
    machine = "; ".join(found["machine"].values())
    before, after = found["load"]
    return (
        f"## {benchmark.title}\n\n{benchmark.about}\n\n```text\n{found['output']}\n```\n\n"
        f"`benchmarks/{found['command']}`, {found['day']}, commit {found['commit']}, load {before} before and {after} "
        f"after, {found['seconds']} s; {machine}."
    )


def _commit() -> str:
    words = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _replace(path: Path, text: str) -> None:
    """Old or new, never between: an interrupted run keeps what was measured before."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
