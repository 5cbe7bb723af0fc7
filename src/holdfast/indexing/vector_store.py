"""The interface of a vector store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import Damaged, HoldfastError, NotFound, Remedy, Unavailable
from holdfast.indexing.vectors import Query, Shape


@dataclass(frozen=True, slots=True)
class Point:
    """A chunk in a store."""

    id: str
    """A UUID derived from document and content: the same chunk of the same document is the same point."""
    document: str
    ordinal: int
    text: str
    vectors: Mapping[str, bytes]
    """By channel, in the shape of the collection."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An answer to a query."""

    document: str
    ordinal: int
    text: str
    score: float


def as_point(point: str, metadata: Mapping[str, Any] | None, text: object, vectors: Mapping[str, bytes]) -> Point:
    """Make a point from the metadata in a store. Metadata that others changed give a point that equals none."""
    document, ordinal = ((metadata or {}).get(name) for name in ("document", "ordinal"))
    return Point(point, str(document), ordinal if isinstance(ordinal, int) else -1, str(text), vectors)


def as_hit(store: str, metadata: Mapping[str, Any] | None, text: object, score: float) -> Hit:
    """Make a hit from the metadata in a store. Damaged if they are not what was written."""
    document, ordinal = ((metadata or {}).get(name) for name in ("document", "ordinal"))
    if not (isinstance(document, str) and isinstance(ordinal, int) and isinstance(text, str)):
        raise Damaged(f"{store} has a point without a document", remedy=Remedy("repair_index"))
    return Hit(document, ordinal, text, score)


def no_collection(store: str, collection: str) -> NotFound:
    """Return the error for a collection that does not exist."""
    return NotFound(f"{store} has no collection {collection}", hint="Apply a plan to create it again.")


def nothing_to_search(store: str, channel: str) -> NotFound:
    """Return the error for a search without a live collection, or without such a channel in it."""
    return NotFound(f"{store} has no vectors {channel!r} to search", hint="Apply a plan first.")


def is_there(path: Path) -> bool:
    """Whether a store exists at a path. OSError if none can exist there: a file is in the way, or access is denied."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def using(store: VectorStore, place: Path | None, *, hint: str) -> Iterator[None]:
    """Translate any error of a store's library into Unavailable; say so if the folder is not writable."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # from any layer of the library: the store cannot be used
        if place is not None and place.exists() and not os.access(place, os.W_OK, effective_ids=True):
            what, hint = "is not writable", "Check the owner and the permissions of the folder and its files."
        else:
            what = f"cannot be used: {error}"
        raise Unavailable(f"{store.identity} {what}", hint=hint) from error


class VectorStore(Protocol):
    """Collections of points, of which one is live.

    When a call returns, its changes survive a kill (P3). A store that fails raises Unavailable. Only `create` creates a
    store that does not exist: a plan writes nothing.
    """

    @property
    def identity(self) -> str:
        """Where it is; a store at another path has another identity."""
        ...

    @property
    def keeps_sparse(self) -> bool:
        """Whether it can store sparse vectors."""
        ...

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        """Create an empty collection with a fingerprint in its metadata; do nothing if it exists."""
        ...

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        """Return the fingerprint passed to `create`; None if the collection does not exist."""
        ...

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Add points, or replace them."""
        ...

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Delete points; ids that do not exist are ignored."""
        ...

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """Yield every point: its id, its document, and by channel the number of bytes or values of its vector."""
        ...

    def count(self, collection: str) -> int:
        """Count the points that have a vector; 0 if the collection does not exist.

        Points that another program deleted do not count: by this a plan notices the loss (P4).
        """
        ...

    def live(self) -> str | None:
        """Return the collection that answers queries."""
        ...

    def make_live(self, collection: str) -> None:
        """Let a collection answer queries from now on, in one step (P3)."""
        ...

    def drop(self, collection: str) -> None:
        """Delete a collection; do nothing if it does not exist."""
        ...

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        """Return the chunks of the live collection that are nearest to a query."""
        ...


@runtime_checkable
class ReadableStore(VectorStore, Protocol):
    """A store that can return points, so that `verify` can compare their texts and vectors."""

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        """Return points by id, with vectors in the shape of the collection; missing ones are left out."""
        ...
