"""Comparing and merging texts by line.

libgit2 finds the matching lines (xdiff, as in git). A line ends at a newline and nowhere else. Lines are bytes and are
not decoded, so that unchanged parts stay exactly as they are (P2).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

_BINARY_BYTES = 8000  # as git judges


class LineHunk(NamedTuple):
    """Lines of an old text and those that replace them in a new one; from 0, ends exclusive."""

    start: int
    end: int
    new_start: int
    new_end: int


class _Edit(NamedTuple):
    """Lines of the base, and what one side has in their place."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def is_text(data: bytes) -> bool:
    """Whether a content is text, by the same test as git."""
    return b"\0" not in data[:_BINARY_BYTES]


def split_lines(data: bytes) -> list[bytes]:
    """Split a text into lines, each with its newline; the last may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: bytes, new: bytes) -> list[LineHunk]:
    """Return where two texts differ, in order."""
    import pygit2  # start-up cost: slower to import than most commands run

    patch = pygit2.Patch.create_from(old, new, context_lines=0, flag=pygit2.enums.DiffOption.FORCE_TEXT)
    found = []
    for hunk in patch.hunks:
        start = hunk.old_start - (hunk.old_lines > 0)  # for an insertion, git gives the line before
        new_start = hunk.new_start - (hunk.new_lines > 0)
        found.append(LineHunk(start, start + hunk.old_lines, new_start, new_start + hunk.new_lines))
    return found


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Merge the changes of two sides; None if they changed the same lines, or inserted at the same place.

    A change that both made is applied once. Changes of adjacent lines do not conflict, unlike in git; except if one
    side removed the last newline and the other added lines after it: that would join two lines.
    """
    edits = sorted({*_edits(base, ours), *_edits(base, theirs)})
    for one, other in pairwise(edits):
        if one.end > other.start or one[:2] == other[:2]:
            return None
    lines, at = split_lines(base), 0
    out: list[bytes] = []
    for edit in edits:
        out += lines[at : edit.start]
        out += edit.lines
        at = edit.end
    out += lines[at:]
    return None if any(not line.endswith(b"\n") for line in out[:-1]) else b"".join(out)


def _edits(base: bytes, side: bytes) -> list[_Edit]:
    lines = split_lines(side)
    return [_Edit(start, end, tuple(lines[first:last])) for start, end, first, last in hunks(base, side)]
