"""What a location answers besides a page of a list: plain values, which every face can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.location import Capability, Column, Item

if TYPE_CHECKING:
    from holdfast.model import LineCount


class Field(NamedTuple):
    """A labelled value."""

    label: str
    value: Any
    form: str = "text"


class Details(NamedTuple):
    """One checkpoint in full."""

    id: str
    fields: Sequence[Field]
    document: dict[str, Any]
    state: Any = None
    """A state to show below the fields, in the form `value`."""
    lines: Sequence[str] = ()
    """Shown in place of the fields."""
    missing: Mapping[str, str] = {}
    """What it does not contain although it should, and why."""
    notes: Sequence[str] = ()
    is_raw: bool = False
    """Whether the document alone is what was asked for."""


class Table(NamedTuple):
    """Rows of cells."""

    columns: Sequence[Column]
    rows: Sequence[tuple[Any, ...]]


class Changed(NamedTuple):
    """One place in which two states differ; `before` and `after` in the form `value`."""

    path: str
    kind: str
    """`added`, `removed` or `changed`."""
    before: Any = None
    after: Any = None


class Comparison(NamedTuple):
    """What differs between two checkpoints: as a patch, as a table, as single values, or several of these."""

    document: dict[str, Any]
    patch: str = ""
    """A unified diff. Its bytes matter: a program may apply it."""
    table: Table | None = None
    changes: Sequence[Changed] = ()
    notes: Sequence[tuple[str, Sequence[str] | Mapping[str, str]]] = ()
    """A title, and what it is about."""
    title: str = ""
    """What is compared."""
    summary: tuple[int, str, LineCount] | None = None
    """Below the table: how many of what differ, and how many lines they have gained and lost."""


class Verification(NamedTuple):
    """What reading everything found."""

    ok: bool
    read: Sequence[tuple[int, str]]
    """How many of what: `(3, "checkpoint")`."""
    bytes_read: int | None
    """None if it was not counted."""
    problems: Sequence[str]
    document: dict[str, Any]
    notes: Sequence[str] = ()


class UsageReport(NamedTuple):
    """What takes space."""

    items: Sequence[dict[str, Any]]
    """The checkpoints, or groups of them, that take most: the largest first, as JSON."""
    more: int
    """How many more there are, for a greater limit."""
    fields: Sequence[Field]
    tables: Sequence[Table]
    document: dict[str, Any]
    notes: Sequence[str] = ()
    is_cut: bool = False
    """Whether a greater limit shows more."""


class PrunePlan(NamedTuple):
    """What a policy deletes, and why the rest stays. `Location.prune` deletes nothing that is not in it."""

    removed: Sequence[Item]
    columns: Sequence[Column]
    kept: Mapping[str, str]
    """By id: why it stays."""
    bytes_freed: int | None
    """About how much; None if that is not known before."""
    document: dict[str, Any]
    own: Any = None
    """For the location itself."""
    notes: Sequence[str] = ()


class PruneResult(NamedTuple):
    """What a prune deleted."""

    removed: Sequence[Item]
    bytes_freed: int | None
    document: dict[str, Any]
    notes: Sequence[str] = ()


class Description(NamedTuple):
    """What is at an address."""

    kind: str
    title: str
    """What it is, in words: `a flow store`."""
    address: str
    """Without a password."""
    capabilities: frozenset[Capability]
