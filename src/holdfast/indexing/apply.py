"""Carry out a plan. Every step is recorded, so that a kill costs at most one batch (P1, P3)."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from holdfast.errors import Conflict, Damaged, HoldfastError, Refused, Remedy, Unavailable
from holdfast.indexing import verify
from holdfast.indexing.baseline import Baseline, read_baseline
from holdfast.indexing.canaries import probe
from holdfast.indexing.embed import Budget, EmbedContext, Embedder
from holdfast.indexing.ledger import Failure, Generation, Ledger
from holdfast.indexing.ledger.work_shares import Order, Share
from holdfast.indexing.model_families import Families
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.plan import DocumentChange, IndexPlan
from holdfast.indexing.planner import IndexPlanner, corpus_digest, settings_digest
from holdfast.indexing.publish import DocumentQueue
from holdfast.indexing.spaces import CANARIES, Resolved
from holdfast.indexing.vector_store import VectorStore

_CLAIMED = 16
"""How many documents a worker claims at a time."""
_COMPARED = 1000
"""How many vectors of a new index are compared before it goes live."""
_NOTED_EVERY_S = 1.0
"""How often progress is recorded for others to see, by which a killed run tells how far it was."""
_USED_UP = "the budget is used up"


@dataclass
class Applied:
    """What an apply did."""

    published: int = 0
    deleted: int = 0
    embedded: int = 0
    """Chunks that were sent to a model."""
    probe_texts: int = 0
    tokens: int = 0
    usd: float = 0.0
    stopped: str = ""
    """Why it ended early; empty if it did not."""
    moved: list[str] = field(default_factory=list)
    """Documents that changed or disappeared after the plan; the next plan has them."""
    failures: list[Failure] = field(default_factory=list)
    is_live: bool = False
    """Whether the published documents answer queries."""

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
        self._context = EmbedContext(ledger, families, budget, on_batch=lambda: self._published(0), sleep=sleep)
        self._applied = Applied()
        self._record: int | None = None
        self._noted_s = -math.inf

    def apply(self, plan: IndexPlan) -> Applied:
        """Carry out a plan. Conflict, before anything is done, if something changed since it was made."""
        with self._ledger.turn():
            begun = self._begin(plan)
            if begun is not None and not begun[0].is_empty:
                self._record = self._ledger.begin_record(
                    begun[0].impact.value, _recorded(begun[0], begun[2].generation)
                )
        if begun is None:
            self._applied.stopped = "the budget does not cover the canary texts"
            self._ledger.fail(plan.failures)
            return self._ended()
        plan, baseline, share = begun
        base = next(each for each in self._ledger.generations() if each.number == share.generation)
        try:
            self._publish(self._work(plan, baseline, share, base), share)
            with self._ledger.turn():
                self._end(plan, baseline, share, base)
        except HoldfastError as error:
            self._note(error.message)
            raise
        finally:
            with contextlib.suppress(Unavailable):  # the lease expires by itself
                share.release()
        self._note(self._applied.stopped)
        return self._ended()

    def _note(self, stopped: str | None) -> None:
        """Record how far the run is; at its end, why it stopped, or an empty text."""
        if self._record is None:
            return
        self._account()
        applied = self._applied
        done = {name: getattr(applied, name) for name in ("published", "deleted", "embedded", "tokens", "usd")}
        if stopped is not None:
            done |= {"stopped": stopped, "is_live": applied.is_live}
        with contextlib.suppress(Unavailable):  # it says nothing about what is done
            self._ledger.update_record(self._record, done, is_end=stopped is not None)

    def _begin(self, plan: IndexPlan) -> tuple[IndexPlan, Baseline, Share] | None:
        """Join the run of this plan, or begin it; None if the budget does not even cover the canary texts."""
        baseline = self._baseline(plan)
        share = self._check(plan, baseline)
        if share is not None and not share.is_open():  # other workers finished it: no model is needed
            return plan, baseline, share
        if not self._probe(plan, baseline):
            return None
        if any(each.probe_texts for each in plan.channels):
            baseline = self._baseline(plan)
            if self._digest(plan, baseline) != plan.settings_digest:  # a probe found that less has to be done
                plan = self._again(plan)
                baseline = self._baseline(
                    plan
                )  # now of the same shape, perhaps with another chunker than the live index
                share = self._ledger.join(order_of(plan))
        if share is None:
            share = self._ledger.open(order_of(plan), self._base(baseline).number)
        return plan, baseline, share

    def _again(self, plan: IndexPlan) -> IndexPlan:
        """Make the plan again with the result of a probe. Conflict if that costs more, or makes answers worse."""
        found = self._planner(plan).make()
        if found.is_lossy and not plan.is_lossy:
            raise Conflict("answers may get worse, which the plan did not say", hint="Make a new plan, and check it.")
        if found.to_embed > plan.to_embed or found.tokens > plan.tokens:
            raise Conflict(
                "the model differs from the one that the plan was made for", hint="Make a new plan, and check it."
            )
        return found

    def _planner(self, plan: IndexPlan) -> IndexPlanner:
        return IndexPlanner(
            self._pipeline, self._ledger, self._families, retry_failed=plan.retry_failed, in_place=plan.in_place
        )

    def _baseline(self, plan: IndexPlan) -> Baseline:
        return read_baseline(self._pipeline, self._ledger, self._families, beside=plan.builds_beside)

    def _digest(self, plan: IndexPlan, baseline: Baseline) -> str:
        return settings_digest(self._pipeline, baseline, in_place=plan.in_place)

    def _check(self, plan: IndexPlan, baseline: Baseline) -> Share | None:
        """Conflict if something changed since the plan. Workers of the same run may change the ledger."""
        moved, share = "", None
        if plan.settings_digest != self._digest(plan, baseline):
            moved = "the settings"
        else:
            share = self._ledger.join(order_of(plan))
            if share is None and plan.revision != self._ledger.revision():
                moved = "the ledger"
            elif plan.corpus_digest != corpus_digest(self._pipeline.source):
                moved = "the documents"
        if moved:
            raise Conflict(f"{moved} changed since the plan was made", hint="Make a new plan, and check it.")
        return share

    def _probe(self, plan: IndexPlan, baseline: Baseline) -> bool:
        for each in plan.channels:
            if each.probe_texts:
                embedder = self._embedder(baseline.channels[each.channel])
                if not self._budget.allows(len(CANARIES), embedder.price(CANARIES)[1]):
                    return False
                probe(embedder, self._ledger, baseline.live)
                self._applied.probe_texts += each.probe_texts
        return True

    def _embedder(self, channel: Resolved, share: Share | None = None, *, retry_failed: bool = False) -> Embedder:
        return Embedder(channel, self._context, claims=share, retry_failed=retry_failed)

    def _base(self, baseline: Baseline) -> Generation:
        """Return the generation to publish in; begin it if the shape is new. Drop one begun for another shape."""
        described = {name: each.described() for name, each in baseline.channels.items()}
        for each in self._ledger.generations():
            if each.state == "building" and (baseline.base is None or each.number != baseline.base.number):
                forget(self._ledger, self._pipeline.store, each)
        base = baseline.base or self._ledger.begin(baseline.shape, described, self._pipeline.store.identity)
        if baseline.base is None:
            shapes = {name: each.shape for name, each in baseline.channels.items()}
            fingerprint = {
                "ledger": self._ledger.id(),
                "generation": base.number,
                "shape": base.shape,
                "channels": described,
            }
            self._pipeline.store.create(base.collection, shapes, fingerprint)
        return base

    # documents

    def _work(self, plan: IndexPlan, baseline: Baseline, share: Share, base: Generation) -> DocumentQueue:
        embedders = {
            name: self._embedder(each, share, retry_failed=plan.retry_failed)
            for name, each in baseline.channels.items()
        }
        return DocumentQueue(
            self._pipeline, self._ledger, share, base, embedders,
            retry_failed=plan.retry_failed, on_published=self._published,
        )  # fmt: skip

    def _publish(self, work: DocumentQueue, share: Share) -> None:
        """Go through the source until nothing is left, including what dead workers had claimed (P9)."""
        while True:
            self._add_documents(work, share)
            if not work.finish(is_stopped=bool(self._applied.stopped)):
                self._applied.stopped = _USED_UP
            if self._applied.stopped:
                return
            self._applied.deleted += work.delete(sorted(share.claim(share.deletions())))
            if not share.left():
                return

    def _add_documents(self, work: DocumentQueue, share: Share) -> None:
        wanted = dict(share.wanted())
        documents = (document for document in self._pipeline.source if document.name in wanted) if wanted else iter(())
        while some := list(islice(documents, _CLAIMED)):
            own = share.claim([document.name for document in some])
            for document in some:
                content = wanted.pop(document.name)
                if document.name in own and not work.add(document, content):
                    self._applied.stopped = _USED_UP
                    return
        share.moved(sorted(share.claim(list(wanted))))  # not in the source any more

    def _end(self, plan: IndexPlan, baseline: Baseline, share: Share, base: Generation) -> None:
        """End the run, unless another worker did."""
        applied = self._applied
        applied.moved = share.all_moved()
        if applied.stopped:
            self._ledger.fail(plan.failures)
        elif share.is_open():
            try:
                self._ledger.fail(plan.failures)
                self._go_live(baseline, base, plan)
            finally:
                share.close()
        else:
            applied.is_live = any(
                each.number == base.number and each.state == "live" for each in self._ledger.generations()
            )

    def _go_live(self, baseline: Baseline, base: Generation, plan: IndexPlan) -> None:
        """Make a new generation live once it is verified (P3); for the live one only update its description."""
        described = {name: each.described() for name, each in baseline.channels.items()}
        if base.state == "live":
            if described != base.channels:
                self._ledger.describe(base.number, described)
            if self._pipeline.store.live() != base.collection:  # a rollback was interrupted
                self._pipeline.store.make_live(base.collection)
            self._applied.is_live = True
            return
        lost = [each.document for each in plan.failures if self._is_live(baseline, each.document)]
        if lost or self._applied.moved:
            self._applied.stopped = f"{(lost or self._applied.moved)[0]} would be lost: the new index is not live yet"
            return
        report = verify.check(self._ledger, self._pipeline.store, base, baseline.channels, sample=_COMPARED)
        if not report.ok:
            verify.schedule_repair(self._ledger, self._pipeline.store, base, report)
            raise Damaged(f"the new collection {base.collection} is incomplete", hint="Plan and apply again.")
        forget_old(
            self._ledger, self._pipeline.store, keep=0
        )  # first: the live generation becomes the one to roll back to
        self._pipeline.store.make_live(base.collection)
        self._ledger.make_live(base.number)
        self._applied.is_live = True
        forget_old(self._ledger, self._pipeline.store, keep=1)

    def _is_live(self, baseline: Baseline, name: str) -> bool:
        return baseline.live is not None and bool(self._ledger.docs(baseline.live.number, [name]))

    def _published(self, published: int) -> None:
        """Count published documents and report progress."""
        self._applied.published += published
        self._account()
        if time.monotonic() - self._noted_s >= _NOTED_EVERY_S:
            self._noted_s = time.monotonic()
            self._note(None)
        if self._on_progress:
            self._on_progress(self._applied)

    def _ended(self) -> Applied:
        self._account()
        self._applied.failures = self._ledger.failures()
        return self._applied

    def _account(self) -> None:
        """Record the cost so far."""
        applied = self._applied
        applied.tokens, applied.usd = self._budget.tokens, self._budget.usd
        applied.embedded = self._budget.texts - applied.probe_texts


def _recorded(plan: IndexPlan, generation: int) -> dict[str, Any]:
    """Return what the record of a run says of its plan."""
    names = ("to_embed", "tokens", "usd", "builds_beside")
    settings = [f"{each.name} was {each.old!r} and is {each.new!r}" for each in plan.settings]
    reasons = [f"{each.channel}: {one.reason}" for each in plan.channels for one in each.decisions]
    about = {"documents": len(plan.documents), "deleted": len(plan.deleted), "generation": generation}
    return about | {name: getattr(plan, name) for name in names} | {"settings": settings, "reasons": reasons}


def order_of(plan: IndexPlan) -> Order:
    """Return what workers have to agree on."""
    return Order(
        plan.settings_digest,
        plan.corpus_digest,
        plan.retry_failed,
        plan.revision,
        {each.name: each.content for each in plan.documents},
        plan.deleted,
    )


def check_limits(plan: IndexPlan, *, max_usd: float | None, accept_loss: bool, allow_empty: bool) -> None:
    """Refuse a plan that needs a consent or a price that is missing (P1: an empty source does not empty an index)."""
    lossy = [(each, one) for each in plan.channels for one in each.decisions if one.is_lossy]
    if lossy and not accept_loss:
        measured = lossy[0][0].overlap
        kept = "" if measured is None else f": {measured:.0%} of nearest neighbours stay"
        raise Refused(f"answers may get worse: {lossy[0][1].reason}{kept}", remedy=Remedy("accept_loss"))
    if max_usd is not None and not max_usd >= 0:  # NaN would limit nothing
        raise Refused(f"invalid max_usd {max_usd}", hint="Give 0 or more.")
    if max_usd is not None and plan.usd is None:
        raise Refused("the price of the model is unknown", remedy=Remedy("limit_embeds"))
    is_all_new = all(each.kind is DocumentChange.NEW for each in plan.documents)
    if plan.deleted and is_all_new and not (plan.unchanged or allow_empty):
        raise Refused(
            "the source no longer has any document of the index",
            hint="Check that it is the right source.",
            remedy=Remedy("allow_empty"),
        )


def forget(ledger: Ledger, store: VectorStore, generation: Generation) -> None:
    """Drop a generation. Its record is deleted last: an unrecorded collection would stay for ever."""
    fingerprint = store.fingerprint(generation.collection) or {}
    if generation.store == store.identity or fingerprint.get("ledger") == ledger.id():  # its folder may have been moved
        _finish_swap(ledger, store, generation)
        store.drop(generation.collection)
    ledger.forget(generation.number)


def forget_old(ledger: Ledger, store: VectorStore, *, keep: int) -> int:
    """Drop kept generations except the newest `keep`, and those whose collection is gone; return how many."""
    kept = [each for each in ledger.generations() if each.state == "kept"]
    there = [each for each in kept if not _is_gone(store, each)]
    stay = {each.number for each in there[len(there) - keep :]} if keep else set()
    gone = [each for each in kept if each.number not in stay]
    for each in gone:
        forget(ledger, store, each)
    return len(gone)


def _finish_swap(ledger: Ledger, store: VectorStore, generation: Generation) -> None:
    """Make the recorded live generation live in the store if a swap or a rollback was interrupted."""
    if store.live() == generation.collection:
        for each in ledger.generations():
            if each.state == "live" and store.fingerprint(each.collection) is not None:
                store.make_live(each.collection)


def _is_gone(store: VectorStore, generation: Generation) -> bool:
    return generation.store == store.identity and store.fingerprint(generation.collection) is None
