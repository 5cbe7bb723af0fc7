"""Documents on their way: read and cut, waiting for vectors, ready to be published."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from holdfast.digest import digest_bytes
from holdfast.indexing.embedding import Embedder, Wanted
from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.ledger.shares import Share
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.planning import recipe_digest
from holdfast.indexing.publishing import Prepared, Publisher
from holdfast.indexing.sources import Document, read
from holdfast.indexing.spaces import Resolved

AT_ONCE = 64
"""How many documents share an intent."""


class Work:
    """One worker's documents."""

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
        """Take up a document. False if the budget is used up."""
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
                    self._embedders[name].want(Wanted(key, text, prepared.name))
        self._waiting.append((prepared, keys))
        return self._work(rest=False)

    def finish(self, *, is_stopped: bool) -> bool:
        """Send what is left, if the budget allows, and publish all that can be. False if it did not allow it."""
        is_enough = is_stopped or self._work(rest=True)
        self._release(least=1)
        return is_enough

    def delete(self, names: list[str]) -> int:
        """Take documents away; how many."""
        return sum(self._publisher.delete(names[at : at + AT_ONCE]) for at in range(0, len(names), AT_ONCE))

    def _work(self, *, rest: bool) -> bool:
        for embedder in self._embedders.values():
            if not embedder.work(rest=rest):
                return False
        self._release(least=AT_ONCE)
        return True

    def _release(self, *, least: int) -> None:
        """Publish documents at the front that wait for nothing, if they are enough to be worth it."""
        while (ready := self._ready()) >= least:
            published = self._publisher.publish([self._waiting.popleft()[0] for _ in range(ready)])
            self._on_published(published)

    def _ready(self) -> int:
        ready = 0
        for _, keys in self._waiting:
            if ready == AT_ONCE or any(key in self._embedders[name].pending for name in keys for key in keys[name]):
                break
            ready += 1
        return ready

    def _prepare(self, document: Document, content: str) -> Prepared | None:
        """Read and cut a document again; None if it is not what the plan saw, or cannot be cut any more."""
        try:
            data = read(document)
            if digest_bytes(data) != content:
                return None
            texts = self._pipeline.cut(data)
        except Exception:  # of a parser or a chunker, which are others' code: the next plan says what it is
            return None
        stamp = document.stamp if document.is_settled else None
        pieces = self._pipeline.pieces(texts)
        return Prepared(document.name, stamp, content, self._recipe, tuple(texts), pieces)
