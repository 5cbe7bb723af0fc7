"""What a hook costs an agent: the whole process, against `python -c pass` in the same run.

    python benchmarks/hook.py             # 2,000 files
    python benchmarks/hook.py --large     # and 100,000 files, against the time that agents wait

Everything happens in a temporary home folder: a git repository, a check command that is allowed, turns with prompts.
Rounds take turns, so that whatever else the machine does hits all of them; medians, with the least and the greatest.
Processor time is that of the process that the agent waits for, and, in the last line, of the helper for one event.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.adapters.agents.base import TIMEOUT_S
from holdfast.adapters.agents.settings.shim import shim_path, write_shim

GOAL = 1.7


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--large", action="store_true", help="also 100,000 files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-hook-") as area, _helper_ended(Path(area)):
        _small(Path(area), options.rounds)
        if options.large:
            _large(Path(area))


class Hooks:
    """Runs hooks as an agent would, in a project of its own."""

    def __init__(self, area: Path, name: str, files: int) -> None:
        self.project = area / "home" / name
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "XDG_", "GIT_"))},
            "HOME": str(area / "home"),
        }
        self._number = self._turn = 0
        write_shim(self._environ, sys.executable)  # what `holdfast install` has agents run
        self._script = str(shim_path(self._environ))
        for number in range(files):
            folder = self.project / f"d{number // 100:04d}"
            if number % 100 == 0:
                folder.mkdir(parents=True)
            (folder / f"f{number % 100:02d}.py").write_text(f"print({number})\n" * 20)
        git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(self.project)]
        for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *words], check=True, env=self._environ)
        (self.project / "holdfast.toml").write_text('check = "true"\n')
        for words in (["save"], ["check", "--allow", "--yes"]):
            command = [sys.executable, "-m", "holdfast.cli", *words]
            subprocess.run(command, check=True, env=self._environ, cwd=self.project, capture_output=True)

    def fire(self, event: str, **environment: str) -> None:
        """One event; returns when the agent would go on."""
        self._number += event == "PreToolUse"
        self._turn += event == "UserPromptSubmit"
        fields = {
            "session_id": "benchmark",
            "cwd": str(self.project),
            "hook_event_name": event,
            "tool_name": "Bash",
            "tool_input": {"command": "make"},
            "tool_use_id": f"tool-{self._number}",
            "prompt_id": f"prompt-{self._turn}",
            "prompt": "make it work",
        }
        data = json.dumps(fields).encode()
        words = [self._script, "hook", "claude-code"]
        subprocess.run(words, input=data, check=True, env=self._environ | environment, stdout=subprocess.DEVNULL)

    def bare(self) -> None:
        """The same interpreter, doing nothing."""
        subprocess.run([sys.executable, "-c", "pass"], input=b"", check=True, env=self._environ)


def _small(area: Path, rounds: int) -> None:
    hooks = Hooks(area, "small", 2_000)
    for event in ("PreToolUse", "PostToolUse"):  # the first saves everything, and leaves a helper
        hooks.fire(event)
    time.sleep(1)
    hooks.fire("PreToolUse")
    times: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    events = 0

    def measure(label: str, work: Callable[[], None]) -> None:
        nonlocal events
        events += label != "python -c pass"
        before, begun = _processor_s(), time.perf_counter()
        work()
        times.setdefault(label, []).append(time.perf_counter() - begun)
        processor.setdefault(label, []).append(_processor_s() - before)

    helper_before = _helper_processor_s(area)
    for number in range(rounds):
        measure("python -c pass", hooks.bare)
        measure("hook, nothing changed", lambda: hooks.fire("PreToolUse"))
        if number % 6 == 0:
            measure("hook, nothing changed, no helper", lambda: hooks.fire("PreToolUse", HOLDFAST_HELPER="0"))
            for each in range(10):
                (hooks.project / f"d{each:04d}" / "f00.py").write_text(f"print({number}, {each})\n")
            measure("hook, 10 files changed", lambda: hooks.fire("PostToolUse"))
            measure("hook, end of a turn, check wanted", lambda: hooks.fire("Stop"))
            measure("hook, a prompt", lambda: hooks.fire("UserPromptSubmit"))
    of_helper = (_helper_processor_s(area) - helper_before) / events
    print("2,000 files")
    bare = statistics.median(times["python -c pass"])
    for label, found in times.items():
        ratio = statistics.median(found) / bare
        goal = f"goal {GOAL} ×: {'met' if ratio <= GOAL else 'missed'}" if label == "hook, nothing changed" else ""
        used = statistics.median(processor[label])
        share = used / statistics.median(processor["python -c pass"])
        print(f"  {label:<34} {_shown(found)}  {ratio:5.2f} ×; processor {used * 1000:5.1f} ms {share:5.2f} ×  {goal}")
    print(f"  the helper uses {of_helper * 1000:.1f} ms of the processor for an event")


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _helper_processor_s(area: Path) -> float:
    """The processor time of the helper, of which /proc counts hundredths of a second."""
    total = 0.0
    for lock in (area / "home").glob(".local/state/holdfast/agents/run/*.lock"):
        with contextlib.suppress(OSError, ValueError):
            words = Path(f"/proc/{int(lock.read_text())}/stat").read_text().rpartition(")")[2].split()
            total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total


def _large(area: Path) -> None:
    hooks = Hooks(area, "large", 100_000)
    print(f"100,000 files; agents wait {TIMEOUT_S} s")
    for label, event in (("first event", "PreToolUse"), ("next event", "PostToolUse"), ("another", "PreToolUse")):
        begun = time.perf_counter()
        hooks.fire(event)
        print(f"  {label:<34} {time.perf_counter() - begun:.2f} s")
        time.sleep(1)


@contextlib.contextmanager
def _helper_ended(area: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for lock in (area / "home").glob(".local/state/holdfast/agents/run/*.lock"):
            with contextlib.suppress(ValueError, ProcessLookupError):
                os.kill(int(lock.read_text()), signal.SIGTERM)
        time.sleep(0.5)


def _shown(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:7.1f} ms ({min(found) * 1000:.1f}–{max(found) * 1000:.1f})"


if __name__ == "__main__":
    main()
