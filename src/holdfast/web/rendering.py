"""How values look on a page. All text is escaped here, for HTML and for whatever could hide or reorder it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request

from holdfast import __version__
from holdfast.errors import Damaged
from holdfast.escaping import escape
from holdfast.location import Column
from holdfast.model.documents import short
from holdfast.web.security import ServerKeys

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEPS = ((60, "s", 1), (3600, "min", 60), (86_400, "h", 3600), (86_400 * 14, "d", 86_400))
_FIRST_LINE_CHARS = 300


class Templates:
    """The templates, with what they can use."""

    def __init__(self, keys: ServerKeys, *, read_only: bool) -> None:
        self._environment = Environment(
            loader=PackageLoader("holdfast.web"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "size": size, "count": count, "duration": duration, "ago": ago, "clock": clock, "day": day, "iso": iso,
            "as_address": as_address, "short": short,
            "first_line": first_line, "hidden": hidden, "lines": lines, "filled": filled_columns,
            "imperative": imperative, "utc": utc,
            "pretty": lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str),
            "thousands": lambda number: f"{number:,}",
        }  # fmt: skip
        self._environment.globals |= {"url": url, "read_only": read_only, "csrf": keys.csrf, "version": __version__}

    def load(self, *templates: str) -> None:
        """Compile templates before they are needed."""
        for each in templates:
            self._environment.get_template(each)

    def page(self, template: str, request: Request, values: Mapping[str, Any]) -> str:
        """Render a page."""
        path, query = str(request.scope["path"]), request.scope["query_string"].decode("latin-1")
        here = quote(path) + (f"?{query}" if query else "")
        as_json = f"{quote(path)}.json" + (f"?{query}" if query else "")
        return self.text(template, {"here": here, "as_json": as_json, "path": path, **values})

    def text(self, template: str, values: Mapping[str, Any]) -> str:
        """Render what is no page of the server."""
        return str(self._environment.get_template(template).render(**values))


def visible(value: Any) -> Any:
    """Show what could move, hide, reorder or fake text as an escape; markup is ours already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape(value)
    return value


def lines(text: str) -> Markup:
    """A text of several lines: these and its tabs stay as they are."""
    return Markup.escape(escape(text, keep="\n\t"))


def url(*parts: str, **query: Any) -> Markup:
    """The address of a page. Empty values are left out; a list stands for several."""
    pairs = []
    for name, value in query.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each not in (None, ""):
                pairs.append((name.rstrip("_"), str(each)))
    path = "/" + "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)
    text = path + (f"?{urlencode(pairs, errors='surrogateescape')}" if pairs else "")
    return Markup(text.replace("&", "&amp;"))


def address(*parts: str, **query: Any) -> str:
    """The same for a response header."""
    return str(url(*parts, **query)).replace("&amp;", "&")


def as_address(text: str) -> Markup:
    """An address that `address` made, for an attribute."""
    return Markup(text.replace("&", "&amp;"))


def hidden(text: str) -> str:
    """A text for the value of a field, which `shown` has back exactly."""
    return quote(text, safe="", errors="surrogateescape")


def size(count_bytes: int | None) -> str:
    """A size in the unit that fits."""
    if count_bytes is None:
        return ""
    number = float(count_bytes)
    for unit in _UNITS:
        if number < 1024 or unit == _UNITS[-1]:
            return f"{number:,.0f} {unit}" if unit == "B" or number >= 100 else f"{number:,.1f} {unit}"
        number /= 1024
    raise Damaged("unreachable")


def duration(seconds: float | None) -> str:
    """A time span in the units that fit; empty if it is unknown."""
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"


def filled_columns(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[tuple[int, Column]]:
    """The columns that have a value in some row, each with its number."""
    return [
        (at, each)
        for at, each in enumerate(columns)
        if at == 0 or any(row[at] not in (None, "", (), []) for row in rows)
    ]


def ago(moment: Any) -> str:
    """How long ago. A time that others gave may be none, or have no zone: then it is taken as UTC."""
    if moment is None:
        return "never"
    if not isinstance(moment, datetime):
        return str(moment)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    seconds = max((datetime.now(UTC) - moment).total_seconds(), 0)
    for limit, unit, divisor in _STEPS:
        if seconds < limit:
            return f"{int(seconds // divisor)} {unit} ago" if seconds >= 5 else "now"
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")


def day(moment: datetime) -> str:
    local = moment.astimezone()
    gap = (datetime.now().astimezone().date() - local.date()).days
    return {0: "Today", 1: "Yesterday"}.get(gap, f"{local:%A}, {local.day} {local:%B %Y}")


def iso(moment: datetime) -> str:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def imperative(words: str) -> str:
    """What was done, as what to do."""
    verb, space, rest = words.partition(" ")
    return {"Took": "Take", "Restored": "Restore"}.get(verb, verb) + space + rest


def utc(moment: datetime) -> str:
    """A time for a reader elsewhere."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def first_line(text: str) -> str:
    """The first line that says something, cut where it is long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _FIRST_LINE_CHARS else line[:_FIRST_LINE_CHARS] + "…"
