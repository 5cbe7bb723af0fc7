"""One path that differs, in a few words. A file of its own: `log` needs nothing else of what differs."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from typing import NamedTuple


class LineCount(NamedTuple):
    """How many lines of a file came and went; None where its content is not text."""

    added: int | None
    removed: int | None


class PathChange(NamedTuple):
    """A path that differs, with the letter that git has for it: A (added), M (modified), D (deleted), R (renamed)."""

    letter: str
    """Empty where it is not known."""
    path: str
    old: str = ""
    """Of a renamed file: its path before."""
    lines: LineCount = LineCount(None, None)
