"""In which space the vectors of each channel lie, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.digest import digest
from holdfast.errors import Refused
from holdfast.indexing.deciding import Standing, standing
from holdfast.indexing.families import Families
from holdfast.indexing.ledger import Generation, Ledger, vector_key
from holdfast.indexing.pipeline import Channel, Pipeline
from holdfast.indexing.vectors import Shape

CANARIES = (
    "The quick brown fox jumps over the lazy dog.",
    "def add(left, right): return left + right",
    "Interest rates rose by a quarter of a point.",
    "Wash the lentils and let them simmer for twenty minutes.",
    "SELECT name FROM users WHERE id = 7",
    "La mer est calme ce soir.",
    "A proof by induction on the length of the list.",
    "0123456789",
)
"""Texts of many kinds, by whose vectors a model is known again."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A channel and its place."""

    name: str
    channel: Channel
    label: str
    space: str
    old_space: str | None
    """Of the vectors that are live."""
    standing: Standing
    native: int | None
    """How many numbers a cached vector has."""

    @property
    def dimension(self) -> int | None:
        """How many numbers are stored; None as long as nobody knows, and if there is no such number."""
        if self.channel.is_sparse:
            return None
        return self.channel.dimension or self.native

    @property
    def shape(self) -> Shape:
        """How its vectors lie in a store. Refused if the model has too few numbers."""
        if self.channel.is_sparse:
            return Shape(0, self.channel.datatype)
        wanted = self.dimension
        if wanted is None or (self.native is not None and wanted > self.native):
            raise Refused(
                f"{self.channel.model} has {self.native} numbers, not {wanted}", hint="Ask for fewer, or for none."
            )
        return Shape(wanted, self.channel.datatype)

    def key(self, piece: str) -> str:
        """Names the vector of a chunk, by the digest of its text."""
        return vector_key(self.space, piece)

    def described(self) -> dict[str, Any]:
        """As a ledger and a store hold it."""
        return self.channel.described() | {"space": self.space, "label": self.label}

    def contradictions(self, families: Families) -> Iterator[str]:
        """What the families say of the model and is not so, as far as it is known."""
        known = families.find(self.channel.model)
        lengths = known[0].dimensions if known is not None else ()
        if lengths and self.native is not None and not self.channel.is_sparse and self.native not in lengths:
            said = ", ".join(map(str, lengths))
            yield f"{self.channel.model} has {self.native} numbers; the families say {said}"

    def usd(self, tokens: int, families: Families) -> float | None:
        """What tokens cost; None if nobody said the price."""
        price = self.channel.usd_per_mtok
        known = families.find(self.channel.model)
        if price is None and known is not None:
            price = known[1].usd_per_mtok
        return None if price is None else tokens * price / 1_000_000


def resolve(pipeline: Pipeline, ledger: Ledger, live: Generation | None, families: Families) -> dict[str, Resolved]:
    """Where each channel of a pipeline stands."""
    old = live.channels if live else {}
    return {name: resolve_one(name, each, old.get(name), ledger, families) for name, each in pipeline.channels.items()}


def resolve_one(
    name: str, channel: Channel, old: Mapping[str, Any] | None, ledger: Ledger, families: Families
) -> Resolved:
    """Where a channel stands to one that was described before."""
    known = families.find(channel.model)
    if known is not None and known[0].context_scope == "document" and not channel.sees_document:
        raise Refused(
            f"a vector of {channel.model} depends on the whole document",
            hint='Say so with context_scope="document": each call of the model then has all chunks of one document.',
        )
    label = channel.label
    stands = standing(old, channel.described(), families)
    old_space = old["space"] if old else None
    row = ledger.label(label)
    space = row.space if row else None
    if space is not None and old_space is not None:  # what a probe found counts more than names
        stands = Standing.SAME if space == old_space else Standing.OTHER
    elif stands is Standing.SAME and old is not None and old["label"] != label:
        stands = Standing.UNPROVEN  # some other setting of the model
    if space is None:
        space = old_space if stands.shares_space and old_space else digest("space", label)
    native = ledger.dimension(space)
    found = Resolved(name, channel, label, space, old_space, stands, native)
    if native is not None:
        _ = found.shape  # asked for more than there is: say so now
    return found


def shape_digest(resolved: Mapping[str, Resolved], store: str) -> str:
    """The same for collections that are alike: their points can stand in for each other's."""
    parts = {
        name: (each.space, None if each.dimension == each.native else each.dimension, each.channel.datatype)
        for name, each in resolved.items()
    }
    return digest("shape", store, parts)
