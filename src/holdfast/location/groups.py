"""Checkpoints of a list that belong together. A file of its own: `log` needs no other report."""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.location import Item
from holdfast.model.path_change import LineCount, PathChange


class Group(NamedTuple):
    """Checkpoints of a page that belong together, such as those of one turn of an agent."""

    items: Sequence[Item]
    """Newest first; none of a turn that changed nothing."""
    title: str
    """What it was about: a prompt, or a message."""
    by: str
    """Who made them; empty: a person."""
    when: datetime
    """The time of the newest."""
    marks: Sequence[str]
    files: int
    """How many files changed."""
    lines: LineCount
    changes: Sequence[PathChange]
    """The first of the changed files."""
    number: int | None = None
    """The number of a turn."""
