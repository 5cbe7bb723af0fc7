"""Whether a model is the one it was: canary texts are embedded and compared with what they were."""

from __future__ import annotations

from itertools import count, takewhile

from holdfast.digest import digest, digest_bytes
from holdfast.errors import Conflict, HoldfastError, Refused, Unavailable
from holdfast.indexing import sparse, vectors
from holdfast.indexing.deciding import SAME_MODEL, Standing
from holdfast.indexing.embedding import Embedder
from holdfast.indexing.ledger import Generation, LabelRow, Ledger
from holdfast.indexing.spaces import CANARIES, Resolved

_RELATED = 0.5
"""Models of one space are alike in the mean by at least this much; those of two are strangers (below 0.1)."""


def probe(embedder: Embedder, ledger: Ledger, live: Generation | None) -> None:
    """Find out, and write down, in which space a model's vectors lie. Conflict if it is another under an old name."""
    channel = embedder.channel
    found = _ask(embedder, ledger)
    known = ledger.label(channel.label)
    dimension = vectors.dimension_of(found[0])
    if known is not None and known.canaries and not _is_same(channel, found, known.canaries):
        before = _remember(channel, known, found, ledger) or _live_one(channel, ledger, live, found)
        if before is not None:  # it is one that is known: what was paid for it is as good as it was
            ledger.set_label(LabelRow(channel.label, before.space, dimension, found))
            return
        space = digest("space", channel.label, digest_bytes(b"".join(found)))  # of no other model of this name
        ledger.set_label(LabelRow(channel.label, space, dimension, found))
        raise Conflict(
            f"{channel.channel.model} is another model than it was under this name",
            hint="Make a new plan: what it costs to embed everything anew is in it.",
        )
    space = known.space if known else _space(channel, ledger, live, found)
    ledger.set_label(LabelRow(channel.label, space, dimension, found))


def _remember(channel: Resolved, known: LabelRow, found: tuple[bytes, ...], ledger: Ledger) -> LabelRow | None:
    """Keep what a name stood for, and find the one of those before that is the same as now."""
    rows = (ledger.label(f"{known.label}#{number}") for number in count())
    before = [each for each in takewhile(lambda row: row is not None, rows) if each is not None]
    if all(each.space != known.space for each in before):
        kept = LabelRow(f"{known.label}#{len(before)}", known.space, known.dimension, known.canaries)
        ledger.set_label(kept)
    return next((each for each in before if _is_same(channel, found, each.canaries)), None)


def _live_one(channel: Resolved, ledger: Ledger, live: Generation | None, found: tuple[bytes, ...]) -> LabelRow | None:
    """The model that is live, if it is the one that answers, under a name that stood for another."""
    said = live.channels.get(channel.name) if live is not None else None
    row = ledger.label(said["label"]) if said else None
    return row if row is not None and row.canaries and _is_same(channel, found, row.canaries) else None


def _space(channel: Resolved, ledger: Ledger, live: Generation | None, found: tuple[bytes, ...]) -> str:
    if channel.standing not in (Standing.UNPROVEN, Standing.FAMILY, Standing.ALIAS) or live is None:
        return channel.space
    old = ledger.label(live.channels[channel.name]["label"])
    if channel.standing is not Standing.UNPROVEN:
        _check_family(channel, old.canaries if old else (), found)
        return channel.space
    is_same = old is not None and bool(old.canaries) and _is_same(channel, found, old.canaries)
    return old.space if is_same and old else channel.space


def _check_family(channel: Resolved, old: tuple[bytes, ...], found: tuple[bytes, ...]) -> None:
    """Conflict if models that are said to share a space do not: vectors that lie beside each other cannot be parted."""
    alike = vectors.cosines(old, found) if len(old) == len(found) else []
    if alike and sum(alike) / len(alike) < _RELATED:
        raise Conflict(
            f"the families say that {channel.channel.model} shares a space with the model before it, and it does not",
            hint="Take that out of the family file; then a plan says what it costs to embed everything anew.",
        )


def _ask(embedder: Embedder, ledger: Ledger) -> tuple[bytes, ...]:
    channel = embedder.channel
    try:
        found, paid = embedder.ask(CANARIES)
    except HoldfastError:
        raise
    except Exception as error:  # a model is others' code
        raise Unavailable(
            f"{channel.channel.model} does not work: {type(error).__name__}: {error}", hint="See that it can be called."
        ) from error
    ledger.add_batch(paid)  # at once: whatever is made of it, it was paid for
    told = sparse.sketch if channel.channel.is_sparse else bytes
    good = tuple(told(each) for each in found if isinstance(each, bytes))
    if len({len(each) for each in good}) != 1 or len(good) != len(CANARIES):
        reason = next((each for each in found if isinstance(each, str)), "is not as long as the others")
        raise Refused(f"a vector of {channel.channel.model} {reason}", hint="See that the model is the right one.")
    return good


def _is_same(channel: Resolved, ones: tuple[bytes, ...], others: tuple[bytes, ...]) -> bool:
    """Whether one model made both. Of sparse vectors the length counts, too: a search adds up their numbers."""
    if len(ones) != len(others) or min(vectors.cosines(ones, others)) < SAME_MODEL:
        return False
    pairs = zip(vectors.lengths(ones), vectors.lengths(others), strict=True)
    return not channel.channel.is_sparse or all(min(pair) >= SAME_MODEL * max(pair) for pair in pairs)
