"""Documents from reading to publishing.

A document is published in four steps: intent, upsert of new points, delete of old points, commit. It is never absent in
between (P1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from holdfast.digest import digest_bytes
from holdfast.indexing import vectors
from holdfast.indexing.embed import Embedder, PendingText
from holdfast.indexing.ledger import Failure, Generation, Ledger, Published
from holdfast.indexing.ledger.work_shares import Share
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.planner import recipe_digest
from holdfast.indexing.sources import Document, read
from holdfast.indexing.spaces import Resolved
from holdfast.indexing.vector_store import Point, VectorStore

_POINTS = UUID("6f1d3c0e-5f0b-5c39-9a51-3d8e1c6c2a77")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that was read and chunked."""

    name: str
    stamp: str | None
    content: str
    recipe: int
    texts: tuple[str, ...]
    pieces: tuple[str, ...]


class Publisher:
    """Publishes documents into one generation."""

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
        """Publish documents whose vectors all exist or are known to fail; return how many this worker still owned.

        After a kill at any point the intent stays, and the next publish of the document deletes its leftovers (P3).
        """
        number, collection = self._generation.number, self._generation.collection
        points = {each.name: self._points(each) for each in documents}
        adds = {name: [point.id for point in found] for name, found in points.items()}
        with self._share.holding(list(adds)) as own:
            self._ledger.intend(number, {name: adds[name] for name in adds if name in own})
        with self._share.holding(list(own)) as own:  # no other worker publishes these until the block ends
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
        """Delete documents; the record last, so that no vector outlives it."""
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
        """Return points that documents have, also from killed runs, and no longer need."""
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
                spelling = "\0".join((document.name, str(ordinal), *(own[name] for name in sorted(own))))
                found.append(Point(str(uuid5(_POINTS, spelling)), document.name, ordinal, text, made))
        return found

    def _reasons(self, documents: Sequence[Prepared]) -> dict[str, Failure]:
        """Return why chunks of documents have no vector, by key."""
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


_INTENT_DOCUMENTS = 64
"""How many documents share an intent."""


class DocumentQueue:
    """The documents of one worker, from reading to publishing."""

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: Ledger,
        share: Share,
        base: Generation,
        embedders: Mapping[str, Embedder],
        *,
        retry_failed: bool,
        on_published: Callable[[int], None],
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._share = share
        self._embedders = embedders
        self._channels: dict[str, Resolved] = {name: each.channel for name, each in embedders.items()}
        self._retry_failed = retry_failed
        self._on_published = on_published
        self._recipe = ledger.recipe(
            recipe_digest(pipeline), {name: each.plain() for name, each in pipeline.cutting().items()}
        )
        self._publisher = Publisher(ledger, pipeline.store, base, self._channels, share)
        self._waiting: deque[tuple[Prepared, Mapping[str, list[str]]]] = deque()

    def add(self, document: Document, content: str) -> bool:
        """Read, chunk and queue a document. Return False if the budget is used up."""
        prepared = self._prepare(document, content)
        if prepared is None:
            self._share.moved([document.name])
            return True
        keys = {name: [each.key(piece) for piece in prepared.pieces] for name, each in self._channels.items()}
        flat = [key for each in keys.values() for key in each]
        done = self._ledger.known(flat)
        if not self._retry_failed:
            done |= self._ledger.poisoned(flat)
        for name, own in keys.items():
            for key, text in zip(own, prepared.texts, strict=True):
                if key not in done:
                    self._embedders[name].add(PendingText(key, text, prepared.name))
        self._waiting.append((prepared, keys))
        return self._work(rest=False)

    def finish(self, *, is_stopped: bool) -> bool:
        """Send the rest and publish all that is ready. Return False if the budget did not cover it."""
        is_enough = is_stopped or self._work(rest=True)
        self._release(least=1)
        return is_enough

    def delete(self, names: list[str]) -> int:
        """Delete documents; return how many."""
        return sum(
            self._publisher.delete(names[at : at + _INTENT_DOCUMENTS]) for at in range(0, len(names), _INTENT_DOCUMENTS)
        )

    def _work(self, *, rest: bool) -> bool:
        for embedder in self._embedders.values():
            if not embedder.work(rest=rest):
                return False
        self._release(least=_INTENT_DOCUMENTS)
        return True

    def _release(self, *, least: int) -> None:
        """Publish the first documents of the queue whose vectors exist, at least `least` at a time."""
        while (ready := self._ready()) >= least:
            published = self._publisher.publish([self._waiting.popleft()[0] for _ in range(ready)])
            self._on_published(published)

    def _ready(self) -> int:
        ready = 0
        for _, keys in self._waiting:
            if ready == _INTENT_DOCUMENTS or any(
                key in self._embedders[name].pending for name in keys for key in keys[name]
            ):
                break
            ready += 1
        return ready

    def _prepare(self, document: Document, content: str) -> Prepared | None:
        """Read and chunk a document; None if it changed since the plan, or cannot be chunked any more."""
        try:
            data = read(document)
            if digest_bytes(data) != content:
                return None
            texts = self._pipeline.cut(data)
        except Exception:  # parser and chunker may raise anything: the next plan reports it
            return None
        stamp = document.stamp if document.is_settled else None
        pieces = self._pipeline.pieces(texts)
        return Prepared(document.name, stamp, content, self._recipe, tuple(texts), pieces)
