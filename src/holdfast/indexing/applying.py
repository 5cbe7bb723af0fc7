"""Carrying out a plan. What it does is written down step by step, so that a kill costs one batch at most."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from holdfast.errors import Conflict, Damaged, Refused, Unavailable
from holdfast.indexing import checking
from holdfast.indexing.embedding import Budget, Embedder
from holdfast.indexing.families import Families
from holdfast.indexing.keeping import forget, forget_old
from holdfast.indexing.ledger import Failure, Generation, Ledger
from holdfast.indexing.ledger.shares import Order, Share
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.plan import IndexPlan, Kind
from holdfast.indexing.planning import Planner, corpus_digest, settings_digest
from holdfast.indexing.probing import probe
from holdfast.indexing.spaces import CANARIES, Resolved
from holdfast.indexing.standing import Ground, look
from holdfast.indexing.working import Work

_CLAIMED = 16
"""How many documents a worker takes at a time."""
_COMPARED = 1000
"""How many vectors of a new index are compared before it goes live."""
_USED_UP = "the budget is used up"


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
        with self._ledger.turn():
            begun = self._begin(plan)
        if begun is None:
            self._applied.stopped = "the budget does not cover the canary texts"
            self._ledger.fail(plan.failures)
            return self._ended()
        plan, ground, share = begun
        base = next(each for each in self._ledger.generations() if each.number == share.generation)
        try:
            self._publish(self._work(plan, ground, share, base), share)
            with self._ledger.turn():
                self._end(plan, ground, share, base)
        finally:
            with contextlib.suppress(Unavailable):  # its lease ends by itself
                share.release()
        return self._ended()

    def _begin(self, plan: IndexPlan) -> tuple[IndexPlan, Ground, Share] | None:
        """Take part in the run that does this, or begin it; None if the budget does not even cover the canaries."""
        ground = self._ground(plan)
        share = self._check(plan, ground)
        if share is not None and not share.is_open():  # others have done it all: no model is needed
            return plan, ground, share
        if not self._probe(plan, ground):
            return None
        if any(each.probe_texts for each in plan.channels):
            ground = self._ground(plan)
            if self._digest(plan, ground) != plan.settings_digest:  # a probe found it to be cheaper
                plan = self._again(plan)
                ground = self._ground(plan)  # the same shape now, and perhaps another chunker than the live index's
                share = self._ledger.join(order_of(plan))
        if share is None:
            share = self._ledger.open(order_of(plan), self._base(ground).number)
        return plan, ground, share

    def _again(self, plan: IndexPlan) -> IndexPlan:
        """The plan as it is with what a probe found. Conflict if that costs more than was agreed to, or answers."""
        found = self._planner(plan).make()
        if found.is_lossy and not plan.is_lossy:
            raise Conflict("it is the same model, and answers may get worse", hint="Make a new plan, and look at it.")
        if found.to_embed > plan.to_embed or found.tokens > plan.tokens:
            raise Conflict("a model is not the one that the plan was made for", hint="Make a new plan, and look at it.")
        return found

    def _planner(self, plan: IndexPlan) -> Planner:
        return Planner(
            self._pipeline, self._ledger, self._families, retry_failed=plan.retry_failed, in_place=plan.in_place
        )

    def _ground(self, plan: IndexPlan) -> Ground:
        return look(self._pipeline, self._ledger, self._families, beside=plan.builds_beside)

    def _digest(self, plan: IndexPlan, ground: Ground) -> str:
        return settings_digest(self._pipeline, ground, in_place=plan.in_place)

    def _check(self, plan: IndexPlan, ground: Ground) -> Share | None:
        """Conflict if something moved since the plan. Workers that joined the run moved the ledger: they may."""
        moved, share = "", None
        if plan.settings_digest != self._digest(plan, ground):
            moved = "the settings"
        else:
            share = self._ledger.join(order_of(plan))
            if share is None and plan.revision != self._ledger.revision():
                moved = "the ledger"
            elif plan.corpus_digest != corpus_digest(self._pipeline.source):
                moved = "the documents"
        if moved:
            raise Conflict(f"{moved} changed since the plan was made", hint="Make a new plan, and look at it.")
        return share

    def _probe(self, plan: IndexPlan, ground: Ground) -> bool:
        for each in plan.channels:
            if each.probe_texts:
                embedder = self._embedder(ground.channels[each.channel])
                if not self._budget.allows(len(CANARIES), embedder.price(CANARIES)[1]):
                    return False
                probe(embedder, self._ledger, ground.live)
                self._applied.probe_texts += each.probe_texts
        return True

    def _embedder(self, channel: Resolved, share: Share | None = None, *, retry_failed: bool = False) -> Embedder:
        return Embedder(
            channel, self._ledger, self._families, self._budget,
            paying=share, retry_failed=retry_failed, on_batch=lambda: self._published(0), sleep=self._sleep,
        )  # fmt: skip

    def _base(self, ground: Ground) -> Generation:
        """The generation to publish in, begun if the shape is new. One begun for another shape is dropped."""
        described = {name: each.described() for name, each in ground.channels.items()}
        for each in self._ledger.generations():
            if each.state == "building" and (ground.base is None or each.number != ground.base.number):
                forget(self._ledger, self._pipeline.store, each)
        base = ground.base or self._ledger.begin(ground.shape, described, self._pipeline.store.identity)
        if ground.base is None:
            shapes = {name: each.shape for name, each in ground.channels.items()}
            said = {"ledger": self._ledger.id(), "generation": base.number, "shape": base.shape, "channels": described}
            self._pipeline.store.create(base.collection, shapes, said)
        return base

    # documents

    def _work(self, plan: IndexPlan, ground: Ground, share: Share, base: Generation) -> Work:
        embedders = {
            name: self._embedder(each, share, retry_failed=plan.retry_failed) for name, each in ground.channels.items()
        }
        return Work(
            self._pipeline, self._ledger, share, base, embedders,
            retry_failed=plan.retry_failed, on_published=self._published,
        )  # fmt: skip

    def _publish(self, work: Work, share: Share) -> None:
        """Go through the source until nothing is left: what a worker that died had claimed is taken over."""
        while True:
            self._go_through(work, share)
            if not work.finish(is_stopped=bool(self._applied.stopped)):
                self._applied.stopped = _USED_UP
            if self._applied.stopped:
                return
            self._applied.deleted += work.delete(sorted(share.claim(share.deletions())))
            if not share.left():
                return

    def _go_through(self, work: Work, share: Share) -> None:
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

    def _end(self, plan: IndexPlan, ground: Ground, share: Share, base: Generation) -> None:
        """End the run, unless somebody else did."""
        applied = self._applied
        applied.moved = share.all_moved()
        if applied.stopped:
            self._ledger.fail(plan.failures)
        elif share.is_open():
            try:
                self._ledger.fail(plan.failures)
                self._go_live(ground, base, plan)
            finally:
                share.close()
        else:
            applied.is_live = any(
                each.number == base.number and each.state == "live" for each in self._ledger.generations()
            )

    def _go_live(self, ground: Ground, base: Generation, plan: IndexPlan) -> None:
        """Make what was built beside the live one, once it is proved to be whole; else only say how it is described."""
        described = {name: each.described() for name, each in ground.channels.items()}
        if base.state == "live":
            if described != base.channels:
                self._ledger.describe(base.number, described)
            if self._pipeline.store.live() != base.collection:  # a rollback was cut off
                self._pipeline.store.make_live(base.collection)
            self._applied.is_live = True
            return
        lost = [each.document for each in plan.failures if self._is_live(ground, each.document)]
        if lost or self._applied.moved:
            self._applied.stopped = f"{(lost or self._applied.moved)[0]} would be lost: the new index is not live yet"
            return
        report = checking.check(self._ledger, self._pipeline.store, base, ground.channels, sample=_COMPARED)
        if not report.ok:
            checking.have_mended(self._ledger, self._pipeline.store, base, report)
            raise Damaged(f"the new collection {base.collection} is not whole", hint="Plan and apply again.")
        forget_old(self._ledger, self._pipeline.store, keep=0)  # first: what is live now is the one to go back to
        self._pipeline.store.make_live(base.collection)
        self._ledger.make_live(base.number)
        self._applied.is_live = True
        forget_old(self._ledger, self._pipeline.store, keep=1)

    def _is_live(self, ground: Ground, name: str) -> bool:
        return ground.live is not None and bool(self._ledger.docs(ground.live.number, [name]))

    def _published(self, published: int) -> None:
        """Count documents as published, and tell how far it is."""
        self._applied.published += published
        self._account()
        if self._on_progress:
            self._on_progress(self._applied)

    def _ended(self) -> Applied:
        self._account()
        self._applied.failures = self._ledger.failures()
        return self._applied

    def _account(self) -> None:
        """Say what it cost so far."""
        applied = self._applied
        applied.tokens, applied.usd = self._budget.tokens, self._budget.usd
        applied.embedded = self._budget.texts - applied.probe_texts


def order_of(plan: IndexPlan) -> Order:
    """What workers have to agree on."""
    return Order(
        plan.settings_digest,
        plan.corpus_digest,
        plan.retry_failed,
        plan.revision,
        {each.name: each.content for each in plan.documents},
        plan.deleted,
    )


def refuse(plan: IndexPlan, *, max_usd: float | None, accept_loss: bool, allow_empty: bool) -> None:
    """Refuse a plan that needs a word more than it was given."""
    lossy = [(each, one) for each in plan.channels for one in each.decisions if one.is_lossy]
    if lossy and not accept_loss:
        measured = lossy[0][0].overlap
        kept = "" if measured is None else f": {measured:.0%} of nearest neighbours stay"
        raise Refused(f"answers may get worse: {lossy[0][1].reason}{kept}", hint="Pass accept_loss=True.")
    if max_usd is not None and not max_usd >= 0:  # what is no number limits nothing
        raise Refused(f"the limit is {max_usd} dollars", hint="Give 0 or more.")
    if max_usd is not None and plan.usd is None:
        raise Refused("nobody said what the model costs", hint="Give usd_per_mtok, or max_embeds instead of max_usd.")
    if plan.deleted and not (plan.unchanged or allow_empty) and all(each.kind is Kind.NEW for each in plan.documents):
        raise Refused(
            "the source has no document of the index any more",
            hint="See that it is the right one. Pass allow_empty=True if all are to be taken out of the index.",
        )
