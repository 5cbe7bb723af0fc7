"""The ledger: what is done for which document, and every vector that was paid for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from holdfast.digest import digest_bytes
from holdfast.errors import Extra, Refused
from holdfast.indexing.ledger.work_shares import Order, Share
from holdfast.validation import without_driver

DocRow = tuple[str, str | None, str, int]
"""A published document: name, stamp, digest of its content, recipe. A plain tuple, because there may be millions."""


def vector_key(space: str, piece: str) -> str:
    """Return the key of the vector of a chunk, from its space and the digest of its text."""
    return digest_bytes(f"{space}\0{piece}".encode())


@dataclass(frozen=True, slots=True)
class Generation:
    """A complete index: one collection of a store, with one shape."""

    number: int
    state: str
    """`building`, `live`, or `kept` to roll back to."""
    shape: str
    channels: Mapping[str, Any]
    """The description of each channel when it was made."""
    store: str
    collection: str


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A model with its settings, the space of its vectors, and the vectors of the canary texts that identify it."""

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
    """Of the missing vector; empty for a whole document."""


@dataclass(frozen=True, slots=True)
class Published:
    """A document to record as published."""

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
class RunRecord:
    """One apply of a plan: what it was to do, and how far it is."""

    number: int
    began: float
    updated: float
    """When it last made progress. One that was killed has no end, and stays at this."""
    ended: float | None
    impact: str
    plan: Mapping[str, Any]
    """Of the plan: `documents`, `deleted`, `to_embed`, `tokens`, `usd`, `generation`, and `settings` that changed."""
    done: Mapping[str, Any]
    """So far: `published`, `deleted`, `embedded`, `tokens`, `usd`; at the end also `stopped` and `is_live`."""


@dataclass(frozen=True, slots=True)
class PrunedIndex:
    """What a prune deleted."""

    generations: int = 0
    vectors: int = 0
    cuts: int = 0
    batches: int = 0
    """Records of batches that were summed up."""


class Ledger(Protocol):
    """Every call that changes something is one transaction: after a kill it is complete or absent (P3).

    `writing` admits one run at a time, `working` as many as the back end supports; Conflict for others.
    """

    def id(self) -> str: ...
    def revision(self) -> int: ...
    def close(self) -> None: ...

    # concurrency
    def writing(self) -> AbstractContextManager[None]: ...
    def working(self) -> AbstractContextManager[None]: ...
    def turn(self) -> AbstractContextManager[None]: ...
    def join(self, order: Order) -> Share | None: ...
    def open(self, order: Order, generation: int) -> Share: ...

    # models
    def label(self, label: str) -> LabelRow | None: ...
    def dimension(self, space: str) -> int | None: ...
    def set_label(self, row: LabelRow) -> None: ...

    # vectors and costs
    def known(self, keys: Sequence[str]) -> set[str]: ...
    def poisoned(self, keys: Sequence[str]) -> set[str]: ...
    def vectors(self, keys: Sequence[str]) -> dict[str, bytes]: ...
    def sample(self, space: str, limit: int) -> list[bytes]: ...
    def add_batch(self, batch: Batch) -> None: ...
    def rate(self, space: str) -> float | None: ...
    def spent(self) -> tuple[int, int, float]: ...

    # runs
    def begin_record(self, impact: str, plan: Mapping[str, Any]) -> int: ...
    def update_record(self, number: int, done: Mapping[str, Any], *, is_end: bool) -> None: ...
    def records(self, limit: int, before: int | None = None) -> list[RunRecord]: ...

    # generations, documents and points
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
    def all_docs(self, generation: int, after: str = "") -> Iterator[DocRow]: ...
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
    def prune(self, *, kept_for_s: float) -> PrunedIndex: ...


def open_ledger(location: str | os.PathLike[str]) -> Ledger:
    """Open the ledger in a file, or at a postgresql:// URL; create it if it does not exist.

    Each schema of a database has one: `#name` at the end of a URL names a schema other than the default.
    """
    location = without_driver(location) if isinstance(location, str) else location
    scheme = location.partition("://")[0] if isinstance(location, str) and "://" in location else ""
    if scheme in ("postgresql", "postgres"):
        with Extra("postgres"):
            from holdfast.indexing.ledger.postgres import PostgresLedger
        url, schema = _split_schema(str(location))
        return PostgresLedger(url, schema=schema) if schema else PostgresLedger(url)
    if scheme:
        raise Refused(f"unknown kind of ledger: {scheme}://", hint="Name a file, or postgresql://…")
    from holdfast.indexing.ledger.sqlite import SQLiteLedger  # imports this package

    return SQLiteLedger(location)


def _split_schema(url: str) -> tuple[str, str]:
    base, _, name = url.rpartition("#")
    is_name = base and not set(name) & set("/@")  # a password may contain a #, too
    return (base, unquote(name)) if is_name else (url, "")
