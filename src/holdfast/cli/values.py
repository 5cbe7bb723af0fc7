"""How the values of a location look on a terminal: each in the form that is declared with it.

Loads no click: `holdfast log` uses it, and answers before click would be loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.cli import render, streams
from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.location import Column, Field, Table
    from holdfast.model import LineCount

_VALUE_CHARS = 80
_NUMBERS = ("bytes", "count", "number")
STATUS_COLOURS = {"A": "green", "M": "yellow", "D": "red", "R": "cyan"}
"""Added, modified, deleted, renamed."""


def cell(value: Any, form: str) -> str:
    """A value on one line, escaped."""
    if value is None or value == "":
        return ""
    if form == "time":
        return _time(value)
    if form == "bytes":
        return render.size(value)
    if form == "count":
        return f"{value:,}"
    if form == "number":
        return f"{value:.3g}"
    if form == "line":
        return render.first_line(value)
    if form == "name":
        return name(value)
    if form == "marks":
        return render.escape(" · ".join(filter(None, value)))
    if form == "list":
        return ", ".join(map(name, value))
    if form == "json":
        return render.escape(json.dumps(value))
    if form == "status":
        return render.paint(value, STATUS_COLOURS[value])
    if form == "lines":
        return value if isinstance(value, str) else line_count(value)
    return render.escape(str(value))


def line_count(lines: LineCount) -> str:
    """How many lines a file has gained and lost."""
    if lines.added is None or lines.removed is None:
        return "not shown"
    return f"{render.paint(f'+{lines.added:,}', 'green')} {render.paint(f'-{lines.removed:,}', 'red')}"


def field(value: Any, form: str) -> str:
    """A value of a field, escaped; it may have several lines."""
    if form == "block" and value:
        return "\n".join(render.escape(line) for line in str(value).split("\n"))
    if form == "listing":
        title, items = value
        return "\n".join([render.escape(title), *render.listing(items, indent="")])
    if form == "time" and isinstance(value, datetime) and value.tzinfo is not None:
        return f"{render.local(value)} ({render.ago(value)})"
    if form == "value":
        return state(value) if value else ""
    if form == "values":
        from holdfast.cli import readable  # start-up cost, for states only

        return "\n".join(f"{render.escape(title)}: {readable.inline(each, _VALUE_CHARS)}" for title, each in value)
    return cell(value, form)


def state(value: Any) -> str:
    """The lines of a state."""
    from holdfast.cli import readable  # as above

    try:
        return "\n".join(readable.lines(value))
    except RecursionError:
        raise Refused("the state is nested too deeply to show", hint="Load it in a program.") from None


def fields(found: Sequence[Field]) -> str:
    """Lines of labels and values; the first one names the whole."""
    pairs = [(each.label, field(each.value, each.form)) for each in found]
    return render.fields([(pairs[0][0], render.paint(pairs[0][1], "cyan")), *pairs[1:]]) if pairs else ""


def table(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table, if it has rows."""
    if rows:
        forms = [column.form for column in columns]
        cells = [tuple(map(cell, row, forms)) for row in rows]
        right = [at for at, form in enumerate(forms) if form in _NUMBERS]
        render.table([column.title for column in columns], cells, right=right)


def tables(found: Sequence[Table]) -> None:
    """Print several tables, each below an empty line."""
    for each in found:
        if each.rows:
            streams.answer()
            table(each.columns, each.rows)


def line(columns: Sequence[Column], cells: Sequence[Any]) -> str:
    """The cells of a row without the empty ones, on one line."""
    return "  ".join(filter(None, (cell(each, column.form) for column, each in zip(columns, cells, strict=True))))


def lines(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows as lines with columns, for a list within a text."""
    forms = [column.form for column in columns]
    return render.aligned([tuple(map(cell, row, forms)) for row in rows])


def name(text: str) -> str:
    """A name that a caller chose, as it can be given back; in quotes where its blanks would not be seen."""
    from holdfast.escaping import escape_path

    shown = escape_path(text)
    return f'"{shown}"' if shown != shown.strip() or "  " in shown else shown


def notes(lines: Sequence[str]) -> None:
    """Print lines that are no part of the answer."""
    streams.notes(map(render.escape, lines))


def _time(moment: object) -> str:
    """A time: how long ago on a terminal, where it has a zone; else as it was given."""
    if not isinstance(moment, datetime):
        return render.escape(str(moment))
    try:
        if moment.tzinfo is None:
            return moment.strftime("%Y-%m-%d %H:%M:%S")
        return render.ago(moment) if streams.is_terminal(sys.stdout) else render.local(moment)
    except (OverflowError, ValueError, OSError):  # at the ends of the calendar
        return moment.isoformat()
