"""The space that the vectors of each channel are in, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.digest import digest
from holdfast.errors import Refused
from holdfast.indexing.channel_changes import SpaceRelation, relate
from holdfast.indexing.ledger import Generation, Ledger, vector_key
from holdfast.indexing.model_families import Families
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
"""Texts of many kinds; their vectors identify a model."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A channel and the space of its vectors."""

    name: str
    channel: Channel
    label: str
    space: str
    old_space: str | None
    """The space of the live vectors."""
    relation: SpaceRelation
    native: int | None
    """The dimension of a cached vector."""

    @property
    def dimension(self) -> int | None:
        """The dimension of a stored vector; None if it is unknown, or if the vectors are sparse."""
        if self.channel.is_sparse:
            return None
        return self.channel.dimension or self.native

    @property
    def shape(self) -> Shape:
        """The shape of its vectors in a store. Refused if the model has too few dimensions."""
        if self.channel.is_sparse:
            return Shape(0, self.channel.datatype)
        wanted = self.dimension
        if wanted is None or (self.native is not None and wanted > self.native):
            raise Refused(
                f"{self.channel.model} has {self.native} dimensions, not {wanted}",
                hint="Set a smaller dimension, or leave it out.",
            )
        return Shape(wanted, self.channel.datatype)

    def key(self, piece: str) -> str:
        """Return the key of the vector of a chunk, from the digest of its text."""
        return vector_key(self.space, piece)

    def described(self) -> dict[str, Any]:
        """Return its description as a ledger and a store contain it."""
        return self.channel.described() | {"space": self.space, "label": self.label}

    def contradictions(self, families: Families) -> Iterator[str]:
        """Yield what the families say about the model and is known to be wrong."""
        known = families.find(self.channel.model)
        lengths = known[0].dimensions if known is not None else ()
        if lengths and self.native is not None and not self.channel.is_sparse and self.native not in lengths:
            known_lengths = ", ".join(map(str, lengths))
            yield f"{self.channel.model} has {self.native} dimensions; the families say {known_lengths}"

    def usd(self, tokens: int, families: Families) -> float | None:
        """Return the price of tokens; None if it is unknown."""
        price = self.channel.usd_per_mtok
        known = families.find(self.channel.model)
        if price is None and known is not None:
            price = known[1].usd_per_mtok
        return None if price is None else tokens * price / 1_000_000


def resolve(pipeline: Pipeline, ledger: Ledger, live: Generation | None, families: Families) -> dict[str, Resolved]:
    """Resolve each channel of a pipeline against the live generation."""
    old = live.channels if live else {}
    return {name: resolve_one(name, each, old.get(name), ledger, families) for name, each in pipeline.channels.items()}


def resolve_one(
    name: str, channel: Channel, old: Mapping[str, Any] | None, ledger: Ledger, families: Families
) -> Resolved:
    """Resolve a channel against the stored description of an earlier one."""
    known = families.find(channel.model)
    if known is not None and known[0].context_scope == "document" and not channel.sees_document:
        raise Refused(
            f"a vector of {channel.model} depends on the whole document",
            hint='Set context_scope="document": each call of the model then gets all chunks of one document.',
        )
    label = channel.label
    relation = relate(old, channel.described(), families)
    old_space = old["space"] if old else None
    row = ledger.label(label)
    space = row.space if row else None
    if space is not None and old_space is not None:  # P2: what a probe measured counts more than names
        relation = SpaceRelation.SAME if space == old_space else SpaceRelation.OTHER
    elif relation is SpaceRelation.SAME and old is not None and old["label"] != label:
        relation = SpaceRelation.UNPROVEN  # another setting of the model changed
    if space is None:
        space = old_space if relation.shares_space and old_space else digest("space", label)
    native = ledger.dimension(space)
    found = Resolved(name, channel, label, space, old_space, relation, native)
    if native is not None:
        _ = found.shape  # raises if the dimension is too large
    return found


def shape_digest(resolved: Mapping[str, Resolved], store: str) -> str:
    """Return a digest that is equal for collections whose points are interchangeable."""
    parts = {
        name: (each.space, None if each.dimension == each.native else each.dimension, each.channel.datatype)
        for name, each in resolved.items()
    }
    return digest("shape", store, parts)
