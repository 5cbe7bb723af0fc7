"""Carrying out a plan. What it does is written down step by step, so that a kill costs one batch at most."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.digest import digest_bytes
from holdfast.errors import Conflict, Damaged, HoldfastError, Refused
from holdfast.indexing import checking
from holdfast.indexing.embedding import Budget, Embedder, Wanted
from holdfast.indexing.families import Families
from holdfast.indexing.ledger import Failure, Generation, Ledger
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.plan import DocPlan, IndexPlan
from holdfast.indexing.planning import Planner, corpus_digest, recipe_digest, settings_digest
from holdfast.indexing.probing import probe
from holdfast.indexing.publishing import Prepared, Publisher
from holdfast.indexing.sources import Document, read
from holdfast.indexing.spaces import CANARIES
from holdfast.indexing.standing import Ground, look

_AT_ONCE = 64
"""How many documents share an intent."""


@dataclass
class Applied:
    """What an apply did."""

    published: int = 0
    deleted: int = 0
    embedded: int = 0
    """Chunks that a model was paid for."""
    probe_texts: int = 0
    tokens: int = 0
    usd: float = 0.0
    stopped: str = ""
    """Why it ended before the plan did; empty if it did not."""
    moved: list[str] = field(default_factory=list)
    """Documents that changed or vanished after the plan; the next one has them."""
    failures: list[Failure] = field(default_factory=list)
    is_live: bool = False
    """Whether queries are asked of what was published."""

    @property
    def ok(self) -> bool:
        """Whether everything is done, and nothing failed."""
        return not (self.stopped or self.moved or self.failures) and self.is_live


class Applier:
    """Carries out one plan."""

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: Ledger,
        families: Families,
        budget: Budget,
        *,
        on_progress: Callable[[Applied], None] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._families = families
        self._budget = budget
        self._on_progress = on_progress
        self._sleep = sleep
        self._applied = Applied()

    def apply(self, plan: IndexPlan) -> Applied:
        """Do what a plan says. Conflict, before anything is done, if the world is not as it was."""
        ground = look(self._pipeline, self._ledger, self._families)
        self._check(plan, ground)
        if not self._probe(plan, ground):
            self._applied.stopped = "the budget does not cover the canary texts"
            return self._end(plan, ground)
        if any(each.probe_texts for each in plan.channels):
            ground = look(self._pipeline, self._ledger, self._families)
            if settings_digest(self._pipeline, ground) != plan.settings_digest:  # a probe found it to be cheaper
                plan = self._planner(plan).make()
        base = self._base(ground)
        self._publish(plan, ground, base)
        return self._end(plan, ground, base)

    def _planner(self, plan: IndexPlan) -> Planner:
        return Planner(self._pipeline, self._ledger, self._families, retry_failed=plan.retry_failed)

    def _check(self, plan: IndexPlan, ground: Ground) -> None:
        moved = ""
        if plan.settings_digest != settings_digest(self._pipeline, ground):
            moved = "the settings"
        elif plan.revision != self._ledger.revision():
            moved = "the ledger"
        elif plan.corpus_digest != corpus_digest(self._pipeline.source):
            moved = "the documents"
        if moved:
            raise Conflict(f"{moved} changed since the plan was made", hint="Make a new plan, and look at it.")

    def _probe(self, plan: IndexPlan, ground: Ground) -> bool:
        for each in plan.channels:
            if each.probe_texts:
                embedder = self._embedder(ground, each.channel)
                if not self._budget.allows(len(CANARIES), embedder.price(CANARIES)[1]):
                    return False
                probe(embedder, self._ledger, ground.live)
                self._applied.probe_texts += each.probe_texts
        return True

    def _embedder(self, ground: Ground, channel: str) -> Embedder:
        return Embedder(ground.channels[channel], self._ledger, self._families, self._budget, sleep=self._sleep)

    def _base(self, ground: Ground) -> Generation:
        """The generation to publish in, begun if the shape is new. One begun for another shape is dropped."""
        described = {name: each.described() for name, each in ground.channels.items()}
        for each in self._ledger.generations():
            if each.state == "building" and (ground.base is None or each.number != ground.base.number):
                self._forget(each)
        base = ground.base or self._ledger.begin(ground.shape, described, self._pipeline.store.identity)
        if ground.base is None:
            shapes = {name: each.shape for name, each in ground.channels.items()}
            said = {"ledger": self._ledger.id(), "generation": base.number, "shape": base.shape, "channels": described}
            self._pipeline.store.create(base.collection, shapes, said)
        return base

    def _forget(self, generation: Generation) -> None:
        if generation.store == self._pipeline.store.identity:
            self._pipeline.store.drop(generation.collection)
        self._ledger.forget(generation.number)

    # documents

    def _publish(self, plan: IndexPlan, ground: Ground, base: Generation) -> None:
        work = _Work(self, plan, ground, base)
        wanted = {each.name: each for each in plan.documents}
        for document in self._pipeline.source:
            planned = wanted.pop(document.name, None)
            if planned is not None and not work.add(document, planned):
                break
        else:
            self._applied.moved += wanted
        work.finish()
        if plan.deleted and not self._applied.stopped:
            work.publisher.delete(plan.deleted)
            self._applied.deleted = len(plan.deleted)

    def _end(self, plan: IndexPlan, ground: Ground, base: Generation | None = None) -> Applied:
        self._ledger.fail(plan.failures)
        applied = self._applied
        applied.failures = self._ledger.failures()
        applied.tokens, applied.usd = self._budget.tokens, self._budget.usd
        applied.embedded = self._budget.texts - applied.probe_texts
        if base is not None and not applied.stopped:
            self._go_live(ground, base, plan)
        return applied

    def _go_live(self, ground: Ground, base: Generation, plan: IndexPlan) -> None:
        """Make what was built beside the live one, once it is proved to be whole; else only say how it is described."""
        described = {name: each.described() for name, each in ground.channels.items()}
        if base.state == "live":
            if described != base.channels:
                self._ledger.describe(base.number, described)
            self._applied.is_live = True
            return
        lost = [each.document for each in plan.failures if self._is_live(ground, each.document)]
        if lost or self._applied.moved:
            self._applied.stopped = f"{(lost or self._applied.moved)[0]} would be lost: the new index is not live yet"
            return
        report = checking.check(self._ledger, self._pipeline.store, base, ground.channels)
        if not report.ok:
            raise Damaged(f"the new collection {base.collection} is not whole", hint="Plan and apply again.")
        self._pipeline.store.make_live(base.collection)
        self._ledger.make_live(base.number)
        self._applied.is_live = True
        kept = [each for each in self._ledger.generations() if each.state == "kept"]
        for each in kept:
            if each is not kept[-1] or self._is_gone(each):
                self._forget(each)

    def _is_gone(self, generation: Generation) -> bool:
        store = self._pipeline.store
        return generation.store == store.identity and store.fingerprint(generation.collection) is None

    def _is_live(self, ground: Ground, name: str) -> bool:
        return ground.live is not None and bool(self._ledger.docs(ground.live.number, [name]))

    def told(self, published: int) -> None:
        """Count documents as published."""
        self._applied.published += published
        self._applied.embedded = self._budget.texts - self._applied.probe_texts
        self._applied.usd = self._budget.usd
        if self._on_progress:
            self._on_progress(self._applied)


class _Work:
    """Documents on their way: read and cut, waiting for vectors, ready to be published."""

    def __init__(self, applier: Applier, plan: IndexPlan, ground: Ground, base: Generation) -> None:
        self._applier = applier
        self._plan = plan
        self._ground = ground
        self._ledger = applier._ledger
        self._pipeline = applier._pipeline
        self._recipe = self._ledger.recipe(
            recipe_digest(self._pipeline), {name: each.plain() for name, each in self._pipeline.cutting().items()}
        )
        self.publisher = Publisher(self._ledger, self._pipeline.store, base, ground.channels)
        self._embedders = {name: applier._embedder(ground, name) for name in ground.channels}
        self._waiting: deque[tuple[Prepared, Mapping[str, list[str]]]] = deque()

    def add(self, document: Document, planned: DocPlan) -> bool:
        """Take up a document. False if the budget is used up."""
        prepared = self._prepare(document, planned)
        if prepared is None:
            self._applier._applied.moved.append(document.name)
            return True
        keys = {name: [each.key(piece) for piece in prepared.pieces] for name, each in self._ground.channels.items()}
        flat = [key for each in keys.values() for key in each]
        done = self._ledger.known(flat)
        if not self._plan.retry_failed:
            done |= self._ledger.poisoned(flat)
        for name, own in keys.items():
            for key, text in zip(own, prepared.texts, strict=True):
                if key not in done:
                    self._embedders[name].want(Wanted(key, text, prepared.name))
        self._waiting.append((prepared, keys))
        return self._work(rest=False)

    def finish(self) -> None:
        """Send what is left, if the budget allows, and publish all that can be."""
        if not self._applier._applied.stopped:
            self._work(rest=True)
        self._release(least=1)

    def _work(self, *, rest: bool) -> bool:
        for embedder in self._embedders.values():
            if not embedder.work(rest=rest):
                self._applier._applied.stopped = "the budget is used up"
                return False
        self._release(least=_AT_ONCE)
        return True

    def _release(self, *, least: int) -> None:
        """Publish documents at the front that wait for nothing, if they are enough to be worth it."""
        ready = 0
        for _, keys in self._waiting:
            if ready == _AT_ONCE or any(key in self._embedders[name].pending for name in keys for key in keys[name]):
                break
            ready += 1
        if ready < least:
            return
        self.publisher.publish([self._waiting.popleft()[0] for _ in range(ready)])
        self._applier.told(ready)
        self._release(least=least)

    def _prepare(self, document: Document, planned: DocPlan) -> Prepared | None:
        """Read and cut a document again; None if it is not what the plan saw."""
        try:
            data = read(document)
            if digest_bytes(data) != planned.content:
                return None
            texts = self._pipeline.cut(data)
        except HoldfastError:
            return None
        stamp = document.stamp if document.is_settled else None
        pieces = self._pipeline.pieces(texts)
        return Prepared(document.name, stamp, planned.content, self._recipe, tuple(texts), pieces)


def refuse(plan: IndexPlan, *, max_usd: float | None, accept_loss: bool, allow_empty: bool) -> None:
    """Refuse a plan that needs a word more than it was given."""
    lossy = [(each, one) for each in plan.channels for one in each.decisions if one.is_lossy]
    if lossy and not accept_loss:
        measured = lossy[0][0].overlap
        kept = "" if measured is None else f": {measured:.0%} of nearest neighbours stay"
        raise Refused(f"answers may get worse: {lossy[0][1].reason}{kept}", hint="Pass accept_loss=True.")
    if max_usd is not None and plan.usd is None:
        raise Refused("nobody said what the model costs", hint="Give usd_per_mtok, or max_embeds instead of max_usd.")
    if plan.deleted and not (plan.unchanged or plan.documents) and not allow_empty:
        raise Refused(
            "the source has no document any more", hint="Pass allow_empty=True if the index is to be emptied."
        )
