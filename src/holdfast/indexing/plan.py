"""The values of a plan: what an apply will do, and what it costs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from holdfast.digest import digest
from holdfast.errors import Refused
from holdfast.indexing.channel_changes import Decision
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.ledger import Failure
from holdfast.indexing.settings import SettingChange, SettingKind


class DocumentChange(enum.StrEnum):
    """Why a document is indexed again."""

    NEW = "new"
    CHANGED = "changed"
    RECHUNKED = "rechunked"
    """The same content, chunked or parsed in another way."""
    REWRITTEN = "rewritten"
    """The same chunks, in a new collection."""
    INTERRUPTED = "interrupted"
    """A run was killed while publishing it."""


_IMPACTS = {
    DocumentChange.NEW: ChangeImpact.INCREMENTAL,
    DocumentChange.CHANGED: ChangeImpact.INCREMENTAL,
    DocumentChange.RECHUNKED: ChangeImpact.RECHUNK,
    DocumentChange.REWRITTEN: ChangeImpact.NONE,
    DocumentChange.INTERRUPTED: ChangeImpact.METADATA,
}


@dataclass(frozen=True, slots=True)
class DocPlan:
    """A document that will be published."""

    name: str
    kind: DocumentChange
    content: str
    chunks: int
    to_embed: int
    """Missing vectors of all channels; one that several documents need counts for the first."""


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The work for one channel."""

    channel: str
    decisions: tuple[Decision, ...]
    reused: int
    to_embed: int
    probe_texts: int
    """Canary texts, which identify the model."""
    tokens: int
    usd: float | None
    """None if the price is unknown."""
    seconds: float | None
    """By the measured speed; None if there is none."""
    write_bytes: int | None
    overlap: float | None = None
    """The fraction of nearest neighbours that stays, measured on existing vectors."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What an apply will do."""

    unchanged: int
    documents: tuple[DocPlan, ...]
    deleted: tuple[str, ...]
    failures: tuple[Failure, ...]
    """Documents that cannot be indexed; their published chunks stay."""
    channels: tuple[ChannelPlan, ...]
    settings: tuple[SettingChange, ...]
    findings: tuple[str, ...]
    """Anything unusual, in sentences (P4)."""
    builds_beside: bool
    """Whether a new collection is built that replaces the live one at the end."""
    impact: ChangeImpact
    settings_digest: str
    corpus_digest: str
    revision: int
    retry_failed: bool = False
    """Whether chunks that failed before are retried."""
    in_place: bool = False
    """Whether rechunked documents replace the old ones in the live index, one by one."""

    @property
    def to_embed(self) -> int:
        """Chunks to be embedded."""
        return sum(each.to_embed for each in self.channels)

    @property
    def texts(self) -> int:
        """All texts that will be sent to models, including canary texts."""
        return sum(each.to_embed + each.probe_texts for each in self.channels)

    @property
    def reused(self) -> int:
        """Vectors that exist already."""
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
        """Dollars; None if the price of a needed model is unknown."""
        needed = [each.usd for each in self.channels if each.to_embed or each.probe_texts]
        return None if None in needed else sum(each for each in needed if each is not None)

    @property
    def seconds(self) -> float | None:
        """The time that the models take; None if it was never measured."""
        needed = [each.seconds for each in self.channels if each.to_embed]
        return None if None in needed else sum(each for each in needed if each is not None)

    @property
    def is_lossy(self) -> bool:
        """Whether answers may get worse, which needs consent."""
        return any(decision.is_lossy for each in self.channels for decision in each.decisions)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.documents or self.deleted or self.builds_beside or self.impact is not ChangeImpact.NONE)

    @property
    def counts(self) -> dict[str, int]:
        """The number of documents by their change."""
        kinds = Counter(each.kind.value for each in self.documents)
        found = {"unchanged": self.unchanged} | {kind.value: kinds[kind.value] for kind in DocumentChange}
        return found | {"deleted": len(self.deleted), "failed": len(self.failures)}

    @property
    def digest(self) -> str:
        """A digest of the whole plan, including its cost."""
        return digest("plan", self)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        plain = asdict(self)
        for each in plain["channels"]:
            for decision in each["decisions"]:
                decision["impact"] = decision["impact"].value
        totals = {name: getattr(self, name) for name in ("to_embed", "reused", "chunks", "tokens", "usd", "seconds")}
        return plain | {"impact": self.impact.value, "digest": self.digest, "counts": self.counts} | totals

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> IndexPlan:
        """Read what `to_dict` returned. Refused if it is not a plan, or was changed (P7)."""
        try:
            taken = {each.name: plain[each.name] for each in fields(cls)}
            taken |= {name: tuple(taken[name]) for name in ("deleted", "findings")}
            taken["impact"] = ChangeImpact(taken["impact"])
            taken["documents"] = tuple(
                DocPlan(**each | {"kind": DocumentChange(each["kind"])}) for each in taken["documents"]
            )
            taken["failures"] = tuple(Failure(**each) for each in taken["failures"])
            taken["channels"] = tuple(map(_channel, taken["channels"]))
            taken["settings"] = tuple(
                SettingChange(**each | {"kind": SettingKind(each["kind"])}) for each in taken["settings"]
            )
            plan = cls(**taken)
            is_whole = plan.digest == plain["digest"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refused(f"not a plan: {type(error).__name__}: {error}", hint="Make a new one.") from None
        if not is_whole:
            raise Refused("the plan was changed after it was made", hint="Make a new one.")
        return plan


def _channel(plain: Mapping[str, Any]) -> ChannelPlan:
    decisions = tuple(Decision(**each | {"impact": ChangeImpact(each["impact"])}) for each in plain["decisions"])
    return ChannelPlan(**dict(plain) | {"decisions": decisions})


def impact_of(documents: tuple[DocPlan, ...], deleted: bool, decisions: list[Decision]) -> ChangeImpact:
    """Return the greatest impact."""
    found = [ChangeImpact.NONE, *(_IMPACTS[each.kind] for each in documents), *(each.impact for each in decisions)]
    return max([*found, ChangeImpact.INCREMENTAL] if deleted else found)
