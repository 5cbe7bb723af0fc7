"""How much a change of settings costs an index, from nothing to everything."""

from __future__ import annotations

import enum


class ChangeImpact(enum.Enum):
    """What a change means for an index that is there; what comes later costs more. They compare by that.

    Five of the names are those of the predecessor: NONE, COMPATIBLE, QUANTIZABLE, TRANSFORMABLE, BREAKING.
    """

    NONE = "none"
    """Nothing that matters changed."""
    COMPATIBLE = "compatible"
    """Only how queries are made changed, along a documented edge."""
    EQUIVALENT = "equivalent"
    """Another name for the same model: relabel."""
    METADATA = "metadata"
    """Only what is stored beside the vectors changed."""
    LAYOUT = "layout"
    """The vectors stay; the store arranges them anew."""
    QUANTIZABLE = "quantizable"
    """A coarser datatype: made of the vectors that are there."""
    TRANSFORMABLE = "transformable"
    """Other dimensions: made of the vectors that are there."""
    MIGRATABLE = "migratable"
    """Another store: the vectors are copied."""
    INCREMENTAL = "incremental"
    """Documents came, went or changed."""
    CHANNEL = "channel"
    """One kind of vector comes, goes or is made anew; the others stay."""
    RECHUNK = "rechunk"
    """Documents are cut anew; only chunks never seen before are embedded."""
    UNPROVEN = "unproven"
    """Not known to be the same space: a probe decides, else it is embedded anew."""
    REEMBED = "reembed"
    """Other vectors altogether; the chunks stay."""
    BREAKING = "breaking"
    """The index cannot be used as it is, and nothing finer is known."""
    REBUILD = "rebuild"
    """Everything, from the documents on."""

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return _RANKS[self.value]

    @property
    def projected(self) -> ChangeImpact:
        """The nearest of the predecessor's five that promises no more."""
        if self.rank <= ChangeImpact.COMPATIBLE.rank or self in (ChangeImpact.QUANTIZABLE, ChangeImpact.TRANSFORMABLE):
            return self
        return ChangeImpact.COMPATIBLE if self.rank < ChangeImpact.QUANTIZABLE.rank else ChangeImpact.BREAKING

    @property
    def usable(self) -> bool:
        """Whether the index answers correctly as it is."""
        return self.rank <= ChangeImpact.EQUIVALENT.rank

    def __lt__(self, other: object) -> bool:
        return self.rank < other.rank if isinstance(other, ChangeImpact) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.rank <= other.rank if isinstance(other, ChangeImpact) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.rank > other.rank if isinstance(other, ChangeImpact) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.rank >= other.rank if isinstance(other, ChangeImpact) else NotImplemented


_RANKS = {impact.value: rank for rank, impact in enumerate(ChangeImpact)}
