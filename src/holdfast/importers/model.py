"""The nouns of an import: what is asked for, what would be done, what was done."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.errors import Refused
from holdfast.model import Progress
from holdfast.validation import checked_options

if TYPE_CHECKING:
    from holdfast.serde import Keys


@checked_options
@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What to import, and where to."""

    source: str
    """A path or a URL."""
    target: str | None = None
    """A path or a URL; None: the place that the source itself names."""
    schemas: Sequence[type] = ()
    """Classes that stored values may be of, such as the schema of a graph. Values of other classes stay plain."""
    keys: Keys | None = None
    """The keys of a flow store to import into, if it is encrypted."""
    workspace_options: Mapping[str, Any] = field(default_factory=dict)
    """The options of `Workspace` for a target that is a folder, such as `store`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", os.path.expanduser(self.source))
        if self.target is not None:
            object.__setattr__(self, "target", os.path.expanduser(self.target))


class NotCarried(NamedTuple):
    """Something of the source that the import leaves behind, and why."""

    what: str
    why: str
    checkpoints: int = 1
    """How many checkpoints it concerns."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do."""

    kind: str
    title: str
    """What the source is, in words."""
    source: str
    target: str
    """Both without passwords."""
    checkpoints: int
    """How many checkpoints of the source can be carried over, or are there already."""
    present: int
    """How many of these the target has already, from an earlier import."""
    not_carried: Sequence[NotCarried] = ()
    notes: Sequence[str] = ()
    bytes: int | None = None
    """About how much content is to be read; None if that is unknown."""

    @property
    def new(self) -> int:
        """How many checkpoints would be added."""
        return self.checkpoints - self.present


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    added: int
    present: int
    not_carried: Sequence[NotCarried] = ()
    notes: Sequence[str] = ()


class Import(Protocol):
    """An opened source and its target."""

    def plan(self, progress: Progress | None = None) -> ImportPlan:
        """Read the source, and compute what would be added. Changes nothing."""
        ...

    def run(self, progress: Progress | None = None) -> Imported:
        """Add what the target lacks, one checkpoint after the other, in the order of the source."""
        ...

    def close(self) -> None:
        """Close the source and the target."""
        ...


def check_outside(target: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Refused if the folder to import into is the source, is in it, or is a file."""
    into, of = os.path.realpath(target), os.path.realpath(source)
    if into == of:
        raise Refused("the target is the source itself", hint="Name another folder, which may not exist yet.")
    if into.startswith(os.path.join(of, "")):
        raise Refused(f"the target {target} is in the source, which is only read", hint="Name a folder outside of it.")
    if os.path.lexists(into) and not os.path.isdir(into):
        raise Refused(f"the target {target} is a file", hint="Name a folder, which may not exist yet.")


class Losses:
    """Collects what is not carried over: each thing once, with the number of checkpoints that it concerns."""

    def __init__(self, known: Iterable[NotCarried] = ()) -> None:
        self._found = {(each.what, each.why): each.checkpoints for each in known}

    def add(self, what: str, why: str) -> None:
        self._found[what, why] = self._found.get((what, why), 0) + 1

    def all(self) -> tuple[NotCarried, ...]:
        return tuple(NotCarried(what, why, count) for (what, why), count in self._found.items())
