"""What is found out about checkpoints: damage, rules, texts, the first bad one, whose a line is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.uncovered import Reason


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that `verify` found wrong."""

    what: str
    detail: str
    checkpoints: tuple[str, ...] = ()
    """The checkpoints that it affects; all others are intact."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` read and found."""

    problems: Sequence[Problem]
    checkpoints: int
    objects: int
    bytes_read: int

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Why:
    """What decides whether a save would include a path."""

    path: str
    held: bool
    exists: bool
    """Whether it is there; if not, the rest is about what would be so."""
    reason: Reason | None
    """If the path is not included."""
    rule: str
    """The line that decides, as `FILE:LINE: PATTERN`; empty where none does."""
    in_checkpoint: str | None
    """The id of the last checkpoint, if that contains it."""
    sentence: str
    """All of it, for people."""


@dataclass(frozen=True, slots=True)
class Match:
    """A file that has a text in it, from one checkpoint to another."""

    path: str
    line: int
    """Where it is in `first`, counted from 1."""
    excerpt: str
    """That line, or some of it."""
    first: Checkpoint
    """The checkpoint in which it appears; its actor, session and message say by whom."""
    last: Checkpoint
    """The last one in a row that has it. Checkpoints before restores do not count, unless no save has the line."""
    disappeared_in: Checkpoint | None
    """The first save after that, in which it is gone; None if there is none."""
    in_folder: bool | None = None
    """Whether the file in the folder has it now, saved or not; None if that is unknown, and for states."""


@dataclass(frozen=True, slots=True)
class Bisected:
    """Between which two checkpoints something broke."""

    first_bad: Checkpoint | None
    """The first at which it fails; None if that lies among `unsure`."""
    last_good: Checkpoint
    unsure: list[Checkpoint]
    """Those that could not be tested and may be the first."""
    tried: dict[str, str]
    """By id, in order: `good`, `bad` or `skipped`."""
    linked: list[str] = field(default_factory=list)
    """Dependencies that checkpoints do not contain, and that were linked into the scratch folder."""
    changed: list[str] = field(default_factory=list)
    """Those of them that changed meanwhile: the test wrote through the link, into the workspace's own."""
    stale_outputs: list[str] = field(default_factory=list)
    """Of a test in place: ignored files and folders that it may have built, from other checkpoints."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a line, or a whole content, came from."""

    actor: str
    """In whose window it came; `user` for what no checkpoint has yet."""
    checkpoint: Checkpoint | None
    """The one that closed the window; None: not saved yet."""
    path: str
    """What the file was called then."""
    is_older: bool
    """It was there already when the first checkpoint that can tell was made; by whom is not known."""


class BlamedLine(NamedTuple):
    """One line of a file."""

    number: int
    text: str
    """With its newline; a byte that is no text is a lone surrogate."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Blame:
    """Where a file came from, line by line."""

    path: str
    is_text: bool
    """False of binary files and of those above 4 MiB, which are answered for as a whole."""
    lines: list[BlamedLine]
    whole: Origin
    """Where the content, as it is, came from."""
