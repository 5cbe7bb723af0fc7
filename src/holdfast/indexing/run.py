"""A run: plan, apply, resume, verify, roll back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from holdfast.digest import digest_bytes
from holdfast.durable.closing import Closing
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.indexing import apply, verify
from holdfast.indexing.apply import Applied, Applier, forget_old
from holdfast.indexing.baseline import Baseline, read_baseline
from holdfast.indexing.channel_changes import SpaceRelation
from holdfast.indexing.embed import Budget
from holdfast.indexing.ledger import DocRow, Failure, Generation, Ledger, PrunedIndex, RunRecord, open_ledger
from holdfast.indexing.model_families import load_families
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.plan import ChannelPlan, IndexPlan
from holdfast.indexing.planner import IndexPlanner, recipe_digest
from holdfast.indexing.settings import changes
from holdfast.indexing.sources import Document, printable, read
from holdfast.indexing.spaces import resolve_one
from holdfast.indexing.vector_store import Hit
from holdfast.indexing.vectors import Query
from holdfast.indexing.verify import IndexReport
from holdfast.validation import checked_options


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The state of an index."""

    documents: int
    points: int
    interrupted: tuple[str, ...]
    """Documents that a killed run was publishing."""
    failures: tuple[Failure, ...]
    texts: int
    """All texts that were ever sent to models."""
    tokens: int
    usd: float
    generation: int | None
    building: int | None
    can_roll_back: bool


@checked_options
class IndexRun(Closing):
    """One index: a ledger and the pipeline that fills it."""

    def __init__(
        self,
        *,
        ledger: str | os.PathLike[str] | Ledger,
        pipeline: Pipeline,
        families: Iterable[str | Path] = (),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if isinstance(ledger, str | os.PathLike):
            ledger = open_ledger(ledger)
        elif not hasattr(ledger, "working"):
            raise Refused(f"invalid ledger {ledger!r}", hint="Give a path, a postgresql:// URL, or a ledger.")
        self._ledger: Ledger = ledger
        self._pipeline = pipeline
        self._families = load_families(families)
        self._sleep = sleep

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the channels, in the order of the pipeline."""
        return tuple(self._pipeline.channels)

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def plan(self, *, retry_failed: bool = False, in_place: bool = False) -> IndexPlan:
        """Return what an apply would do and cost. No model is called, and nothing is changed.

        A change of chunker or parser builds a new index that replaces the live one. With `in_place` documents are
        replaced one by one instead: that needs less space, but searches meanwhile, and after a kill, find chunks of
        both, and there is nothing to roll back to. A change of model or shape always builds a new index.
        """
        options = {"retry_failed": retry_failed, "in_place": in_place}
        return IndexPlanner(self._pipeline, self._ledger, self._families, **options).make()

    def apply(
        self,
        plan: IndexPlan,
        *,
        max_usd: float | None = None,
        max_embeds: int | None = None,
        accept_loss: bool = False,
        allow_empty: bool = False,
        on_progress: Callable[[Applied], None] | None = None,
    ) -> Applied:
        """Carry out a plan, or the part of it that a budget covers.

        Conflict if settings, ledger or documents changed since it was made, or if another run is active. Whatever
        stops it, the next plan continues there.
        """
        apply.check_limits(plan, max_usd=max_usd, accept_loss=accept_loss, allow_empty=allow_empty)
        budget = Budget(max_usd, max_embeds)
        with self._ledger.working():
            return self._applier(budget, on_progress).apply(plan)

    def status(self) -> IndexStatus:
        """Return the state of the index, from the ledger alone."""
        live, building = self._in("live"), self._in("building")
        current = live or building
        texts, tokens, usd = self._ledger.spent()
        return IndexStatus(
            documents=self._ledger.doc_count(current.number) if current else 0,
            points=self._ledger.point_count(current.number) if current else 0,
            interrupted=tuple(sorted(self._ledger.open_intents(current.number))) if current else (),
            failures=tuple(self._ledger.failures()),
            texts=texts, tokens=tokens, usd=usd,
            generation=live.number if live else None,
            building=building.number if building else None,
            can_roll_back=self._in("kept") is not None,
        )  # fmt: skip

    def history(self, limit: int = 20, *, before: int | None = None) -> list[RunRecord]:
        """Return what was applied, newest first, with its impact; the first may still go on.

        `before` is the number of the last record of one page, for the next.
        """
        return self._ledger.records(limit, before)

    def verify(self, *, repair: bool = False, sample: int | None = None) -> IndexReport:
        """Compare every point of the live index with the ledger; with `repair`, repair what needs no model.

        Vectors are compared number by number if the store can return them: all, or `sample` of them. Conflict if the
        index differs because another run is changing it.
        """
        report = self._check(sample)
        if report.ok:
            return report
        with self._ledger.writing():
            report = self._check(sample)  # again, while no other run writes
            if report.ok or not repair:
                return report
            self._repair(report)
            after = self._check(sample)
            return replace(after, repaired=len(report.wrong - after.wrong))

    def rollback(self) -> int:
        """Make the previous generation live again; return its number. A rollback can be rolled back."""
        with self._ledger.writing():
            kept = self._in("kept")
            if kept is None:
                raise NotFound("there is no generation to roll back to", hint="Only the previous generation is kept.")
            if kept.store != self._pipeline.store.identity:
                raise Refused(f"the previous generation is in {kept.store}", hint="Open the run with that store.")
            if self._pipeline.store.fingerprint(kept.collection) is None:
                raise NotFound(f"the store no longer has {kept.collection}", hint="Apply a plan to create it again.")
            self._pipeline.store.make_live(kept.collection)
            self._ledger.make_live(kept.number)
            return kept.number

    def prune(self, *, keep_generations: int = 1, kept_for: timedelta = timedelta(days=30)) -> PrunedIndex:
        """Delete old generations, vectors that no document has had for `kept_for`, and old records.

        Refused while a run is unfinished: the vectors that it paid for look unused (P1).
        """
        if keep_generations < 0 or kept_for < timedelta(0):
            raise Refused("keep_generations or kept_for is negative", hint="Give 0 or more.")
        with self._ledger.writing():
            live = self._in("live")
            if live is None or self._in("building") or self._ledger.open_intents(live.number):
                raise Refused("the index is not finished", hint="Apply a plan first.")
            forgotten = forget_old(self._ledger, self._pipeline.store, keep=keep_generations)
            return replace(self._ledger.prune(kept_for_s=kept_for.total_seconds()), generations=forgotten)

    def explain(self, name: str) -> list[str]:
        """Return why a document would be indexed again, or is incomplete; empty if it is up to date.

        NotFound if neither the source nor the index has it.
        """
        name = printable(name)
        baseline = read_baseline(self._pipeline, self._ledger, self._families)
        done, live = (self._row(each, name) for each in (baseline.base, baseline.live))
        found = done or live
        document = next((each for each in self._pipeline.source if each.name == name), None)
        if document is None and found is None:
            raise _absence(name, [each.name for each in self._pipeline.source])
        if document is None:
            return ["it is no longer in the source"]
        failed = [_describe_failure(each) for each in self._ledger.failures() if each.document == name]
        why = ["a run was killed while publishing it"] if name in baseline.intents else []
        if found is None:
            return [*why, *(failed or self._of_document(document, "")), "it was never published"]
        why += [*self._of_document(document, found[2]), *self._of_recipe(found[3])]
        return [*why, *failed, *([] if done else _of_shape(baseline))]

    def search(self, channel: str, query: str | Query, *, limit: int = 10) -> list[Hit]:
        """Return the chunks nearest to a query: a text, which is sent to the channel's model, or its vector.

        Conflict for a text if the live vectors are of another model (P2).
        """
        if channel not in self._pipeline.channels:
            names = ", ".join(self._pipeline.channels)
            raise NotFound(f"there is no channel {channel!r}", hint=f"The channels are {names}.")
        vector = self._query_vector(channel, query) if isinstance(query, str) else query
        return self._pipeline.store.search(channel, vector, limit=limit)

    # parts of the above

    def _query_vector(self, name: str, query: str) -> Query:
        """Return the vector of a text. Conflict if its space is not that of the live vectors."""
        channel, store = self._pipeline.channels[name], self._pipeline.store
        live = store.live()
        stored = (store.fingerprint(live) or {}) if live else {}
        found = resolve_one(name, channel, stored.get("channels", {}).get(name), self._ledger, self._families)
        if found.relation in (SpaceRelation.UNPROVEN, SpaceRelation.OTHER):
            raise Conflict(
                f"the live index was not made with the model {channel.model}",
                hint="Apply a plan first, or search with the settings that it was made with.",
            )
        vector: Query = channel.ask(query)
        return vector

    def _applier(self, budget: Budget, on_progress: Callable[[Applied], None] | None = None) -> Applier:
        return Applier(self._pipeline, self._ledger, self._families, budget, on_progress=on_progress, sleep=self._sleep)

    def _in(self, state: str) -> Generation | None:
        return next((each for each in reversed(self._ledger.generations()) if each.state == state), None)

    def _live(self) -> Generation:
        found = self._in("live")
        if found is None:
            raise NotFound("there is no live index", hint="Apply a plan first.")
        return found

    def _check(self, sample: int | None) -> IndexReport:
        live = self._live()
        baseline = read_baseline(self._pipeline, self._ledger, self._families)
        if baseline.shape != live.shape:
            raise Conflict(
                "the settings differ from those of the live index", hint="Apply a plan first, or set them back."
            )
        return verify.check(self._ledger, self._pipeline.store, live, baseline.channels, sample=sample)

    def _repair(self, report: IndexReport) -> None:
        live, store = self._live(), self._pipeline.store
        is_there = store.fingerprint(live.collection) is not None
        if is_there and report.bad and self._is_of_another_chunker(live):
            raise Conflict(
                "the live index was made with another chunker or parser, so its chunks cannot be reproduced",
                hint="Apply a plan: it builds a new index. Or set the chunker back.",
            )
        verify.schedule_repair(self._ledger, store, live, report)
        if is_there and store.live() != live.collection:
            store.make_live(live.collection)
        names = {document for _, document in report.bad}
        plan = self.plan(in_place=True)  # only documents that the live index has from this chunker
        free = tuple(
            each for each in plan.documents if not each.to_embed and (plan.builds_beside or each.name in names)
        )
        if len(free) == len(plan.documents) or not plan.builds_beside:
            small = replace(plan, documents=free, deleted=(), channels=tuple(_unpaid(plan)))
            self._applier(Budget(max_embeds=0)).apply(small)

    def _is_of_another_chunker(self, live: Generation) -> bool:
        own = (0, self._ledger.find_recipe(recipe_digest(self._pipeline)))
        return any(row[3] not in own for row in self._ledger.all_docs(live.number))

    def _row(self, generation: Generation | None, name: str) -> DocRow | None:
        return self._ledger.docs(generation.number, [name]).get(name) if generation else None

    def _of_document(self, document: Document, content: str) -> list[str]:
        try:
            is_same = digest_bytes(read(document)) == content
        except HoldfastError as error:
            return [error.message]
        return [] if is_same or not content else ["its content changed"]

    def _of_recipe(self, recipe: int) -> list[str]:
        if recipe == self._ledger.find_recipe(recipe_digest(self._pipeline)):
            return []
        new = {name: stage.plain() for name, stage in self._pipeline.cutting().items()}
        found = changes(self._ledger.recipe_settings(recipe), new)
        return [f"{each.name} was {each.old!r} and is {each.new!r}" for each in found] or ["it is scheduled for repair"]


def _absence(name: str, names: Sequence[str]) -> NotFound:
    """Return the error for an unknown document, with the nearest name."""
    import difflib  # start-up cost, only for a misspelt name

    near = [each for each in names if each.endswith(f"/{name}")] or difflib.get_close_matches(name, names, n=1)
    rest = f"Documents are named as in the source, such as {names[0]}." if names else "The source has no documents."
    return NotFound(f"there is no document {name!r}", hint=f"Did you mean {near[0]}?" if near else rest)


def _describe_failure(failure: Failure) -> str:
    return f"a chunk of it failed: {failure.reason}" if failure.key else failure.reason


def _of_shape(baseline: Baseline) -> list[str]:
    why = [f"the models, dimensions or the store changed: {each}" for each in baseline.findings]
    return why or ["the models, dimensions or datatypes changed"]


def _unpaid(plan: IndexPlan) -> Iterable[ChannelPlan]:
    return (replace(each, probe_texts=0) for each in plan.channels)
