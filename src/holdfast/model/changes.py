"""What differs between two states, and what going from one to another does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.model.path_change import LineCount, PathChange


class Renamed(NamedTuple):
    """A file that went from one path to another."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """What differs between two states."""

    from_id: str
    to_id: str | None
    """None: the folder as it was when the diff was made."""
    added_files: list[str] = field(default_factory=list)
    modified_files: list[str] = field(default_factory=list)
    deleted_files: list[str] = field(default_factory=list)
    diff_content: str = ""
    """The changes of text files, as `git diff` shows them."""
    renamed_files: list[Renamed] = field(default_factory=list)
    touched_files: list[str] = field(default_factory=list)
    """Same content and mode; only times, links or extended attributes differ."""
    changed_folders: list[str] = field(default_factory=list)
    """Folders that have another mode, or came or went without any file."""
    uncompared: dict[str, str] = field(default_factory=dict)
    """Held on one side, and left out or unreadable on the other, with the reason: not known to differ."""
    line_counts: dict[str, LineCount] = field(default_factory=dict)

    @property
    def paths(self) -> list[PathChange]:
        """Every file that differs, sorted by path."""
        found = [("A", path, "") for path in self.added_files] + [("M", path, "") for path in self.modified_files]
        found += [("D", path, "") for path in self.deleted_files] + [("R", new, old) for old, new in self.renamed_files]
        unknown = LineCount(None, None)
        changes = [PathChange(*each, self.line_counts.get(each[1], unknown)) for each in found]
        return sorted(changes, key=lambda change: change.path)

    def __bool__(self) -> bool:
        files = self.added_files or self.modified_files or self.deleted_files or self.renamed_files
        return bool(files or self.touched_files or self.changed_folders)

    def patches(self) -> dict[str, str]:
        """Return the parts of `diff_content` by path, for a renamed file under both of its names."""
        parts = re.split(r"^(?=diff --git )", self.diff_content, flags=re.MULTILINE)[1:]
        found: dict[str, str] = {}
        paths, last, path = iter(self.line_counts), "", ""
        for part in parts:
            head = part.partition("\n")[0]
            path = (
                path if head == last else next(paths, "")
            )  # twice the same: a file that became a link, or the reverse
            found[path] = found.get(path, "") + part
            last = head
        return found | {old: found[new] for old, new in self.renamed_files if new in found}


@dataclass(frozen=True, slots=True)
class Hunk:
    """A part of what changed at a path, which can be taken back by itself.

    `lines`: some lines of a text; `mode`: the permission bits; `whole`: everything at that path, of a binary file, a
    link, a folder, or of what was added or deleted.
    """

    path: str
    kind: str  # "lines" | "mode" | "whole"
    before: tuple[int, int]
    """Of lines: the first one in the older state, from 1, and how many; with 0 lines, the line that they come after."""
    after: tuple[int, int]
    """The same in the newer state."""
    digest: str
    """Of what was removed and what was added."""
    removed: tuple[str, ...] = field(default=(), repr=False)
    """Lines with their newlines; a byte that is no text is a lone surrogate."""
    added: tuple[str, ...] = field(default=(), repr=False)
    leading: tuple[str, ...] = field(default=(), repr=False)
    """Up to three unchanged lines before it."""
    trailing: tuple[str, ...] = field(default=(), repr=False)
    """Up to three unchanged lines after it."""

    @property
    def id(self) -> str:
        """A text that names it; `Workspace.revert` accepts it later, also from another process."""
        (start, count), (new_start, new_count) = self.before, self.after
        return f"{self.kind}:-{start},{count}:+{new_start},{new_count}:{self.digest}:{self.path}"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What changed at one path."""

    path: str
    status: str  # "added" | "deleted" | "modified"
    type: str  # "file" | "link" | "folder" | "special"
    mode_before: int | None
    """Type and permission bits; None if it did not exist."""
    mode_after: int | None
    is_text: bool
    """Whether its lines are compared; false for binary files and those above 4 MiB."""
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed between a checkpoint and now, or between two checkpoints, in parts that can be taken back."""

    from_id: str
    to_id: str | None
    """None: the folder as it was when the changes were read."""
    files: tuple[FileChange, ...]

    def __bool__(self) -> bool:
        return bool(self.files)

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        """All of them, sorted by path."""
        return tuple(hunk for each in self.files for hunk in each.hunks)


@dataclass(frozen=True, slots=True)
class Overlap:
    """Something that an agent did and that could not be undone, because somebody else changed the same lines since."""

    why: str
    actor: str
    before: str
    """The checkpoint that has the path as it was before."""
    after: str | None
    """The one that has it as the agent left it; None if none has yet."""
    path_before: str | None = None
    """What it is called in `before`; None if it was not there."""
    path_after: str | None = None
    """What the agent left it as; None if it was gone then."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How an interrupted restore was dealt with when the workspace was next opened."""

    verb: str
    target: str
    outcome: str  # "finished" | "rolled back"
    found_id: str
    """The safety checkpoint of what was found."""
    failed: dict[str, str]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    checkpoint: str
    directory: str
    written: list[str]
    failed: dict[str, str]
    """Not written, or not completely, and why."""
    missing: dict[str, str]
    """What the checkpoint does not contain, and why."""
    leftovers: list[str]
    """Folders next to it that killed exports left behind; nothing needs them."""

    @property
    def ok(self) -> bool:
        """Whether everything was written (P4)."""
        return not self.failed
