"""Detect whether a model is still the same, by the vectors of canary texts."""

from __future__ import annotations

from itertools import count, takewhile

from holdfast.digest import digest, digest_bytes
from holdfast.errors import Conflict, HoldfastError, Refused, Unavailable
from holdfast.indexing import sparse_vectors, vectors
from holdfast.indexing.channel_changes import SAME_MODEL, SpaceRelation
from holdfast.indexing.embed import Embedder
from holdfast.indexing.ledger import Generation, LabelRow, Ledger
from holdfast.indexing.spaces import CANARIES, Resolved

_RELATED = 0.5
"""The least mean cosine of two models of one space; models of two spaces are below 0.1."""


def probe(embedder: Embedder, ledger: Ledger, live: Generation | None) -> None:
    """Find and record the space of a model's vectors. Conflict if it is another model under an old name."""
    channel = embedder.channel
    found = _ask(embedder, ledger)
    known = ledger.label(channel.label)
    dimension = vectors.dimension_of(found[0])
    if known is not None and known.canaries and not _is_same(channel, found, known.canaries):
        before = _remember(channel, known, found, ledger) or _live_one(channel, ledger, live, found)
        if before is not None:  # P1: a known model is back; what was paid for it counts again
            ledger.set_label(LabelRow(channel.label, before.space, dimension, found))
            return
        space = digest("space", channel.label, digest_bytes(b"".join(found)))  # shared with no other model of this name
        ledger.set_label(LabelRow(channel.label, space, dimension, found))
        raise Conflict(
            f"the model {channel.channel.model} was replaced by another one with the same name",
            hint="Make a new plan: it shows the cost of embedding everything again.",
        )
    space = known.space if known else _space(channel, ledger, live, found)
    ledger.set_label(LabelRow(channel.label, space, dimension, found))


def _remember(channel: Resolved, known: LabelRow, found: tuple[bytes, ...], ledger: Ledger) -> LabelRow | None:
    """Record what a name stood for; return the earlier model of that name that equals the current one."""
    rows = (ledger.label(f"{known.label}#{number}") for number in count())
    before = [each for each in takewhile(lambda row: row is not None, rows) if each is not None]
    if all(each.space != known.space for each in before):
        kept = LabelRow(f"{known.label}#{len(before)}", known.space, known.dimension, known.canaries)
        ledger.set_label(kept)
    return next((each for each in before if _is_same(channel, found, each.canaries)), None)


def _live_one(channel: Resolved, ledger: Ledger, live: Generation | None, found: tuple[bytes, ...]) -> LabelRow | None:
    """Return the live model if it is the one that answers now, under the name of another."""
    described = live.channels.get(channel.name) if live is not None else None
    row = ledger.label(described["label"]) if described else None
    return row if row is not None and row.canaries and _is_same(channel, found, row.canaries) else None


def _space(channel: Resolved, ledger: Ledger, live: Generation | None, found: tuple[bytes, ...]) -> str:
    if channel.relation not in (SpaceRelation.UNPROVEN, SpaceRelation.FAMILY, SpaceRelation.ALIAS) or live is None:
        return channel.space
    old = ledger.label(live.channels[channel.name]["label"])
    if channel.relation is not SpaceRelation.UNPROVEN:
        _check_family(channel, old.canaries if old else (), found)
        return channel.space
    is_same = old is not None and bool(old.canaries) and _is_same(channel, found, old.canaries)
    return old.space if is_same and old else channel.space


def _check_family(channel: Resolved, old: tuple[bytes, ...], found: tuple[bytes, ...]) -> None:
    """Conflict if models do not share a space as the families say: mixed vectors could not be separated later (P2)."""
    alike = vectors.cosines(old, found) if len(old) == len(found) else []
    if alike and sum(alike) / len(alike) < _RELATED:
        raise Conflict(
            f"{channel.channel.model} does not share a space with the model before it, although the families say so",
            hint="Remove that entry from the family file; then a plan shows the cost of embedding everything again.",
        )


def _ask(embedder: Embedder, ledger: Ledger) -> tuple[bytes, ...]:
    channel = embedder.channel
    try:
        found, paid = embedder.ask(CANARIES)
    except HoldfastError:
        raise
    except Exception as error:  # a model may raise anything
        raise Unavailable(
            f"the model {channel.channel.model} failed: {type(error).__name__}: {error}",
            hint="Check that it can be called.",
        ) from error
    ledger.add_batch(paid)  # P1: first of all, because it was paid for
    summary = sparse_vectors.sketch if channel.channel.is_sparse else bytes
    good = tuple(summary(each) for each in found if isinstance(each, bytes))
    if len({len(each) for each in good}) != 1 or len(good) != len(CANARIES):
        reason = next((each for each in found if isinstance(each, str)), "has another length than the others")
        raise Refused(f"a vector of {channel.channel.model} {reason}", hint="Check that it is the right model.")
    return good


def _is_same(channel: Resolved, ones: tuple[bytes, ...], others: tuple[bytes, ...]) -> bool:
    """Whether one model made both. Sparse vectors must also have equal lengths: a search adds up their numbers."""
    if len(ones) != len(others) or min(vectors.cosines(ones, others)) < SAME_MODEL:
        return False
    pairs = zip(vectors.lengths(ones), vectors.lengths(others), strict=True)
    return not channel.channel.is_sparse or all(min(pair) >= SAME_MODEL * max(pair) for pair in pairs)
