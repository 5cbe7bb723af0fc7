"""States of a flow store as trees that open piece by piece: of a value, only what a page shows of it.

The server decodes small states itself. Large ones are decoded in a process that ends afterwards (`location_process`),
and only the values of this module come back from it, which is why they can be JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from holdfast.errors import NotFound
from holdfast.location import Comparison, Details, Field

CHILDREN_MAX = 100
CHANGES_MAX = 500
_TEXT_MAX_CHARS = 2_000
_WORD_MAX_CHARS = 10_000


class StateNode(NamedTuple):
    """A value of a state, closed: its children are asked for when it is opened."""

    name: str
    at: str
    """Its place: the numbers of the children on the way to it."""
    text: str
    children: int


class StateView(NamedTuple):
    """Some children of a value, and how many follow them."""

    nodes: Sequence[StateNode]
    more: int


class DetailsView(NamedTuple):
    """A checkpoint as a page shows it."""

    id: str
    fields: Sequence[Field]
    state: StateView | None
    missing: dict[str, str]


class ChangesView(NamedTuple):
    """What differs between two states, as a page shows it."""

    title: str
    changes: Sequence[tuple[str, str, str, str]]
    """The path, what happened to it, and the values before and after."""
    more: int
    notes: Sequence[Any]


def view(value: Any, at: str, start: int) -> StateView:
    """Some children of a value, each closed."""
    return StateView(list(_children(value, at, start)), max(_length(value) - start - CHILDREN_MAX, 0))


def value_at(value: Any, at: str) -> Any:
    """The value at a place. NotFound if the state has no such place."""
    for step in at.split(".") if at else []:
        found: Sequence[Any] = ()
        if step.isascii() and step.isdecimal() and len(step) < 12:
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            found = list(islice(inner, int(step), int(step) + 1))
        if not found:
            raise NotFound("the state has no such place", hint="Load the page again.")
        value = found[0]
    return value


def summarize(details: Details) -> DetailsView:
    """A checkpoint without what a page does not show."""
    fields = [
        Field(each.label, _shown(each.value, each.form), each.form)
        for each in details.fields
        if each.value not in (None, "", (), [], {})
    ]
    tree = view(details.state, "", 0) if details.state is not None else None
    return DetailsView(details.id, fields, tree, dict(details.missing))


def summarize_changes(found: Comparison) -> ChangesView:
    """What differs between two states, without what a page does not show."""
    shown = [
        (each.path, each.kind, short_text(each.before), short_text(each.after)) for each in found.changes[:CHANGES_MAX]
    ]
    return ChangesView(found.title, shown, max(len(found.changes) - CHANGES_MAX, 0), list(found.notes))


def details_of(told: Sequence[Any]) -> DetailsView:
    """The view that another process made, of its JSON."""
    name, fields, tree, missing = told
    return DetailsView(name, [_field(*each) for each in fields], None if tree is None else view_of(tree), missing)


def view_of(told: Sequence[Any]) -> StateView:
    """The same for a part of a tree."""
    nodes, more = told
    return StateView([StateNode(*each) for each in nodes], more)


def changes_of(told: Sequence[Any]) -> ChangesView:
    """The same for a comparison."""
    title, changes, more, notes = told
    return ChangesView(title, [(path, kind, before, after) for path, kind, before, after in changes], more, notes)


def short_text(value: Any) -> str:
    """A value in one line: its content, or how much there is of it."""
    if isinstance(value, dict):
        return f"{{{len(value):,}}}"
    if isinstance(value, list | tuple):
        return f"[{len(value):,}]"
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= _TEXT_MAX_CHARS else f"{text[:_TEXT_MAX_CHARS]} … {len(text):,} characters"


def _shown(value: Any, form: str) -> Any:
    """The value of a field, as short as a page shows it."""
    if form in ("value", "values"):
        return str(value)[:_TEXT_MAX_CHARS]
    if form == "time" and isinstance(value, datetime):
        return value
    return value[:_WORD_MAX_CHARS] if isinstance(value, str) else value


def _field(label: str, value: Any, form: str) -> Field:
    if form == "time" and isinstance(value, str):
        try:
            return Field(label, datetime.fromisoformat(value), form)
        except ValueError:  # a time of another kind is shown as it is
            pass
    return Field(label, value, form)


def _children(value: Any, at: str, start: int) -> Iterator[StateNode]:
    if isinstance(value, dict):
        pairs: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, list | tuple):
        pairs = iter(enumerate(value))
    else:
        yield StateNode("", at, short_text(value), 0)
        return
    for number, (name, each) in enumerate(islice(pairs, start, start + CHILDREN_MAX), start):
        yield StateNode(
            _short_name(str(name)), f"{at}.{number}" if at else str(number), short_text(each), _length(each)
        )


def _short_name(name: str) -> str:
    return name if len(name) <= _TEXT_MAX_CHARS else f"{name[:_TEXT_MAX_CHARS]} … {len(name):,} characters"


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | tuple) else 0
