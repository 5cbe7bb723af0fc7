"""What a run needs of a store of vectors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import Damaged, HoldfastError, NotFound, Unavailable
from holdfast.indexing.vectors import Query, Shape


@dataclass(frozen=True, slots=True)
class Point:
    """A chunk in a store."""

    id: str
    """A UUID made of what it is: the same chunk of the same document is the same point."""
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


def as_point(point: str, said: Mapping[str, Any] | None, text: object, vectors: Mapping[str, bytes]) -> Point:
    """A point of what a store has beside its vectors, be it that somebody changed that: then it is like no other."""
    document, ordinal = ((said or {}).get(name) for name in ("document", "ordinal"))
    return Point(point, str(document), ordinal if isinstance(ordinal, int) else -1, str(text), vectors)


def as_hit(store: str, said: Mapping[str, Any] | None, text: object, score: float) -> Hit:
    """An answer of what a store has beside a vector. Damaged if that is not what was written."""
    document, ordinal = ((said or {}).get(name) for name in ("document", "ordinal"))
    if not (isinstance(document, str) and isinstance(ordinal, int) and isinstance(text, str)):
        raise Damaged(f"{store} has a point of no document", hint="Call verify(repair=True).")
    return Hit(document, ordinal, text, score)


def no_collection(store: str, collection: str) -> NotFound:
    """What a store says that is asked for a collection it does not have."""
    return NotFound(f"{store} has no collection {collection}", hint="Apply a plan to make it again.")


def nothing_to_search(store: str, channel: str) -> NotFound:
    """What a store says that has no live collection, or none with these vectors."""
    return NotFound(f"{store} has no vectors {channel!r} to search", hint="Apply a plan first.")


def is_there(path: Path) -> bool:
    """Whether a store has been made at a place. OSError if none can be: a file is in the way, or nobody may look."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def using(store: VectorStore, place: Path | None, *, hint: str) -> Iterator[None]:
    """Raise Unavailable where a store's library fails: it is not writable, where that is so, and else what was told."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # of the library, of what is below it, of the folder: all mean that it cannot be used
        if place is not None and place.exists() and not os.access(place, os.W_OK, effective_ids=True):
            what, hint = "is not writable", "See whose the folder is, and all that is in it."
        else:
            what = f"cannot be used: {error}"
        raise Unavailable(f"{store.identity} {what}", hint=hint) from error


class VectorStore(Protocol):
    """Collections of points, of which one is live.

    Whatever a call has done is there after a kill once it returned. A store in trouble raises Unavailable. One that is
    not there yet is made by `create`, and by nothing else: a plan looks, and writes nothing.
    """

    @property
    def identity(self) -> str:
        """Where it is; another place is another identity."""
        ...

    @property
    def keeps_sparse(self) -> bool:
        """Whether a channel of it may be sparse."""
        ...

    def create(self, collection: str, shapes: Mapping[str, Shape], fingerprint: Mapping[str, Any]) -> None:
        """Make an empty collection that holds a fingerprint in its own metadata; nothing if it is there."""
        ...

    def fingerprint(self, collection: str) -> dict[str, Any] | None:
        """What `create` was given; None if there is no such collection."""
        ...

    def upsert(self, collection: str, points: Sequence[Point]) -> None:
        """Add points, or write them over."""
        ...

    def delete(self, collection: str, ids: Sequence[str]) -> None:
        """Take points away; those that are not there do not matter."""
        ...

    def scan(self, collection: str) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """Every point: its id, its document, and by channel how many bytes or numbers its vector has."""
        ...

    def count(self, collection: str) -> int:
        """How many points there are that have a vector; 0 if there is no such collection.

        What somebody took out behind the store's back is not counted: by this a plan notices that something is lost.
        """
        ...

    def live(self) -> str | None:
        """The collection that queries are asked of."""
        ...

    def make_live(self, collection: str) -> None:
        """Have queries asked of a collection from now on, in one step."""
        ...

    def drop(self, collection: str) -> None:
        """Take a collection away; nothing if it is not there."""
        ...

    def search(self, channel: str, query: Query, *, limit: int = 10) -> list[Hit]:
        """The chunks nearest to a query, of the live collection."""
        ...


@runtime_checkable
class ReadableStore(VectorStore, Protocol):
    """A store that gives points back, so that a verify can compare their texts and numbers."""

    def read(self, collection: str, ids: Sequence[str]) -> dict[str, Point]:
        """Points by their ids, vectors in the shape of the collection; those that are not there are left out."""
        ...
