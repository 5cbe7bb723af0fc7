"""Texts line by line: where two differ, and two changes of one text put together.

What corresponds to what is found by libgit2 (xdiff, as in git). Lines end at a newline and nowhere else, and are bytes:
nothing is decoded, so that whatever is not touched comes out as it went in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

_BINARY_BYTES = 8000  # as git judges


class Hunk(NamedTuple):
    """Lines of an old text that others stand for in a new one; counted from 0, the ends not included."""

    start: int
    end: int
    new_start: int
    new_end: int


class _Edit(NamedTuple):
    """Lines of a base, and what one side has in their place."""

    start: int
    end: int
    lines: tuple[bytes, ...]


def is_text(data: bytes) -> bool:
    """Whether a content has lines at all, as git judges."""
    return b"\0" not in data[:_BINARY_BYTES]


def split_lines(data: bytes) -> list[bytes]:
    """A text in lines, each with its newline; the last may have none."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """Where two texts differ, in order."""
    import pygit2  # costs more to import than most commands take

    patch = pygit2.Patch.create_from(old, new, context_lines=0, flag=pygit2.enums.DiffOption.FORCE_TEXT)
    found = []
    for hunk in patch.hunks:
        start = hunk.old_start - (hunk.old_lines > 0)  # where nothing was, git names the line before
        new_start = hunk.new_start - (hunk.new_lines > 0)
        found.append(Hunk(start, start + hunk.old_lines, new_start, new_start + hunk.new_lines))
    return found


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """A text with what two sides changed in it; None where they changed the same lines, or added some in one place.

    Where both made the very same change it is made once. Lines side by side are two changes, unlike with git; but a
    last line whose newline one side took, with lines of the other's behind it, would be a line that nobody wrote.
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
