"""How turns and the files that changed in them look in `holdfast log`. Loads no click."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli import render, streams, values

if TYPE_CHECKING:
    from holdfast.location import Group, Page
    from holdfast.model import LineCount, PathChange

_PATHS_SHOWN = 4
_YOU = "you"
_NONE = "–"


def print_groups(groups: Sequence[Group], *, every_path: bool) -> None:
    """Print each group: its newest checkpoint, who and when, what changed; what it was about; the changed files."""
    heads = []
    for group in groups:
        newest = values.cell(group.items[0].cells[0], "text") if group.items else _NONE
        when, by = values.cell(group.when, "time"), render.escape(group.by or _YOU)
        heads.append((newest, by, when))
    widths = [max((len(head[at]) for head in heads), default=0) for at in range(3)]
    indent = " " * (widths[0] + 2)
    width = streams.terminal_size()[0] if streams.is_terminal(sys.stdout) else 0
    for group, head in zip(groups, heads, strict=True):
        cells = [f"{cell:<{width}}" for cell, width in zip(head, widths, strict=True)]
        parts = [
            f"turn {group.number}" if group.number is not None else "",
            _figures(group),
            f"{len(group.items)} checkpoints" if len(group.items) > 1 else "",
        ]
        parts.append(values.cell(group.marks, "marks"))
        line = "  ".join([render.paint(cells[0], "cyan"), *cells[1:], ", ".join(filter(None, parts))])
        streams.answer(render.cut(line, width) if width else line)
        if group.title:
            title = render.first_line(group.title)
            title = render.cut(title, width - len(indent)) if width else title
            streams.answer(indent + render.paint(title, "bold"))
        if every_path:
            _print_changes(group.changes, indent)
        elif group.changes:
            shown, more = [named(each) for each in group.changes[:_PATHS_SHOWN]], group.files - _PATHS_SHOWN
            shown += [f"… {more:,} more"] if more > 0 else []
            line = indent + ", ".join(shown)
            is_wide = width and render.display_width(line) > width
            streams.answer("\n".join(indent + each for each in shown) if is_wide else line)


def print_with_changes(page: Page) -> None:
    """Print the rows of a page one by one, each with every file that changed."""
    from holdfast.model import LineCount, PathChange

    for item in page.items:
        streams.answer(render.paint(values.line(page.columns, item.cells), "bold"))
        changes = [
            PathChange(
                each["status"], each["path"], each.get("old_path", ""), LineCount(each["added"], each["removed"])
            )
            for each in item.document["changes"]
        ]
        _print_changes(changes, "    ")


def _figures(group: Group) -> str:
    files = render.count(group.files, "file") if group.files else "no files"
    return f"{files} {_lines(group.lines)}".rstrip()


def _print_changes(changes: Sequence[PathChange], indent: str) -> None:
    for each in changes:
        streams.answer(f"{indent}{named(each)}  {_lines(each.lines)}".rstrip())


def named(change: PathChange, *, colour: bool = True) -> str:
    """A changed path with its letter."""
    path = f"{render.escape(change.old)} → {render.escape(change.path)}" if change.old else render.escape(change.path)
    letter = change.letter
    if letter and colour:
        letter = render.paint(letter, values.STATUS_COLOURS[letter])
    return f"{letter} {path}".lstrip()


def _lines(lines: LineCount) -> str:
    return "" if lines.added is None or lines.removed is None else values.line_count(lines)
