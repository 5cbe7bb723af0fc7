"""`lines-left.json`: where lines of purged files remain in states and records, for a later `purge --lines`.

Only positions are stored, never a line: once a state is deleted, this file does not reveal its content.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast import durable
from holdfast.durable import disk
from holdfast.errors import HoldfastError
from holdfast.model import JSON
from holdfast.workspace.stored.record import to_json
from holdfast.workspace.stored.repository import Repository
from holdfast.workspace.stored.state import read_forms
from holdfast.workspace.stored.tagged_json import texts_of

FILE = "lines-left.json"
MESSAGE, METADATA = "(message)", "(metadata)"


class LinePosition(NamedTuple):
    """The position of a line: in which state, in which of its texts (by number), and where in it."""

    where: str
    """The name of a state, `(message)` or `(metadata)`."""
    number: int
    start: int
    end: int
    crc: int
    """A checksum, to see whether the line is still there."""


class LinesLeft(NamedTuple):
    """Lines of purged files that remain in states or records."""

    paths: tuple[str, ...]
    places: Mapping[LinePosition, Sequence[str]]
    """The checkpoints with each position."""


def place_of(where: str, number: int, start: int, end: int, text: str) -> LinePosition:
    """Return the position of a line in a text."""
    return LinePosition(where, number, start, end, _crc(text[start:end]))


def read_lines_left(repository: Repository) -> list[LinesLeft]:
    """Read the file; empty if it is missing or unreadable."""
    try:
        entries = durable.parse_json((repository.own / FILE).read_bytes())
        return [
            LinesLeft(tuple(entry["paths"]), {LinePosition(*place): list(ids) for *place, ids in entry["places"]})
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_lines_left(repository: Repository, entries: Iterable[LinesLeft]) -> None:
    """Rewrite the file; remove it if there is nothing to write. Needs the store's lock."""
    path = repository.own / FILE
    rows: list[JSON] = [
        {"paths": [*entry.paths], "places": [[*place, [*ids]] for place, ids in entry.places.items()]}
        for entry in entries
        if entry.places
    ]
    if rows:
        durable.write_atomically(path, to_json(rows))
    elif path.exists():
        disk().unlink(str(path))


def read_lines(repository: Repository, entry: LinesLeft) -> set[str]:
    """Read the lines themselves, as far as they are still there."""
    found = set()
    texts: dict[tuple[str, str], list[str]] = {}
    for place, ids in entry.places.items():
        for checkpoint_id in reversed(ids):
            key = (checkpoint_id, place.where)
            if key not in texts:
                texts[key] = list(_texts(repository, *key))
            text = texts[key][place.number] if place.number < len(texts[key]) else ""
            line = text[place.start : place.end]
            if line and _crc(line) == place.crc:
                found.add(line)
                break
    return found


def _texts(repository: Repository, checkpoint_id: str, where: str) -> Iterator[str]:
    row = repository.catalog.by_id(checkpoint_id)
    if row is None:
        return
    try:
        checkpoint = repository.checkpoint(row)
        if where == MESSAGE:
            yield checkpoint.message
        elif where == METADATA:
            yield from texts_of(dict(checkpoint.metadata), False)
        else:
            form = read_forms(repository.objects, repository.contents(checkpoint).state).get(where)
            yield from texts_of(*form) if form else ()
    except HoldfastError:
        return  # `verify` reports it


def _crc(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
