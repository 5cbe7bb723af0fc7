"""What is printed: one row per kind of work, with the ratio to a peer, the goal and whether it is met."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

Samples = Sequence[float]


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work: Holdfast's samples beside those of the peer that it is held against, and of others."""

    work: str
    ours: Samples
    against: str
    theirs: Samples
    others: Mapping[str, Samples] = field(default_factory=dict)
    unit: str = "s"
    goal_ratio: float | None = None
    goal_most: float | None = None
    processor: tuple[Samples, Samples] | None = None
    """What processors spent, ours and theirs, where it was counted."""

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.theirs)

    @property
    def goal(self) -> str:
        if self.goal_ratio is not None:
            return f"≤ {self.goal_ratio:g} ×"
        return f"≤ {self.goal_most:g} {self.unit}" if self.goal_most is not None else ""

    @property
    def outcome(self) -> str:
        if self.goal_ratio is not None:
            return "met" if self.ratio <= self.goal_ratio else "missed"
        if self.goal_most is not None:
            return "met" if median(self.ours) <= self.goal_most else "missed"
        return ""

    def cells(self, peers: Sequence[str]) -> list[str]:
        """Return the row as text, a cell for each column of `table`."""
        others = [
            f"{median(self.ours) / median(self.others[peer]):.2f} ×" if peer in self.others else "" for peer in peers
        ]
        ours, theirs = (_spread(samples, self.unit) for samples in (self.ours, self.theirs))
        spent = ""
        if self.processor is not None:
            spent = f"{median(self.processor[0]) / median(self.processor[1]):.2f} ×"
        ratio = f"{self.ratio:.2f} ×"
        return [self.work, ours, self.against, theirs, ratio, spent, self.goal, self.outcome, *others]

    def as_json(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "unit": self.unit,
            "holdfast": list(self.ours),
            "against": self.against,
            "theirs": list(self.theirs),
            "ratio": self.ratio,
            "ratio_of_minima": min(self.ours) / min(self.theirs),
            "processor": None if self.processor is None else list(map(list, self.processor)),
            "goal": self.goal or None,
            "outcome": self.outcome or None,
            "others": {name: list(samples) for name, samples in self.others.items()},
        }


@dataclass(frozen=True, slots=True)
class Section:
    """The rows that were measured on one tree."""

    title: str
    rows: list[Row]


def verdict(value: float, most: float, *, unit: str = " ×") -> str:
    """The goal, and whether a value that should be small meets it."""
    return f"goal {most:g}{unit}: {'met' if value <= most else 'missed'}"


def table(rows: Sequence[Row], peers: Sequence[str], *, markdown: bool) -> str:
    """Return the rows as an aligned table, ready for a page of documentation or for a terminal."""
    header = ["work", "Holdfast", "against", "takes", "ratio", "processor", "goal", "outcome"]
    header += [f"to {peer}" for peer in peers]
    lines = [header, *(row.cells(peers) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    padded = [
        [cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in [header, rule, *lines[1:]]
    ]
    if markdown:
        return "\n".join(f"| {' | '.join(line)} |" for line in padded)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def environment(folder: Path, peers: Sequence[str]) -> dict[str, str]:
    """Return what a reader must know to judge the figures."""
    facts = {
        "processors": f"{os.cpu_count()} × {_processor()}",
        "file system": f"{_file_system(folder)}, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "git": _first_line("git", "--version"),
    }
    return facts | {peer: _first_line(peer, "version" if peer == "restic" else "--version") for peer in peers}


def _spread(samples: Samples, unit: str) -> str:
    digits = 1 if unit == "MiB" else 3 if median(samples) < 10 else 1
    text = f"{median(samples):.{digits}f} {unit}"
    return text if len(samples) == 1 else f"{text} ({min(samples):.{digits}f}–{max(samples):.{digits}f})"


def _first_line(*command: str) -> str:
    if not shutil.which(command[0]):
        return "not installed"
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds a folder, where the system says."""
    if sys.platform != "linux":
        return "unknown"
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[2] == wanted:
            return fields[fields.index("-") + 1]
    return "unknown"
