"""The impact of a change of settings on an index, from none to a rebuild."""

from __future__ import annotations

import enum


class ChangeImpact(enum.Enum):
    """What a change means for an existing index, in the order of cost. Impacts compare by that order.

    Five of the names are those of the predecessor: NONE, COMPATIBLE, QUANTIZABLE, TRANSFORMABLE, BREAKING.
    """

    NONE = "none"
    """Nothing relevant changed."""
    COMPATIBLE = "compatible"
    """Only the embedding of queries changed, along a documented edge."""
    EQUIVALENT = "equivalent"
    """Another name for the same model: relabel."""
    METADATA = "metadata"
    """Only the metadata of points changed."""
    LAYOUT = "layout"
    """The vectors stay; the store rearranges them."""
    QUANTIZABLE = "quantizable"
    """A coarser datatype: converted from existing vectors."""
    TRANSFORMABLE = "transformable"
    """Other dimensions: converted from existing vectors."""
    MIGRATABLE = "migratable"
    """Another store: the vectors are copied."""
    INCREMENTAL = "incremental"
    """Documents were added, removed or changed."""
    CHANNEL = "channel"
    """One channel is added, removed or embedded again; the others stay."""
    RECHUNK = "rechunk"
    """Documents are chunked again; only new chunks are embedded."""
    UNPROVEN = "unproven"
    """Not known to be the same space: a probe decides, or everything is embedded again."""
    REEMBED = "reembed"
    """All vectors change; the chunks stay."""
    BREAKING = "breaking"
    """The index cannot be used as it is; no details are known."""
    REBUILD = "rebuild"
    """Everything is done again, starting with the documents."""

    @property
    def rank(self) -> int:
        """Its position in the order."""
        return _RANKS[self.value]

    @property
    def projected(self) -> ChangeImpact:
        """The nearest of the predecessor's five that does not promise more."""
        if self.rank <= ChangeImpact.COMPATIBLE.rank or self in (ChangeImpact.QUANTIZABLE, ChangeImpact.TRANSFORMABLE):
            return self
        return ChangeImpact.COMPATIBLE if self.rank < ChangeImpact.QUANTIZABLE.rank else ChangeImpact.BREAKING

    @property
    def usable(self) -> bool:
        """Whether the index can be used as it is."""
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
