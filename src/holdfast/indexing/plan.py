"""What an apply will do, and what it costs: plain values."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from holdfast.digest import digest
from holdfast.errors import Refused
from holdfast.indexing.deciding import Decision
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.ledger import Failure
from holdfast.indexing.settings import SettingChange, SettingKind


class Kind(enum.StrEnum):
    """Why a document is done again."""

    NEW = "new"
    CHANGED = "changed"
    RECHUNKED = "rechunked"
    """The same content, cut or parsed in another way."""
    REWRITTEN = "rewritten"
    """The same chunks, in a new collection."""
    INTERRUPTED = "interrupted"
    """A run was killed while it published it."""


_IMPACTS = {
    Kind.NEW: ChangeImpact.INCREMENTAL,
    Kind.CHANGED: ChangeImpact.INCREMENTAL,
    Kind.RECHUNKED: ChangeImpact.RECHUNK,
    Kind.REWRITTEN: ChangeImpact.NONE,
    Kind.INTERRUPTED: ChangeImpact.METADATA,
}


@dataclass(frozen=True, slots=True)
class DocPlan:
    """A document that will be published."""

    name: str
    kind: Kind
    content: str
    chunks: int
    to_embed: int
    """Vectors that nobody has yet, over all channels; one that several documents need is the first's."""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The work for one channel."""

    channel: str
    decisions: tuple[Decision, ...]
    reused: int
    to_embed: int
    probe_texts: int
    """Canary texts, by which the model is known."""
    tokens: int
    usd: float | None
    """None if nobody said the price."""
    seconds: float | None
    """By the speed that was measured; None if it never was."""
    write_bytes: int | None
    overlap: float | None = None
    """Which part of the nearest neighbours stays, measured on vectors that are there."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What an apply will do. Making it called no model and changed nothing."""

    unchanged: int
    documents: tuple[DocPlan, ...]
    deleted: tuple[str, ...]
    failures: tuple[Failure, ...]
    """Documents that cannot be indexed; what was published of them stays."""
    channels: tuple[ChannelPlan, ...]
    settings: tuple[SettingChange, ...]
    findings: tuple[str, ...]
    """What is odd, in sentences."""
    builds_beside: bool
    """Whether a new collection is made beside the live one, and takes its place at the end."""
    impact: ChangeImpact
    settings_digest: str
    corpus_digest: str
    revision: int
    retry_failed: bool = False
    """Whether chunks that failed before are tried again."""
    in_place: bool = False
    """Whether documents that are cut anew replace the old ones in the live index, one by one."""

    @property
    def to_embed(self) -> int:
        """Chunks to be embedded."""
        return sum(each.to_embed for each in self.channels)

    @property
    def texts(self) -> int:
        """All texts that models will be sent, canaries among them."""
        return sum(each.to_embed + each.probe_texts for each in self.channels)

    @property
    def reused(self) -> int:
        """Vectors that were paid for already."""
        return sum(each.reused for each in self.channels)

    @property
    def chunks(self) -> int:
        """Chunks of the documents that will be published."""
        return sum(each.chunks for each in self.documents)

    @property
    def tokens(self) -> int:
        """Of all texts."""
        return sum(each.tokens for each in self.channels)

    @property
    def usd(self) -> float | None:
        """Dollars; None if the price of a model that is needed is not known."""
        needed = [each.usd for each in self.channels if each.to_embed or each.probe_texts]
        return None if None in needed else sum(each for each in needed if each is not None)

    @property
    def seconds(self) -> float | None:
        """How long the models take; None if that was never measured."""
        needed = [each.seconds for each in self.channels if each.to_embed]
        return None if None in needed else sum(each for each in needed if each is not None)

    @property
    def is_lossy(self) -> bool:
        """Whether answers get worse in a way that must be accepted."""
        return any(decision.is_lossy for each in self.channels for decision in each.decisions)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.documents or self.deleted or self.builds_beside or self.impact is not ChangeImpact.NONE)

    @property
    def counts(self) -> dict[str, int]:
        """Documents by what becomes of them."""
        kinds = Counter(each.kind.value for each in self.documents)
        found = {"unchanged": self.unchanged} | {kind.value: kinds[kind.value] for kind in Kind}
        return found | {"deleted": len(self.deleted), "failed": len(self.failures)}

    @property
    def digest(self) -> str:
        """The same for the same plan: what it says it costs counts as much as what it does."""
        return digest("plan", self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        plain = asdict(self)
        for each in plain["channels"]:
            for decision in each["decisions"]:
                decision["impact"] = decision["impact"].value
        totals = {name: getattr(self, name) for name in ("to_embed", "reused", "chunks", "tokens", "usd", "seconds")}
        return plain | {"impact": self.impact.value, "digest": self.digest, "counts": self.counts} | totals

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> IndexPlan:
        """A plan as `to_dict` gave it, by way of JSON. Refused if it is none, or not what its digest says."""
        try:
            taken = {each.name: plain[each.name] for each in fields(cls)}
            taken |= {name: tuple(taken[name]) for name in ("deleted", "findings")}
            taken["impact"] = ChangeImpact(taken["impact"])
            taken["documents"] = tuple(DocPlan(**each | {"kind": Kind(each["kind"])}) for each in taken["documents"])
            taken["failures"] = tuple(Failure(**each) for each in taken["failures"])
            taken["channels"] = tuple(map(_channel, taken["channels"]))
            taken["settings"] = tuple(
                SettingChange(**each | {"kind": SettingKind(each["kind"])}) for each in taken["settings"]
            )
            plan = cls(**taken)
            is_whole = plan.digest == plain["digest"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(f"this is not a plan: {type(error).__name__}: {error}", hint="Make a new one.") from None
        if not is_whole:
            raise Refused("the plan was changed after it was made", hint="Make a new one.")
        return plan


def _channel(plain: Mapping[str, Any]) -> ChannelPlan:
    decisions = tuple(Decision(**each | {"impact": ChangeImpact(each["impact"])}) for each in plain["decisions"])
    return ChannelPlan(**dict(plain) | {"decisions": decisions})


def impact_of(documents: tuple[DocPlan, ...], deleted: bool, decisions: list[Decision]) -> ChangeImpact:
    """The greatest of all."""
    found = [ChangeImpact.NONE, *(_IMPACTS[each.kind] for each in documents), *(each.impact for each in decisions)]
    return max([*found, ChangeImpact.INCREMENTAL] if deleted else found)
