"""Choosing paths from a numbered list, on a terminal."""

from __future__ import annotations

import re

from holdfast.cli import output, render
from holdfast.cli.app import decline
from holdfast.errors import Refused
from holdfast.model import Plan

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_HELP = "Numbers and ranges, such as 1,3-5; a for all; nothing for none."


def pick(plan: Plan, *, json: bool) -> list[str]:
    """Show what a restore would do, numbered, and return the paths that were chosen. Refused if none is."""
    if json or not output.can_ask():
        raise Refused("picking needs somebody at a terminal", hint="Name the paths instead.")
    rows = [(path, "bring back") for path in plan.written]
    rows += [(path, "replace") for path in plan.replaced]
    rows += [(path, "remove") for path in plan.removed]
    rows = sorted(row for row in rows if row[0] != ".")  # the workspace itself stands for everything in it
    width = len(str(len(rows)))
    for number, (path, verb) in enumerate(rows, 1):
        output.note(f"  {number:>{width}}  {verb:<10}  {render.escape(path)}")
    while True:
        places = parse(output.ask_line("Which?"), len(rows))
        if places is None:
            output.note(_HELP)
            continue
        if not places:
            decline()
        return [rows[place][0] for place in places]


def parse(text: str, count: int) -> list[int] | None:
    """Read a choice among so many, as places from 0; None if it makes no sense."""
    text = re.sub(r"\s*-\s*", "-", text.strip().lower())
    if text in ("a", "all", "*"):
        return list(range(count))
    chosen: set[int] = set()
    for word in filter(None, re.split(r"[,\s]+", text)):
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= count:
            return None
        chosen.update(range(first - 1, last))
    return sorted(chosen)
