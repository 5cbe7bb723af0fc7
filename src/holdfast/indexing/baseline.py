"""The state before a plan: which generation is live, which is being built, and whether the store is still ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.model_families import Families
from holdfast.indexing.pipeline import Pipeline
from holdfast.indexing.spaces import Resolved, resolve, shape_digest
from holdfast.indexing.vector_store import VectorStore


@dataclass(frozen=True, slots=True)
class Baseline:
    """The state that a plan starts from."""

    channels: Mapping[str, Resolved]
    shape: str
    live: Generation | None
    base: Generation | None
    """The generation that documents are published in; None if it does not exist yet."""
    intents: Mapping[str, tuple[str, ...]]
    failing: frozenset[str]
    findings: tuple[str, ...]
    is_moved: bool
    """Whether the live index is in another store, or is gone."""

    @property
    def builds_beside(self) -> bool:
        """Whether documents are published to a generation that is not live yet."""
        return self.base is None or self.base.state != "live"


def read_baseline(pipeline: Pipeline, ledger: Ledger, families: Families, *, beside: bool = False) -> Baseline:
    """Read the state of the ledger and of the store.

    With `beside`, the live generation is not changed although its shape fits: a complete new one replaces it.
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
        findings.append(f"the live collection of the store is {current}, not {usable.collection}; an apply repairs it")
    return Baseline(
        channels, shape, live, base,
        intents=ledger.open_intents(base.number) if base else {},
        failing=frozenset(each.document for each in ledger.failures()),
        findings=tuple(findings), is_moved=is_moved,
    )  # fmt: skip


def _is_there(store: VectorStore, ledger: Ledger, generation: Generation, findings: list[str]) -> bool:
    """Whether a collection is the one of the ledger, by its own metadata; add what is odd to `findings` (P4)."""
    fingerprint = store.fingerprint(generation.collection)
    if fingerprint is None:
        if generation.state == "live":
            findings.append(f"the store was wiped: {generation.collection} does not exist")
        return False
    if (fingerprint.get("ledger"), fingerprint.get("shape")) != (ledger.id(), generation.shape):
        findings.append(f"the store was replaced: {generation.collection} belongs to another index")
        return False
    if generation.state == "live" and not ledger.open_intents(generation.number):
        more = store.count(generation.collection) - ledger.point_count(generation.number)
        if more < 0:
            findings.append(f"{generation.collection} has lost points; a repair restores them")
        elif more:
            findings.append(f"{generation.collection} has points without a document; a repair removes them")
    return True
