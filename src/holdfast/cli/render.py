"""How things look to people: escaped names, tables, colour, sizes, times.

Whatever came from a file name, a message or other stored data passes through `escape` before it is printed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TextIO

from holdfast.cli import streams
from holdfast.escaping import escape as escape

LIST_MAX = 10
MESSAGE_MAX_CHARS = 200

_CELL_MIN_CHARS = 16  # what is left of a column on a narrow terminal, as long as another can give
_CELL_LEAST_CHARS = 6  # of all of them, on one that is narrower still; then the last are left out
_PAINT = r"\x1b\[[0-9;]*m"
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

_OF_DIFFS = (("+++", "bold"), ("---", "bold"), ("diff ", "bold"), ("@@", "cyan"), ("+", "green"), ("-", "red"))


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Colour a text if the stream that it goes to (stdout, unless told) is a terminal."""
    if not streams.has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


def diff_line(line: str, stream: TextIO | None = None) -> str:
    """Return a line of a diff, escaped, and in colour if the stream has it."""
    colour = next((colour for start, colour in _OF_DIFFS if line.startswith(start)), None)
    shown = escape(line, keep="\t")
    return paint(shown, colour, stream) if colour else shown


def first_line(message: str) -> str:
    """Return the first line of a message, escaped, at most `MESSAGE_MAX_CHARS` long."""
    line = message.strip().partition("\n")[0].rstrip("\r")
    return escape(line if len(line) <= MESSAGE_MAX_CHARS else line[: MESSAGE_MAX_CHARS - 1] + "…")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return `1 file`, `2 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def all_stay(kept: int) -> str:
    """Return what a prune that deletes nothing says of the checkpoints that there are."""
    if kept == 1:
        return "the only checkpoint stays"
    return f"all {count(kept, 'checkpoint')} stay" if kept else "there are no checkpoints"


def size(n_bytes: int) -> str:
    """Return a size for people: `512 B`, `1.5 KiB`."""
    if n_bytes < 1024:
        return f"{n_bytes} B"
    value = float(n_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def local(moment: datetime) -> str:
    """Return a time in the local time zone."""
    try:
        moment = moment.astimezone()
    except (OverflowError, ValueError, OSError):
        pass  # at an end of the calendar, where the local time is beyond it
    return moment.isoformat(" ", "seconds")[:19]


def ago(moment: datetime) -> str:
    """Return how long ago a time is, or the time itself where that is more than a day, or lies ahead."""
    age = datetime.now(UTC) - moment
    if timedelta(0) <= age < timedelta(minutes=1):
        return f"{age.seconds} s ago"
    if timedelta(0) <= age < timedelta(hours=1):
        return f"{age.seconds // 60} min ago"
    if timedelta(0) <= age < timedelta(days=1):
        return f"{age.seconds // 3600} h ago"
    return local(moment)[:16]


def listing(items: Iterable[str] | Mapping[str, str], *, indent: str = "    ", cap: int | None = LIST_MAX) -> list[str]:
    """Return one line per path (with its reason, where the items have one), and how many more there are."""
    pairs = list(items.items()) if isinstance(items, Mapping) else [(item, "") for item in items]
    shown = pairs if cap is None else pairs[:cap]
    lines = [f"{indent}{escape(path) or '.'}{f'  ({escape(reason)})' if reason else ''}" for path, reason in shown]
    if len(pairs) > len(shown):
        lines.append(f"{indent}… and {len(pairs) - len(shown):,} more")
    return lines


def note_list(items: Sequence[str] | Mapping[str, str], title: str, *, noun: str = "") -> None:
    """Write a title and the items below it to stderr, with their number before it if `noun` says of what; nothing
    where there are none."""
    if items:
        streams.note(f"{count(len(items), noun)} {title}:" if noun else f"{title}:")
        streams.notes(listing(items))


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Return lines of `label  value`, aligned; a value of several lines stays in its column."""
    rows = [(label, value) for label, value in pairs if value]
    width = max((len(label) for label, _ in rows), default=0) + 2
    pad = "\n" + " " * width
    return "\n".join(f"{paint(f'{label:<{width}}', 'dim')}{pad.join(value.splitlines())}" for label, value in rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print rows of escaped cells in columns, cut to fit on a terminal; no column is empty, and the first never cut.
    The last ones are left out where even so there is no room for them.

    right: the columns of numbers, which end where their heads end.
    """
    used = [at for at in range(len(head)) if any(row[at] for row in rows)]
    cells = [[row[at] for at in used] for row in (head, *rows)]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    if streams.is_terminal(sys.stdout):
        columns = streams.terminal_size()[0]
        while len(widths) > 1 and _least_width(widths) > columns:
            widths.pop()
        used, cells = used[: len(widths)], [row[: len(widths)] for row in cells]
        _narrow(widths, columns)
        cells = [[cut(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    for number, row in enumerate(cells):
        padded = [_padded(cell, width, is_right=at in right) for at, cell, width in zip(used, row, widths, strict=True)]
        if number == 0:
            streams.answer(paint("  ".join(padded).rstrip(), "bold"))
        else:
            first = padded[0] if "\x1b" in padded[0] else paint(padded[0], "cyan")
            streams.answer("  ".join([first, *padded[1:]]).rstrip())


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of escaped cells as lines with columns, without those that are empty."""
    used = [at for at in range(len(rows[0]) if rows else 0) if any(row[at] for row in rows)]
    widths = [max(display_width(row[at]) for row in rows) for at in used]
    lines = ([_padded(row[at], width) for at, width in zip(used, widths, strict=True)] for row in rows)
    return ["  ".join(line).rstrip() for line in lines]


def _padded(cell: str, width: int, *, is_right: bool = False) -> str:
    blank = " " * (width - display_width(cell))
    return blank + cell if is_right else cell + blank


def _least_width(widths: Sequence[int]) -> int:
    return widths[0] + sum(min(each, _CELL_LEAST_CHARS) + 2 for each in widths[1:])


def _narrow(widths: list[int], columns: int) -> None:
    """Take what is too much from the columns between the first and the last, then from the last, then from the rest."""
    excess = sum(widths) + 2 * (len(widths) - 1) - columns
    order = [*reversed(range(2, len(widths) - 1)), len(widths) - 1, 1]
    for least in (_CELL_MIN_CHARS, _CELL_LEAST_CHARS):
        for at in order:
            if excess > 0 and 0 < at < len(widths):
                taken = min(excess, max(widths[at] - least, 0))
                widths[at] -= taken
                excess -= taken


def cut(text: str, width: int, mark: str = "…") -> str:
    """Cut a text to fit into a number of columns; `mark` says that something is missing."""
    if display_width(text) <= width:
        return text
    text = re.sub(_PAINT, "", text)
    while text and display_width(text) > width - len(mark):
        text = text[:-1]
    return text + mark


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if "\x1b" in text:
        text = re.sub(_PAINT, "", text)
    if text.isascii():
        return len(text)
    import unicodedata  # start-up cost, for other scripts only

    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)
