"""Whether a store holds exactly what the ledger says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.spaces import Resolved
from holdfast.indexing.store import VectorStore


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What is wrong with an index."""

    points: int
    """How many there should be."""
    missing: tuple[tuple[str, str], ...] = ()
    """Points that are not in the store, with their documents."""
    orphans: tuple[str, ...] = ()
    """Points in the store that no document has."""
    misshapen: tuple[tuple[str, str], ...] = ()
    """Points whose vectors are missing or of another length, with their documents."""
    findings: tuple[str, ...] = ()
    repaired: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.missing or self.orphans or self.misshapen or self.findings)


def check(ledger: Ledger, store: VectorStore, generation: Generation, channels: Mapping[str, Resolved]) -> IndexReport:
    """Compare every point. What a killed run had added counts as an orphan until its document is done."""
    said = store.fingerprint(generation.collection)
    findings = []
    if said is None:
        findings.append(f"the store was wiped: {generation.collection} is not there")
    elif (said.get("ledger"), said.get("shape")) != (ledger.id(), generation.shape):
        findings.append(f"the store was replaced: {generation.collection} is of another index")
    elif generation.state == "live" and store.live() != generation.collection:
        findings.append(f"the store asks {store.live()}, not {generation.collection}")
    expected = dict(ledger.all_points(generation.number))
    shapes = {name: each.shape for name, each in channels.items()}
    total, orphans, misshapen = len(expected), [], []
    for point, document, found in store.scan(generation.collection) if said is not None else ():
        if expected.pop(point, None) is None:
            orphans.append(point)
        elif not found or any(name not in shapes or not shapes[name].fits(size) for name, size in found.items()):
            misshapen.append((point, document))
    return IndexReport(total, tuple(sorted(expected.items())), tuple(orphans), tuple(misshapen), tuple(findings))
