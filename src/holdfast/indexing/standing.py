"""What there is before a plan: which generation goes on, which is live, and whether the store is still theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.indexing.families import Families
from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.spaces import Resolved, resolve, shape_digest
from holdfast.indexing.store import VectorStore


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a plan starts from."""

    channels: Mapping[str, Resolved]
    shape: str
    live: Generation | None
    base: Generation | None
    """The generation that documents are published in; None if it is yet to be begun."""
    intents: Mapping[str, tuple[str, ...]]
    failing: frozenset[str]
    findings: tuple[str, ...]
    is_moved: bool
    """Whether the live index lies in another store, or is not there any more."""

    @property
    def builds_beside(self) -> bool:
        """Whether what is published is not live yet."""
        return self.base is None or self.base.state != "live"


def look(pipeline: Pipeline, ledger: Ledger, families: Families, *, beside: bool = False) -> Ground:
    """Look at the ledger and at what the store says of itself.

    With `beside`, the live generation stays as it is although its shape fits: a whole new one takes its place.
    """
    store = pipeline.store
    generations = ledger.generations()
    live = next((each for each in generations if each.state == "live"), None)
    channels = resolve(pipeline, ledger, live, families)
    shape = shape_digest(channels, store.identity)
    findings: list[str] = []
    fitting = [each for each in generations if each.state in ("live", "building") and each.shape == shape]
    there = [each for each in fitting if _is_there(store, ledger, each, findings)]
    usable = live if live in there else None
    building = next((each for each in reversed(there) if each.state == "building"), None)
    base = building if beside or usable is None else usable
    is_moved = live is not None and (live.store != store.identity or (live.shape == shape and usable is None))
    if live is not None and live.store != store.identity:
        findings.append(f"the index moves from {live.store} to {store.identity}")
    current = store.live()
    if current is not None and current not in {each.collection for each in generations}:
        findings.append(f"the store's live collection {current} was not made by this ledger")
    elif usable is not None and current != usable.collection:
        findings.append(f"the store asks {current}, not {usable.collection}; an apply repairs it")
    return Ground(
        channels, shape, live, base,
        intents=ledger.open_intents(base.number) if base else {},
        failing=frozenset(each.document for each in ledger.failures()),
        findings=tuple(findings), is_moved=is_moved,
    )  # fmt: skip


def _is_there(store: VectorStore, ledger: Ledger, generation: Generation, findings: list[str]) -> bool:
    """Whether a collection is the one that the ledger knows: it says so itself, and has not lost points."""
    said = store.fingerprint(generation.collection)
    if said is None:
        if generation.state == "live":
            findings.append(f"the store was wiped: {generation.collection} is not there")
        return False
    if (said.get("ledger"), said.get("shape")) != (ledger.id(), generation.shape):
        findings.append(f"the store was replaced: {generation.collection} is of another index")
        return False
    if generation.state == "live" and not ledger.open_intents(generation.number):
        more = store.count(generation.collection) - ledger.point_count(generation.number)
        if more < 0:
            findings.append(f"{generation.collection} has lost points; verify(repair=True) brings them back")
        elif more:
            findings.append(f"{generation.collection} has points of no document; verify(repair=True) takes them out")
    return True
