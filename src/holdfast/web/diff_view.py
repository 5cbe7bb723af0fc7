"""Changes as rows of lines, unified or side by side, within a budget: what is more is loaded when it is looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import NamedTuple

from markupsafe import Markup

from holdfast.errors import HoldfastError
from holdfast.model import Changes, FileChange, Hunk
from holdfast.web.syntax import colour_lines
from holdfast.workspace import Workspace
from holdfast.workspace.blame import read_now
from holdfast.workspace.stored.reviewed import digest_of

ROWS_MAX = 800
"""How many lines of a page's changes are shown at once."""
FILE_ROWS_MAX = 400
NOW = "now"
"""In addresses, the folder as it is now instead of a checkpoint."""
_HUNKS_MAX = 100
"""How many hunks of a file are shown: each has a header and its buttons."""
_WHOLE_MAX_BYTES = 256 << 10
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class Cell(NamedTuple):
    """A line on one side."""

    number: int
    text: Markup


class DiffRow(NamedTuple):
    """A line of a change."""

    kind: str
    """`same`, `removed`, `added`; side by side also `both`, a removed line beside an added one."""
    old: Cell | None
    new: Cell | None


@dataclass(frozen=True, slots=True)
class HunkView:
    """A hunk with its lines."""

    id: str
    kind: str
    title: str
    rows: list[DiffRow]
    more: int = 0
    """How many of its lines are not shown."""

    @property
    def digest(self) -> str:
        """What marks it as reviewed."""
        return digest_of(self.id)


@dataclass(frozen=True, slots=True)
class FileView:
    """What changed at one path."""

    path: str
    status: str
    letter: str
    added: int | None
    removed: int | None
    note: str = ""
    hunks: list[HunkView] = field(default_factory=list)
    image: tuple[str | None, str | None] | None = None
    """The checkpoints that have the picture before and after; None where it was not there."""
    more_hunks: int = 0
    """How many of its hunks are not shown."""
    is_loaded: bool = True
    """False: its lines are asked for when it comes into view."""

    @property
    def mark(self) -> str:
        """What marks all of it as reviewed."""
        return f"file:{self.path}"

    @property
    def digest(self) -> str:
        return digest_of(self.mark)


def view_changes(
    workspace: Workspace,
    changes: Changes,
    *,
    split: bool,
    rows_max: int = ROWS_MAX,
    clean: Callable[[str], str] | None = None,
) -> Iterator[FileView]:
    """The files of some changes; after `rows_max` lines, only their names. `clean` is called with every line."""
    left = rows_max
    for each in changes.files:
        if each.type == "folder":
            continue
        view = view_file(workspace, changes, each, split=split, is_loaded=left > 0, clean=clean)
        left -= sum(len(hunk.rows) for hunk in view.hunks) + 2
        yield view


def view_file(
    workspace: Workspace,
    changes: Changes,
    change: FileChange,
    *,
    split: bool,
    is_loaded: bool = True,
    clean: Callable[[str], str] | None = None,
) -> FileView:
    """One file of some changes."""
    letter = {"added": "A", "deleted": "D"}.get(change.status, "M")
    lines = [hunk for hunk in change.hunks if hunk.kind == "lines"]
    added = sum(len(hunk.added) for hunk in lines) if lines else None
    removed = sum(len(hunk.removed) for hunk in lines) if lines else None
    plain = FileView(change.path, change.status, letter, added, removed, is_loaded=False)
    if not is_loaded:
        return plain
    if clean is not None:
        cleaned = tuple(_cleaned(hunk, clean) for hunk in change.hunks[: _HUNKS_MAX + 1])
        change = replace(change, hunks=cleaned + change.hunks[_HUNKS_MAX + 1 :])
    if lines:
        hunks = _hunks(change, split=split)
        more = len(change.hunks) - len(hunks)
        return FileView(change.path, change.status, letter, added, removed, hunks=hunks, more_hunks=more)
    return _whole(workspace, changes, change, plain, clean)


def _hunks(change: FileChange, *, split: bool) -> list[HunkView]:
    found = []
    shown_until = 0  # the last line of the new text that is on the page
    left = FILE_ROWS_MAX
    shown = change.hunks[: _HUNKS_MAX + 1]
    for at, hunk in enumerate(shown[:_HUNKS_MAX]):
        if left <= 0 and at:
            break
        if hunk.kind != "lines":
            found.append(HunkView(hunk.id, hunk.kind, _permissions(change), []))
            continue
        following = next((each for each in shown[at + 1 :] if each.kind == "lines"), None)
        until = following.after[0] - 1 if following and following.added else following.after[0] if following else None
        rows = _rows(hunk, shown_until, until, change.path, left)
        shown_until = max([shown_until, *(row.new.number for row in rows if row.new)])
        cut = rows[:left]
        left -= len(cut)
        more = len(hunk.removed) + len(hunk.added) - sum(row.kind != "same" for row in cut)
        found.append(HunkView(hunk.id, "lines", _title(hunk), _side_by_side(cut) if split else cut, more))
    return found


def _permissions(change: FileChange) -> str:
    before, after = change.mode_before or 0, change.mode_after or 0
    was, is_now = bool(before & 0o100), bool(after & 0o100)
    note = "" if was == is_now else ", now executable" if is_now else ", no longer executable"
    return f"permissions {before & 0o7777:o} → {after & 0o7777:o}{note}"


def _title(hunk: Hunk) -> str:
    """The place of a hunk, as git writes it."""
    return f"@@ -{hunk.before[0]},{hunk.before[1]} +{hunk.after[0]},{hunk.after[1]} @@"


def _rows(hunk: Hunk, shown_until: int, until: int | None, path: str, limit: int) -> list[DiffRow]:
    """The lines of a hunk and around it, without those that another hunk shows."""
    removed, added = hunk.removed[: limit + 1], hunk.added[: limit + 1]
    old_first = hunk.before[0] if hunk.removed else hunk.before[0] + 1
    new_first = hunk.after[0] if hunk.added else hunk.after[0] + 1
    old_lines = colour_lines([*hunk.leading, *removed], path)
    new_lines = colour_lines([*hunk.leading, *added, *hunk.trailing], path)
    rows = []
    before = len(hunk.leading)
    for at in range(before):
        number = new_first - before + at
        if number > shown_until:
            rows.append(DiffRow("same", Cell(old_first - before + at, new_lines[at]), Cell(number, new_lines[at])))
    rows += [DiffRow("removed", Cell(old_first + at, text), None) for at, text in enumerate(old_lines[before:])]
    added_lines = new_lines[before : before + len(added)]
    rows += [DiffRow("added", None, Cell(new_first + at, text)) for at, text in enumerate(added_lines)]
    for at, text in enumerate(new_lines[before + len(added) :]):
        number = new_first + len(hunk.added) + at
        if until is None or number <= until:
            rows.append(DiffRow("same", Cell(old_first + len(hunk.removed) + at, text), Cell(number, text)))
    return rows


def _side_by_side(rows: Sequence[DiffRow]) -> list[DiffRow]:
    """Removed lines beside the added ones that follow them."""
    found: list[DiffRow] = []
    removed: list[DiffRow] = []
    added: list[DiffRow] = []

    def flush() -> None:
        for old, new in zip_longest(removed, added):
            kind = "both" if old and new else "removed" if old else "added"
            found.append(DiffRow(kind, old.old if old else None, new.new if new else None))
        removed.clear()
        added.clear()

    for row in rows:
        if row.kind == "same":
            flush()
            found.append(row)
        else:
            (removed if row.kind == "removed" else added).append(row)
    flush()
    return found


def _cleaned(hunk: Hunk, clean: Callable[[str], str]) -> Hunk:
    def cleaned(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(clean, lines))

    before, after = cleaned(hunk.removed), cleaned(hunk.added)
    return replace(hunk, removed=before, added=after, leading=cleaned(hunk.leading), trailing=cleaned(hunk.trailing))


def _whole(
    workspace: Workspace, changes: Changes, change: FileChange, plain: FileView, clean: Callable[[str], str] | None
) -> FileView:
    """A file that came or went as a whole, or that has no lines to compare."""
    hunk = change.hunks[0] if change.hunks else None
    sides = [(changes.from_id, change.mode_before), (changes.to_id, change.mode_after)]
    sizes: list[int | None] = []
    texts: list[list[str] | None] = []
    for ref, mode in sides:
        size, lines = (None, None) if mode is None else _content(workspace, ref, change.path)
        sizes.append(size)
        texts.append(lines)
    if hunk is not None and hunk.kind == "mode":
        view = HunkView(hunk.id, "mode", _permissions(change), [])
        return FileView(plain.path, plain.status, plain.letter, None, None, hunks=[view])
    if change.path.lower().endswith(_IMAGE_SUFFIXES):
        image = (
            changes.from_id if sizes[0] is not None else None,
            (changes.to_id or NOW) if sizes[1] is not None else None,
        )
        views = [HunkView(hunk.id, "whole", _sizes(sizes), [])] if hunk else []
        return FileView(plain.path, plain.status, plain.letter, None, None, hunks=views, image=image)
    lines = texts[1] if change.status == "added" else texts[0] if change.status == "deleted" else None
    if lines is None or hunk is None:
        views = [HunkView(hunk.id, "whole", _sizes(sizes), [])] if hunk else []
        note = "" if hunk else "Only its times or other metadata differ."
        if hunk and change.status == "modified" and max(filter(None, sizes), default=0) > _WHOLE_MAX_BYTES:
            note = "Too large to be compared line by line."
        return FileView(plain.path, plain.status, plain.letter, None, None, note, views)
    kind = "added" if change.status == "added" else "removed"
    lines = lines if clean is None else [clean(line) for line in lines]
    rows = []
    for number, text in enumerate(colour_lines(lines[:FILE_ROWS_MAX], change.path), 1):
        cell = Cell(number, text)
        rows.append(DiffRow(kind, None, cell) if kind == "added" else DiffRow(kind, cell, None))
    title = "new file" if kind == "added" else "deleted file"
    view = HunkView(hunk.id, "whole", f"{title}, {_sizes(sizes)}", rows, max(len(lines) - FILE_ROWS_MAX, 0))
    added, removed = (len(lines), 0) if kind == "added" else (0, len(lines))
    return FileView(plain.path, plain.status, plain.letter, added, removed, hunks=[view])


def _content(workspace: Workspace, ref: str | None, path: str) -> tuple[int | None, list[str] | None]:
    """The size of a file, and its lines if it is a text of moderate size; of the folder as it is now without `ref`."""
    try:
        if ref is None:
            return _content_now(workspace, path)
        found = workspace.file(ref, path)
        if found.size_bytes is None or found.size_bytes > _WHOLE_MAX_BYTES:
            return found.size_bytes, None
        return found.size_bytes, _lines_of(found.read())
    except HoldfastError:
        return None, None


def _content_now(workspace: Workspace, path: str) -> tuple[int | None, list[str] | None]:
    try:
        status, data = read_now(path, os.fspath(workspace.path))
    except OSError:  # not allowed, or gone meanwhile
        return None, None
    is_small = data is not None and status.st_size <= _WHOLE_MAX_BYTES
    return status.st_size, _lines_of(data) if data is not None and is_small else None


def _lines_of(data: bytes) -> list[str] | None:
    return None if b"\0" in data[:8000] else data.decode("utf-8", "surrogateescape").splitlines()


def _sizes(sizes: Sequence[int | None]) -> str:
    from holdfast.web.rendering import size

    before, after = sizes
    if before is None or after is None:
        return size(after if before is None else before) or "no content to show"
    return f"{size(before)} → {size(after)}"


def image_type(data: bytes) -> str | None:
    """The type of a picture that every browser shows and that contains no script; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), None)
