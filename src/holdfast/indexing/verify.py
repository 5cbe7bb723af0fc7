"""Compare a store with the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from holdfast.digest import digest_bytes
from holdfast.indexing import vectors
from holdfast.indexing.ledger import Generation, Ledger
from holdfast.indexing.spaces import Resolved
from holdfast.indexing.vector_store import Point, ReadableStore, VectorStore

_BATCH_POINTS = 256


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The differences between a store and the ledger."""

    points: int
    """How many the ledger has."""
    missing: tuple[tuple[str, str], ...] = ()
    """Points that the store lacks, with their documents."""
    orphans: tuple[str, ...] = ()
    """Points in the store that belong to no document, or are duplicates."""
    misshapen: tuple[tuple[str, str], ...] = ()
    """Points whose vectors are missing or of the wrong length, or that exist twice, with their documents."""
    changed: tuple[tuple[str, str], ...] = ()
    """Points whose texts or vectors differ from what was published, with their documents."""
    findings: tuple[str, ...] = ()
    compared: int = 0
    """Points whose texts and vectors were compared; 0 if the store cannot return them."""
    repaired: int = 0
    """Points that were rewritten or deleted."""

    @property
    def ok(self) -> bool:
        """Whether there are no differences."""
        return not (self.bad or self.orphans or self.findings)

    @property
    def bad(self) -> tuple[tuple[str, str], ...]:
        """Points that must be written again, with their documents."""
        return (*self.missing, *self.misshapen, *self.changed)

    @property
    def wrong(self) -> frozenset[str]:
        """Points that differ."""
        return frozenset((*self.orphans, *(point for point, _ in self.bad)))


def check(
    ledger: Ledger,
    store: VectorStore,
    generation: Generation,
    channels: Mapping[str, Resolved],
    *,
    sample: int | None = None,
) -> IndexReport:
    """Compare every point, and texts and vectors of all points or of an evenly spread sample.

    Points that a killed run added count as orphans until their document is published.
    """
    findings = tuple(_findings(ledger, store, generation))
    is_there = store.fingerprint(generation.collection) is not None
    expected = {point: name for name, _, points in ledger.all_points(generation.number) for _, point in points}
    shapes = {name: each.shape for name, each in channels.items()}
    missing, orphans, misshapen = dict(expected), [], []
    for point, _, found in store.scan(generation.collection) if is_there else ():
        is_first = missing.pop(point, None) is not None
        if not is_first:
            orphans.append(point)
        is_fit = found and all(name in shapes and shapes[name].fits(size) for name, size in found.items())
        if point in expected and not (is_first and is_fit):  # a duplicate is deleted wholly, and written again
            misshapen.append((point, expected[point]))  # by the ledger: the document in the store may be wrong, too
    lost = {*missing, *(point for point, _ in misshapen)}
    compared = 0
    changed: list[tuple[str, str]] = []
    if is_there and isinstance(store, ReadableStore):
        step = 1 if sample is None else max(1, -(-len(expected) // max(1, sample)))
        for some in _portions(islice(_placed(ledger, generation), None, None, step)):
            there = {each.id: each for each in some if each.id not in lost}
            compared += len(there)
            changed += _compare(ledger, store, generation, channels, there)
    return IndexReport(
        len(expected), tuple(sorted(missing.items())), tuple(orphans), tuple(misshapen), tuple(changed), findings,
        compared,
    )  # fmt: skip


def schedule_repair(ledger: Ledger, store: VectorStore, generation: Generation, report: IndexReport) -> None:
    """Delete orphans, and let the next plan publish the other differing documents again."""
    if report.orphans:
        store.delete(generation.collection, report.orphans)
    ledger.redo(generation.number, sorted({document for _, document in report.bad}))


def _findings(ledger: Ledger, store: VectorStore, generation: Generation) -> Iterator[str]:
    fingerprint = store.fingerprint(generation.collection)
    if fingerprint is None:
        yield f"the store was wiped: {generation.collection} does not exist"
    elif (fingerprint.get("ledger"), fingerprint.get("shape")) != (ledger.id(), generation.shape):
        yield f"the store was replaced: {generation.collection} belongs to another index"
    elif generation.state == "live" and store.live() != generation.collection:
        yield f"the live collection of the store is {store.live()}, not {generation.collection}"


class _Placed(NamedTuple):
    """A point in the ledger."""

    id: str
    document: str
    ordinal: int
    piece: str
    """The digest of its chunk."""


def _placed(ledger: Ledger, generation: Generation) -> Iterator[_Placed]:
    for name, pieces, points in ledger.all_points(generation.number):
        for ordinal, point in points:
            if ordinal < len(pieces):  # otherwise it is already scheduled for repair, and its chunks are unknown
                yield _Placed(point, name, ordinal, pieces[ordinal])


def _portions(placed: Iterator[_Placed]) -> Iterator[list[_Placed]]:
    while some := list(islice(placed, _BATCH_POINTS)):
        yield some


def _compare(
    ledger: Ledger,
    store: ReadableStore,
    generation: Generation,
    channels: Mapping[str, Resolved],
    points: Mapping[str, _Placed],
) -> Iterator[tuple[str, str]]:
    keys = {(point, name): each.key(points[point].piece) for point in points for name, each in channels.items()}
    cached = ledger.vectors(list(set(keys.values())))
    found = store.read(generation.collection, list(points))
    is_piece_of_text = not any(each.channel.sees_document for each in channels.values())
    for point, placed in points.items():
        own = {name: cached[keys[point, name]] for name in channels if keys[point, name] in cached}
        there = found.get(point)
        is_same = (
            there is not None
            and (there.document, there.ordinal) == (placed.document, placed.ordinal)
            and (not is_piece_of_text or digest_bytes(there.text.encode("utf-8", "surrogatepass")) == placed.piece)
            and _has(there, own, channels)
        )
        if not is_same:
            yield point, placed.document


def _has(point: Point, own: Mapping[str, bytes], channels: Mapping[str, Resolved]) -> bool:
    return point.vectors.keys() == own.keys() and all(
        vectors.alike(point.vectors[name], vectors.derive(blob, channels[name].shape), channels[name].shape)
        for name, blob in own.items()
    )
