"""Run every benchmark and write docs/benchmarks.md from what they print.

    pip install -e '.[dev-all]' && pip install -r benchmarks/requirements.txt   # peers; a missing one is left out
    python benchmarks/all.py                       # all of them, 25 minutes on an idle machine with two cores
    python benchmarks/all.py --resume              # those that are not measured yet at this commit
    python benchmarks/all.py --resume --minutes 9  # the same, and begin none that would not end within 9 minutes
    python benchmarks/all.py --only workspace hook # some; the others keep the figures of their last run
    python benchmarks/all.py --page                # write the page again from benchmarks/results.json
    python benchmarks/all.py --list                # what there is, and how long it takes

A section is saved as it ends, so one run can be spread over several, and one that is interrupted goes on with --resume.
Each has a time limit; what a section printed until then is kept, and the page says so. It has the command, the commit,
the day, the machine and its load before and after. Nobody edits figures by hand: a test compares the page with
benchmarks/results.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import report

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "benchmarks.md"
LIMIT = 3
"""A section may take this many times the seconds that it takes on an idle machine."""
LEAST_LIMIT_S = 120

INTRODUCTION = """\
# Benchmarks

`python benchmarks/all.py` writes this page from what the scripts in `benchmarks/` print; nobody edits figures by hand.
Every ratio compares two things in one run, in turns. Holdfast syncs what it writes to the medium; git by default does
not. A load above 0.5 means that other programs used the machine, and that times by the clock say less than ratios. Why
goals are missed, and figures of earlier versions: [history of benchmarks](internals/benchmark-history.md)."""


class Benchmark(NamedTuple):
    """A script, what a reader must know to judge its figures, and how long it takes on an idle machine."""

    title: str
    words: tuple[str, ...]
    about: str
    seconds: int = 60


_NOTES = (
    "*Holdfast* is the library in a new process, *python -c* that whole process. Holdfast's saves also hold times, "
    "permissions and empty folders; its restores first save what they replace, and prove the result."
)
BENCHMARKS = {
    "workspace": Benchmark(
        "Checkpoints of 30,000 files, against git",
        (
            "workspace.py",
            "--trees",
            "realistic",
            "--no-memory",
            "--repeat",
            "3",
            "--pure",
            "--peak",
            "--brief",
            "--peers",
        ),
        f"{_NOTES} The goal of *pure Python* is what that took, of git's time, before there was a native module.",
        130,
    ),
    "large": Benchmark(
        "Checkpoints of 100,000 files, against git",
        ("workspace.py", "--trees", "small", "--no-memory", "--repeat", "2", "--changes", "6", "--brief", "--peers"),
        "The goals are those of 30,000 files; a tenth more is allowed here.",
        160,
    ),
    "huge": Benchmark(
        "Checkpoints of 300,000 files, against git",
        (
            "workspace.py",
            "--trees",
            "small",
            "--files",
            "90000",
            "--no-memory",
            "--repeat",
            "1",
            "--changes",
            "3",
            "--no-deleted",
            "--peak",
            "--brief",
            "--peers",
        ),
        "One round of each, so there is no spread. The goals are those of 30,000 files; a tenth more is allowed here.",
        200,
    ),
    "scaling": Benchmark(
        "First saves, by processors",
        ("scaling.py", "--rounds", "2"),
        "30,000 files.",
        45,
    ),
    "commands": Benchmark(
        "`holdfast status` and `holdfast save`, against git",
        ("commands.py", "--rounds", "7"),
        "Processor time, and time by the clock in brackets. Goals: `status` 1.2 × `git status`; `save` in the helper "
        "0.3 ×.",
        25,
    ),
    "start": Benchmark(
        "Commands with 10 and with 10,000 checkpoints",
        ("commands.py", "--many", "--rounds", "7"),
        "Processor time of whole processes, as a ratio to `python -c pass`.",
        20,
    ),
    "hook": Benchmark(
        "A hook of a coding agent",
        ("hook.py",),
        "The goal is by the clock; the processor time is that of the process that the agent waits for.",
        12,
    ),
    "git": Benchmark(
        "The record of git's own state, 100,000 commits",
        ("git_record.py",),
        "Goal: 20 ms when nothing changed.",
        15,
    ),
    "secrets": Benchmark(
        "The scan for secrets, on a labelled set",
        ("secret_scan.py",),
        "Goal: a recall of 0.95 and a precision of 0.9.",
        2,
    ),
    "upkeep": Benchmark(
        "Size of the store, compact, restore from deltas",
        ("upkeep.py",),
        "The times are those of one call each. Goal: 1.1 × the size of a shadow repository after `git gc`.",
        30,
    ),
    "many": Benchmark(
        "`list`, `search`, `diff`, `verify`, `prune`, `compact` with up to 10,000 checkpoints",
        ("upkeep.py", "--many"),
        "Processor time of one call each; the median of 21 for `list`, `get`, `show` and `diff`.",
        45,
    ),
    "similar": Benchmark(
        "`compact` of 200,000 small files that are alike",
        ("upkeep.py", "--similar", "200000"),
        "Processor time. Goals, after `compact` as a ratio to before it: `verify` and all else 1.3 ×.",
        200,
    ),
    "blame": Benchmark(
        "Blame, 10,000 checkpoints of 200 files",
        ("upkeep.py", "--blame"),
        "Goal: 2 s and 200 MB.",
        20,
    ),
    "graph": Benchmark(
        "Graphs of 200 steps on LangGraph, against its own saver",
        ("flow.py", "--graph-only", "--rounds", "5"),
        "Milliseconds from end to end, rounds in turn.",
        60,
    ),
    "flow": Benchmark(
        "States of agent graphs, against LangGraph's savers",
        ("flow.py", "--states-only"),
        "Saves are means of all steps; loads medians of 15, with the least and the greatest ratio in brackets. A cold "
        "load is in a process that has not saved the state.",
        110,
    ),
    "training": Benchmark(
        "Training checkpoints, 1 GB in 200 tensors",
        ("training.py", "--rounds", "3", "--only", "saving,loading,stalling,small"),
        "Medians, with the least and the greatest.",
        130,
    ),
    "indexing": Benchmark(
        "Indexes, against CocoIndex and LangChain",
        ("indexing.py", "--rounds", "3"),
        "The same 400 files, chunker, model and LanceDB for all; of each process only the work is timed.",
        110,
    ),
    "plan": Benchmark(
        "A plan over a million documents, against `os.walk`",
        ("indexing.py", "--scale", "--rounds", "3"),
        "In turns; by the clock and by processor time.",
        160,
    ),
    "search": Benchmark(
        "Searching a flat file, against sqlite-vec",
        ("indexing.py", "--search"),
        "Goal: 3 ×. Both are exact and find the same.",
        15,
    ),
}


def main() -> int:
    """Run what was asked for, keep the results, write the page; ends with 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--resume", action="store_true", help="leave out what was measured at this commit")
    parser.add_argument("--minutes", type=float, help="begin nothing that would not end within this time")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page again")
    parser.add_argument("--list", action="store_true", help="run nothing, show what there is")
    options = parser.parse_args()
    if options.list:
        for name, each in BENCHMARKS.items():
            print(f"{name:<10} {each.seconds:4} s, at most {limit_s(each):4} s   {each.title}")
        print(f"{sum(each.seconds for each in BENCHMARKS.values()) / 60:.0f} minutes on an idle machine with two cores")
        return 0
    results = _results()
    failed, left = [], []
    began = time.monotonic()
    for name in () if options.page else wanted(options.only, results, _commit() if options.resume else None):
        benchmark = BENCHMARKS[name]
        if options.minutes and time.monotonic() - began + benchmark.seconds > options.minutes * 60:
            left.append(name)
            continue
        found = run(benchmark)
        if found is None:
            failed.append(name)
            continue
        results = _results() | {name: found}
        _replace(RESULTS, json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        _replace(PAGE, page(results))
    _replace(PAGE, page(results))
    if left:
        print(f"no time for: {', '.join(left)}; go on with --resume", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}; the page keeps their last figures", file=sys.stderr)
    return int(bool(failed))


def wanted(names: Iterable[str], results: Mapping[str, Mapping[str, Any]], commit: str | None) -> list[str]:
    """The benchmarks to run: these, without those that ended at this commit."""

    def is_done(name: str) -> bool:
        found = results.get(name, {})
        return found.get("commit") == commit and not found.get("stopped") and found["command"] == _words(name)

    return [name for name in names if commit is None or not is_done(name)]


def limit_s(benchmark: Benchmark) -> int:
    """After how many seconds a benchmark is stopped."""
    return max(LEAST_LIMIT_S, LIMIT * benchmark.seconds)


def run(benchmark: Benchmark) -> dict[str, Any] | None:
    """Run one script and return what it printed, with the circumstances; None if it failed or printed nothing."""
    words, limit = benchmark.words, limit_s(benchmark)
    print(f"{time.strftime('%H:%M')}  {' '.join(words)} (about {benchmark.seconds} s)", file=sys.stderr, flush=True)
    before, began = os.getloadavg()[0], time.perf_counter()
    command = [sys.executable, "-u", str(HERE / words[0]), *words[1:]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=HERE.parent, start_new_session=True
    ) as process:
        try:
            output, is_stopped = process.communicate(timeout=limit)[0], False
        except subprocess.TimeoutExpired:
            output, is_stopped = _stop(process), True
        except BaseException:
            _stop(process)
            raise
    if (process.returncode and not is_stopped) or not output.strip():
        return None
    return {
        "command": " ".join(words),
        "commit": _commit(),
        "day": datetime.now(UTC).date().isoformat(),
        "machine": report.environment(Path(tempfile.gettempdir()), ()),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began),
        "stopped": is_stopped,
        "output": output.rstrip(),
    }


def _stop(process: subprocess.Popen[str]) -> str:
    """End a script with what it started in its session, first in such a way that it removes its folders."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=30)[0]
    return process.communicate()[0]


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return docs/benchmarks.md: what was measured, and what was not."""
    measured = {name: results[name] for name in BENCHMARKS if name in results}
    parts = [INTRODUCTION, *([_goals(measured)] if measured else [])]
    parts += [_section(BENCHMARKS[name], found) for name, found in measured.items()]
    missing = [
        f"- {each.title}: `benchmarks/{each.words[0]}`" for name, each in BENCHMARKS.items() if name not in results
    ]
    if missing:
        parts.append("## Not measured yet with this version\n\n" + "\n".join(missing))
    return "\n\n".join(parts) + "\n"


def _goals(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """How many goals are met, and which are missed."""
    lines = [(name, line) for name, found in measured.items() for line in found["output"].splitlines()]
    judged = [(name, line) for name, line in lines if "≤" in line or "goal" in line]
    met = sum(bool(re.search(r"\bmet\b", line)) for _, line in judged)
    missed = [(name, line) for name, line in judged if re.search(r"\bmissed\b", line)]
    text = f"## Goals\n\n{met} are met, {len(missed)} are missed"
    if not missed:
        return f"{text}."
    listed = "\n".join(f"{name:<10} {' '.join(line.replace('|', ' ').split())}" for name, line in missed)
    return f"{text}:\n\n```text\n{listed}\n```"


def _section(benchmark: Benchmark, found: Mapping[str, Any]) -> str:
    machine = "; ".join(found["machine"][name] for name in sorted(found["machine"]))
    before, after = found["load"]
    stopped = " It was stopped at its time limit: what comes later is missing." if found.get("stopped") else ""
    return (
        f"## {benchmark.title}\n\n{benchmark.about}{stopped}\n\n```text\n{found['output']}\n```\n\n"
        f"`benchmarks/{found['command']}`, {found['day']}, commit {found['commit']}, load {before} before and {after} "
        f"after, {found['seconds']} s; {machine}."
    )


def _words(name: str) -> str:
    return " ".join(BENCHMARKS[name].words)


def _results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return found


def _commit() -> str:
    """The last commit that changed what is measured: not one that only saved results."""
    words = ["git", "-C", str(HERE.parent), "log", "-1", "--format=%h", "--", "src", "benchmarks/*.py"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _replace(path: Path, text: str) -> None:
    """Old or new, never between: an interrupted run keeps what was measured before."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
