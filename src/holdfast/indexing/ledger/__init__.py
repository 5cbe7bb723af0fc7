"""The ledger: what is done for which document, and every vector that was paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.digest import digest_bytes
from holdfast.indexing.ledger.shares import Order, Share

DocRow = tuple[str, str | None, str, int]
"""A document as it was published: name, stamp, digest of its content, recipe. A plain tuple: there may be millions."""


def vector_key(space: str, piece: str) -> str:
    """Names the vector of a chunk, by its space and the digest of its text."""
    return digest_bytes(f"{space}\0{piece}".encode())


@dataclass(frozen=True, slots=True)
class Generation:
    """An index as a whole: one collection of a store, all of one shape."""

    number: int
    state: str
    """`building`, `live`, or `kept` to roll back to."""
    shape: str
    channels: Mapping[str, Any]
    """How each channel was described when it was made."""
    store: str
    collection: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A model as it was asked, the space of its vectors, and those of the canary texts, to know it by."""

    label: str
    space: str
    dimension: int
    canaries: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A document or a chunk that could not be indexed, and why."""

    document: str
    reason: str
    hint: str = ""
    key: str = ""
    """Of the vector that there is none of; empty for a whole document."""


@dataclass(frozen=True, slots=True)
class Published:
    """A document to be written down as published."""

    name: str
    stamp: str | None
    content: str
    recipe: int
    pieces: tuple[str, ...]
    """The digests of its chunks."""
    points: tuple[tuple[int, str], ...]
    """The chunks that have points, by ordinal, and their ids."""
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """What a model returned, and what it cost."""

    space: str
    vectors: Mapping[str, bytes]
    texts: int
    tokens: int
    usd: float
    seconds: float
    failures: tuple[Failure, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was taken out of a ledger."""

    generations: int = 0
    vectors: int = 0
    cuts: int = 0
    batches: int = 0
    """Records of batches, put together into one for each model."""


class Ledger(Protocol):
    """Every call that changes something is one transaction: after a kill it is there whole, or not at all (P3).

    `writing` lets one run work at a time and `working` as many as the back end can take; Conflict for others.
    """

    def id(self) -> str: ...
    def revision(self) -> int: ...
    def close(self) -> None: ...

    # who works
    def writing(self) -> AbstractContextManager[None]: ...
    def working(self) -> AbstractContextManager[None]: ...
    def turn(self) -> AbstractContextManager[None]: ...
    def join(self, order: Order) -> Share | None: ...
    def open(self, order: Order, generation: int) -> Share: ...

    # what is known of models
    def label(self, label: str) -> LabelRow | None: ...
    def dimension(self, space: str) -> int | None: ...
    def set_label(self, row: LabelRow) -> None: ...

    # what was paid for
    def known(self, keys: Sequence[str]) -> set[str]: ...
    def poisoned(self, keys: Sequence[str]) -> set[str]: ...
    def vectors(self, keys: Sequence[str]) -> dict[str, bytes]: ...
    def sample(self, space: str, limit: int) -> list[bytes]: ...
    def add_batch(self, batch: Batch) -> None: ...
    def rate(self, space: str) -> float | None: ...
    def spent(self) -> tuple[int, int, float]: ...

    # what is published
    def generations(self) -> list[Generation]: ...
    def begin(self, shape: str, channels: Mapping[str, Any], store: str) -> Generation: ...
    def make_live(self, number: int) -> None: ...
    def describe(self, number: int, channels: Mapping[str, Any]) -> None: ...
    def forget(self, number: int) -> None: ...
    def recipe(self, digest: str, settings: Mapping[str, Any]) -> int: ...
    def find_recipe(self, digest: str) -> int | None: ...
    def last_recipe(self, generation: int) -> int | None: ...
    def recipe_settings(self, number: int) -> dict[str, Any]: ...
    def pieces(self, content: str, recipe: int) -> tuple[str, ...] | None: ...
    def docs(self, generation: int, names: Sequence[str]) -> dict[str, DocRow]: ...
    def all_docs(self, generation: int) -> Iterator[DocRow]: ...
    def doc_count(self, generation: int) -> int: ...
    def points(self, generation: int, names: Sequence[str]) -> dict[str, list[str]]: ...
    def all_points(self, generation: int) -> Iterator[tuple[str, tuple[str, ...], tuple[tuple[int, str], ...]]]: ...
    def point_count(self, generation: int) -> int: ...
    def open_intents(self, generation: int) -> dict[str, tuple[str, ...]]: ...
    def intents(self, generation: int, names: Sequence[str]) -> dict[str, tuple[str, ...]]: ...
    def intend(self, generation: int, adds: Mapping[str, Sequence[str]]) -> None: ...
    def publish(self, generation: int, documents: Sequence[Published]) -> None: ...
    def remove(self, generation: int, names: Sequence[str]) -> None: ...
    def redo(self, generation: int, names: Sequence[str]) -> None: ...
    def fail(self, failures: Sequence[Failure]) -> None: ...
    def failures(self) -> list[Failure]: ...
    def prune(self, *, kept_for_s: float) -> Pruned: ...
