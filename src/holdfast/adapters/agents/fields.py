"""Reading an event leniently: unknown fields are passed over, and a missing or odd one is empty."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 32 << 20
"""Input above this is not read as JSON; what can be told of it is told by its beginning and its end."""
_TEXT_MAX = 4096
_LABEL_MAX = 100
_FIELD = re.compile(rb'"(\w{2,40})"\s*:\s*"((?:[^"\\]|\\.){0,4000})"')
_EDGE_BYTES = 64 << 10


class Fields:
    """The fields of an event, whatever came."""

    def __init__(self, values: Mapping[str, Any], *, is_whole: bool = True) -> None:
        self._values = values
        self.is_whole = is_whole
        """False when the input was no JSON object, and this is what could be made out."""

    @classmethod
    def parse(cls, data: bytes) -> Fields:
        """Read an event; never fails. Of what is no JSON object, texts near its edges are taken by their names."""
        try:
            if len(data) <= MOST_BYTES:
                values = json.loads(data.decode("utf-8-sig", "surrogateescape"), strict=False)
                if isinstance(values, dict):
                    return cls(values)
        except (ValueError, RecursionError):
            pass
        return cls(_salvaged(data), is_whole=False)

    def named(self, event: str) -> Fields:
        """The same with the name of the event, unless it says one itself."""
        return Fields({"hook_event_name": event, **self._values}, is_whole=self.is_whole)

    def text(self, *names: str) -> str:
        """The first of these that is a text, or a number as text."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str) and value:
                return plain(value, _TEXT_MAX)
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)[:_TEXT_MAX]
        return ""

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._values.get(name)
        return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()

    def count(self, name: str) -> int | None:
        """How many there are in a list; None where there is no list."""
        value = self._values.get(name)
        return len(value) if isinstance(value, list) else None

    def flag(self, name: str) -> bool:
        """Whether a field is true."""
        return self._values.get(name) is True

    def inner(self, *names: str) -> Fields:
        """The fields of an object within this one; one that is spelled as a text of JSON is read."""
        for name in names:
            value = self._values.get(name)
            if isinstance(value, str) and value.startswith("{"):
                try:
                    value = json.loads(value)
                except (ValueError, RecursionError):
                    continue
            if isinstance(value, dict):
                return Fields(value)
        return Fields({})


def plain(text: str, most: int = _LABEL_MAX) -> str:
    """A text that can be stored and shown: no half characters, no control characters, not too long."""
    text = text[:most].encode("utf-8", "replace").decode()
    return "".join(each if each.isprintable() else " " for each in text)


def label(text: str) -> str:
    """The first line of a text, short."""
    line = next((line for line in text.strip().splitlines() if line.strip()), "")
    return plain(line[: _LABEL_MAX - 1] + "…" if len(line) > _LABEL_MAX else line)


def _salvaged(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for edge in (data[-_EDGE_BYTES:], data[:_EDGE_BYTES]):  # what stands first counts
        for match in reversed(list(_FIELD.finditer(edge))):
            try:
                found[match[1].decode()] = json.loads(b'"%s"' % match[2])
            except ValueError:
                continue
    return found
