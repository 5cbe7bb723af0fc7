"""A state for people: indented, with a line for each value that fits on one. `--json` is what has all of it."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta, timezone
from typing import Any, NamedTuple

from holdfast.cli import render
from holdfast.serde.types import tag_of

_LINE_CHARS = 100
_INDENT = "  "
_BYTES_CHARS = 60
_DIGITS_BITS = 10_000


class _TooLong(Exception):
    """It does not fit on the line."""


class Shown(NamedTuple):
    """A value of `lossless`, opened one level."""

    kind: str
    """What it is, where that is not seen: the id of a class, the name of a type."""
    text: str = ""
    """The text of a value without items."""
    items: list[Any] | None = None
    pairs: list[tuple[Any, Any]] | None = None


def lines(value: Any, label: str = "", *, depth: int = 0) -> Iterator[str]:
    """The lines of what `lossless` made."""
    start = _INDENT * depth + (f"{label}: " if label else "")
    shown = _opened(value)
    fits = inline(value, _LINE_CHARS - len(start))
    is_whole = not label and shown.pairs  # the state itself: a line for each name
    if not (shown.items or shown.pairs) or not (is_whole or fits.endswith("…")):
        yield start + (fits if shown.items or shown.pairs else _leaf(shown))
        return
    if start or shown.kind:
        yield (start + shown.kind).rstrip()
    below = depth + (1 if start or shown.kind else 0)
    numbered = ((f"[{at}]", each) for at, each in enumerate(shown.items or ()))
    for own, each in ((_key(key), each) for key, each in shown.pairs) if shown.pairs else numbered:
        yield from lines(each, own, depth=below)


def inline(value: Any, most: int) -> str:
    """A value on one line, with an ellipsis where it would be longer."""
    pieces: list[str] = []
    try:
        _write(value, pieces, most)
    except _TooLong:
        return "".join(pieces)[: max(most - 1, 1)] + "…"
    return "".join(pieces)


def _write(value: Any, pieces: list[str], most: int) -> None:
    shown = _opened(value)
    if shown.items is None and shown.pairs is None:
        _add(_leaf(shown), pieces, most)
        return
    begin, end = "{}" if shown.pairs is not None else "[]"
    _add(f"{shown.kind} {begin}" if shown.kind else begin, pieces, most)
    inside = [(f"{_key(key)}: ", each) for key, each in shown.pairs or ()]
    for at, (before, each) in enumerate(inside or [("", each) for each in shown.items or ()]):
        _add((", " if at else "") + before, pieces, most)
        _write(each, pieces, most)
    _add(end, pieces, most)


def _add(text: str, pieces: list[str], most: int) -> None:
    pieces.append(text)
    if len(text) > most or sum(map(len, pieces)) > most:
        raise _TooLong


def _opened(value: Any) -> Shown:
    if isinstance(value, list):
        return Shown("", items=value)
    if not isinstance(value, dict):
        return Shown("", json.dumps(value, ensure_ascii=False))
    mark = tag_of(value)
    if mark is None:
        return Shown("", pairs=list(value.items()))
    inner = value[mark]
    try:
        return _of_kind(mark[1:], inner)
    except (TypeError, ValueError, LookupError, AttributeError):  # stored bytes may be anything
        return Shown(mark[1:], json.dumps(inner, ensure_ascii=False))


def _of_kind(kind: str, inner: Any) -> Shown:
    if kind == "dict":
        return Shown("", pairs=[(key, each) for key, each in inner])
    if kind == "object":
        class_id, version, data = inner
        named = f"{class_id} (version {version})" if version != 1 else class_id
        opened = _opened(data)
        return opened._replace(kind=f"{named} {opened.kind}".rstrip())
    if kind == "bytes":
        size = len(base64.b64decode(inner))
        return Shown(render.count(size, "byte"), inner if len(inner) <= _BYTES_CHARS else inner[:_BYTES_CHARS] + "…")
    if kind in ("tuple", "set", "frozenset"):
        return Shown(kind, items=list(inner))
    if kind in ("map", "ordered_dict", "counter"):
        return Shown("" if kind == "map" else kind, pairs=list(zip(inner[::2], inner[1::2], strict=True)))
    if kind in _KINDS:
        return Shown(kind, _KINDS[kind](inner))
    return Shown(kind, json.dumps(inner, ensure_ascii=False))


def _leaf(shown: Shown) -> str:
    empty = "{}" if shown.pairs is not None else "[]" if shown.items is not None else shown.text
    return render.escape(f"{shown.kind} {empty}".strip())


def _key(key: Any) -> str:
    if not isinstance(key, str):
        return inline(key, _LINE_CHARS)
    plain = key.isprintable() and key == key.strip() and key and not set(key) & set(':,"{}[]')
    return key if plain else render.escape(json.dumps(key, ensure_ascii=False))


# types that JSON lacks, as `holdfast.serde.to_json` writes them


def _int(inner: Any) -> str:
    number = int.from_bytes(_raw(inner), "big", signed=True)
    return str(number) if number.bit_length() <= _DIGITS_BITS else hex(number)  # Python refuses longer ones


def _uuid(inner: Any) -> str:
    return str(uuid.UUID(bytes=_raw(inner)))


def _raw(inner: Any) -> bytes:
    return base64.b64decode(inner["$bytes"])


def _moment(inner: Any) -> str:
    text, _, zone = inner
    if zone is None:
        return str(text)
    if isinstance(zone, str):
        return f"{text} {zone}"
    return f"{text} {timezone(timedelta(microseconds=zone[0]))}"


def _span(inner: Any) -> str:
    days, seconds, micros = inner
    return str(timedelta(days, seconds, micros))


def _array(inner: Any) -> str:
    dtype, shape = inner[:2]
    return f"of {dtype}, {' × '.join(map(str, shape))}"


_KINDS: dict[str, Callable[[Any], str]] = {
    "int": _int,
    "float": str,
    "decimal": str,
    "uuid": _uuid,
    "date": str,
    "datetime": _moment,
    "time": _moment,
    "timedelta": _span,
    "path": lambda inner: str(inner[1]),
    "array": _array,
    "ip": lambda inner: str(inner[1]),
    "pattern": lambda inner: str(inner[0]),
    "range": lambda inner: ", ".join(map(str, inner)),
}
