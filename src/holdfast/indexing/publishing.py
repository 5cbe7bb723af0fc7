"""A document's points in a store: intent, upsert new, delete old, commit. It is never absent in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from holdfast.indexing import vectors
from holdfast.indexing.ledger import Failure, Generation, Ledger, Published
from holdfast.indexing.ledger.shares import Share
from holdfast.indexing.spaces import Resolved
from holdfast.indexing.store import Point, VectorStore

_POINTS = UUID("6f1d3c0e-5f0b-5c39-9a51-3d8e1c6c2a77")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that was read and cut."""

    name: str
    stamp: str | None
    content: str
    recipe: int
    texts: tuple[str, ...]
    pieces: tuple[str, ...]


class Publisher:
    """Publishes into one generation."""

    def __init__(
        self,
        ledger: Ledger,
        store: VectorStore,
        generation: Generation,
        channels: Mapping[str, Resolved],
        share: Share,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._generation = generation
        self._channels = channels
        self._share = share

    def publish(self, documents: Sequence[Prepared]) -> int:
        """Publish documents all of whose vectors are there, or known to fail; how many were still one's own.

        Killed at any point, the intent stays, and whoever publishes the document next takes away what it no longer has.
        """
        number, collection = self._generation.number, self._generation.collection
        points = {each.name: self._points(each) for each in documents}
        adds = {name: [point.id for point in found] for name, found in points.items()}
        with self._share.holding(list(adds)) as own:
            self._ledger.intend(number, {name: adds[name] for name in adds if name in own})
        with self._share.holding(list(own)) as own:  # nobody else writes these to the store before this is left
            mine = [each for each in documents if each.name in own]
            drops = self._drops({each.name: adds[each.name] for each in mine})
            self._store.upsert(collection, [point for each in mine for point in points[each.name]])
            if drops:
                self._store.delete(collection, drops)
            reasons = self._reasons(mine)
            self._ledger.publish(number, [self._published(each, points[each.name], reasons) for each in mine])
            self._share.done(list(own))
        return len(mine)

    def delete(self, names: Sequence[str]) -> int:
        """Take documents away; the record goes last, so that no vector outlives what knows of it."""
        number = self._generation.number
        with self._share.holding(names) as own:
            self._ledger.intend(number, dict.fromkeys(sorted(own), ()))
        with self._share.holding(sorted(own)) as own:
            drops = self._drops({name: [] for name in own})
            if drops:
                self._store.delete(self._generation.collection, drops)
            self._ledger.remove(number, sorted(own))
            self._share.done(list(own))
        return len(own)

    def _drops(self, adds: Mapping[str, Sequence[str]]) -> list[str]:
        """What documents have, or may have from runs that were killed, and will not have any more."""
        number, names = self._generation.number, list(adds)
        intents, points = self._ledger.intents(number, names), self._ledger.points(number, names)
        found: list[str] = []
        for name, ids in adds.items():
            found += sorted({*points.get(name, ()), *intents.get(name, ())} - set(ids))
        return found

    def _points(self, document: Prepared) -> list[Point]:
        keys = {name: [each.key(piece) for piece in document.pieces] for name, each in self._channels.items()}
        cached = self._ledger.vectors([key for each in keys.values() for key in each])
        found = []
        for ordinal, text in enumerate(document.texts):
            own = {name: each[ordinal] for name, each in keys.items()}
            made = {
                name: vectors.derive(cached[key], self._channels[name].shape)
                for name, key in own.items()
                if key in cached
            }
            if made:
                spelt = "\0".join((document.name, str(ordinal), *(own[name] for name in sorted(own))))
                found.append(Point(str(uuid5(_POINTS, spelt)), document.name, ordinal, text, made))
        return found

    def _reasons(self, documents: Sequence[Prepared]) -> dict[str, Failure]:
        """Why some chunks of documents have no vectors, by the keys of those."""
        poisoned = self._ledger.poisoned([key for each in documents for key in self._keys(each)])
        return {each.key: each for each in self._ledger.failures() if each.key in poisoned} if poisoned else {}

    def _keys(self, document: Prepared) -> list[str]:
        return [each.key(piece) for each in self._channels.values() for piece in document.pieces]

    def _published(self, document: Prepared, points: Sequence[Point], reasons: Mapping[str, Failure]) -> Published:
        failed = sorted(reasons.keys() & self._keys(document))
        failures = tuple(Failure(document.name, reasons[key].reason, reasons[key].hint, key) for key in failed)
        placed = tuple((point.ordinal, point.id) for point in points)
        return Published(
            document.name, document.stamp, document.content, document.recipe, document.pieces, placed, failures
        )
