"""Anything that has checkpoints, behind one interface: a folder, a flow store, a training run, an index.

A face (command line, page, MCP server) finds the kind of an address with `kind_of`, opens it with `LocationKind.load`,
asks only for what the kind's `capabilities` name, and shows the plain values that come back. It needs to know nothing
else of a kind. A new kind is one file with a class that has the methods of `Location`, and one line in `KINDS`.

How values are shown to people is declared with them, by one of these forms:

    text     one line of text                    time    a datetime, or the text of one
    line     the first line of a message         bytes   a size
    block    text of several lines               count   a whole number
    name     a name that a caller chose          number  a float
    marks    several words                       list    several names
    json     a JSON value                        value   a JSON value as `holdfast.serde.to_json` writes it
    listing  a title, and the lines below it     values  pairs of a title and a `value`
    status   A, M, D or R, as in git             lines   a `LineCount`, or a word in its place
"""

# No `from __future__ import annotations`: NamedTuple would compile every annotation, at each start of the program.

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import NotFound, Refused
from holdfast.validation import without_driver

if TYPE_CHECKING:
    from datetime import datetime

    from holdfast.location.groups import Group
    from holdfast.location.reports import (
        Changed,
        Comparison,
        Description,
        Details,
        Field,
        PrunePlan,
        PruneResult,
        Table,
        UsageReport,
        Verification,
    )
    from holdfast.model import Progress
    from holdfast.retention import Policy

__all__ = [
    "FOLDER",
    "KINDS",
    "Capability",
    "Changed",
    "Column",
    "Comparison",
    "Description",
    "Details",
    "Field",
    "Group",
    "InvalidOption",
    "Item",
    "Location",
    "LocationKind",
    "Option",
    "Page",
    "PrunePlan",
    "PruneResult",
    "Table",
    "UsageReport",
    "Verification",
    "is_url",
    "kind_of",
    "open_location",
]

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load `reports` when one of its classes is first used: creating them is 5 % of what `log` costs without it."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.location' has no attribute {name!r}")
        if name == "Group":
            from holdfast.location.groups import Group

            return Group
        from holdfast.location import reports

        return getattr(reports, name)


class Capability(StrEnum):
    """What a location can do. A face checks it before it asks."""

    LIST = "list"
    GET = "get"
    DIFF = "diff"
    VERIFY = "verify"
    USAGE = "usage"
    PRUNE = "prune"
    DELETE = "delete"
    PIN = "pin"


class InvalidOption(Refused):
    """An option is missing, does not fit the others, or has an invalid value."""


class Option(NamedTuple):
    """An option that a kind has for some capabilities; given when a location is opened."""

    name: str
    help: str
    of: frozenset[Capability]
    """The capabilities that it is for."""
    metavar: str = ""
    """Empty: a flag."""
    environ: str = ""
    """The environment variable that a face takes the default from."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    form: str = "text"


class Item(NamedTuple):
    """A checkpoint, or a group of them, in a list."""

    id: str
    """What `get`, `delete` and `pin` take."""
    cells: tuple[Any, ...]
    """One for each column of the page."""
    document: dict[str, Any]
    """All that is known of it, as JSON."""


class Page(NamedTuple):
    """A part of a list, newest first."""

    columns: Sequence[Column]
    items: Sequence[Item]
    next: str | None
    """The cursor of the next page; None on the last one."""
    notes: Sequence[str] = ()
    """What else to say, such as what could not be read, or why there are no items."""
    extra: Mapping[str, Any] = {}
    """More of the JSON document."""
    groups: Sequence[Any] = ()
    """The items in groups, each a `Group`, where that was asked for."""


class Location(Protocol):
    """Anything that has checkpoints. A class has the methods of its capabilities; no others are called.

    Raises NotFound, Refused and so on as the rest of the library; InvalidOption if an option is missing or wrong.
    """

    @property
    def capabilities(self) -> frozenset[Capability]: ...
    @property
    def options(self) -> Sequence[Option]: ...
    @property
    def item_columns(self) -> Sequence[Column]:
        """The columns of the items that `find`, `delete` and `pin` return."""
        ...

    def describe(self) -> "Description":
        """What is here; nothing is read for it."""
        ...

    def close(self) -> None: ...

    def list(self, limit: int | None, before: str | None = None) -> Page:
        """A page of at most `limit` items; `before`: the cursor of the page before. Reads no more than it shows."""
        ...

    def get(self, ref: str | None) -> "Details":
        """A checkpoint by what it is called; None: the newest."""
        ...

    def find(self, ref: str) -> Item:
        """The same as an item."""
        ...

    def diff(self, a: str | None, b: str | None) -> "Comparison":
        """What differs between two; without B, as the kind finds useful."""
        ...

    def verify(self, progress: "Progress | None" = None) -> "Verification":
        """Read every byte."""
        ...

    def usage(self, limit: int | None) -> "UsageReport":
        """What takes space, the largest first; at most `limit` of each list."""
        ...

    def default_policy(self) -> "Policy | None":
        """What is kept where the caller does not say; None: the caller has to."""
        ...

    def plan_prune(self, policy: "Policy", now: "datetime") -> "PrunePlan":
        """What a policy would delete. Nothing is changed."""
        ...

    def prune(self, plan: "PrunePlan") -> "PruneResult":
        """Delete what a plan names, except what has a reason to stay by now."""
        ...

    def delete(self, ref: str) -> Item:
        """Delete a checkpoint for good."""
        ...

    def pin(self, ref: str, *, pinned: bool) -> tuple[Item, bool]:
        """Pin a checkpoint, or no longer; with whether it was pinned before."""
        ...


class LocationKind(NamedTuple):
    """A line of the registry. Nothing of a kind is imported before `load`."""

    name: str
    title: str
    path: str
    """`module:class`. The class takes an address and a dict of options, and is a `Location`."""
    example: str
    schemes: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    """What a folder of this kind contains. With neither schemes nor files: any folder."""

    def load(self) -> Any:
        """The class."""
        import importlib  # start-up cost: only here

        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module), name)

    def is_at(self, folder: str) -> bool:
        """Whether a folder is of this kind."""
        if not self.files:
            return not self.schemes
        return all(os.path.exists(os.path.join(folder, each)) for each in self.files)


FOLDER = LocationKind("workspace", "a folder", "holdfast.workspace.location:WorkspaceLocation", ".")
KINDS = [
    LocationKind(
        "flow",
        "a flow store",
        "holdfast.flow.location:FlowLocation",
        "sqlite:///state.db",
        schemes=frozenset(
            ["sqlite", "postgresql", "postgres", "redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "memory"]
        ),
    ),
    LocationKind(
        "training",
        "a training run",
        "holdfast.training.location:TrainingLocation",
        "s3://bucket/run",
        schemes=frozenset(["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl", "file"]),
        files=(".holdfast", "last"),
    ),
    LocationKind(
        "index",
        "an index",
        "holdfast.adapters.index_location:ConfiguredIndexLocation",
        ".holdfast-index",
        schemes=frozenset(["index+postgresql"]),
        files=("ledger.db", ".holdfastignore"),
    ),
    FOLDER,
]
"""The registry. The first kind that fits is the kind of an address; any folder fits the last one."""


def is_url(address: str) -> bool:
    """Whether an address is a URL: that of a location, or one that was meant to be."""
    scheme, colon, rest = without_driver(address).partition(":")
    return bool(colon) and (rest.startswith("//") or any(scheme in kind.schemes for kind in KINDS))


def kind_of(address: str) -> LocationKind:
    """The kind of what is at a URL or in a folder. Refused for a URL of an unknown scheme."""
    if is_url(address):
        scheme = without_driver(address).partition(":")[0]
        for kind in KINDS:
            if scheme in kind.schemes:
                return kind
        known = ", ".join(kind.example for kind in KINDS if "://" in kind.example)
        raise Refused(f"{scheme!r} is not a kind of location", hint=f"A location is a folder or a URL: {known}.")
    for kind in KINDS:
        if kind.is_at(address):
            return kind
    raise NotFound(f"{address} has no checkpoints")


def open_location(address: str, options: Mapping[str, Any] | None = None) -> Location:
    """Open what is at a URL or in a folder."""
    found: Location = kind_of(address).load()(address, dict(options or {}))
    return found
