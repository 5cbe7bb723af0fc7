"""What a change of one channel means, and the cheapest safe action. Pure.

A channel is described by plain values, as `Channel.described` returns them and a ledger stores them. The old
description is always the stored one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.indexing import vectors
from holdfast.indexing.impact import ChangeImpact
from holdfast.indexing.model_families import Families

SAME_MODEL = 0.995
"""If the vectors of a canary text have at least this cosine, one model made both."""


class SpaceRelation(enum.Enum):
    """How the vectors of a model relate to the existing ones."""

    FIRST = "there are none"
    SAME = "the same model, asked the same way"
    ALIAS = "another name of the same weights"
    FAMILY = "a model whose vectors may be mixed with the others"
    UNPROVEN = "not known to be the same model: a probe decides"
    OTHER = "another space"

    @property
    def shares_space(self) -> bool:
        """Whether the existing vectors can stay."""
        return self in (SpaceRelation.SAME, SpaceRelation.ALIAS, SpaceRelation.FAMILY)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one difference of a channel means."""

    channel: str
    impact: ChangeImpact
    action: str
    reason: str
    is_lossy: bool = False
    """Whether answers get worse by an amount that only a measurement shows."""


def relate(old: Mapping[str, Any] | None, new: Mapping[str, Any], families: Families) -> SpaceRelation:
    """Return how a model relates to the one that made the existing vectors."""
    if old is None:
        return SpaceRelation.FIRST
    if old["doc_prompt"] != new["doc_prompt"]:
        return SpaceRelation.OTHER
    is_named_alike = old["model"] == new["model"]
    if is_named_alike and old["revision"] == new["revision"]:
        return SpaceRelation.SAME
    if old["revision"] == new["revision"] and families.same_weights(old["model"], new["model"]):
        return SpaceRelation.ALIAS
    is_same_model = families.same_weights(old["model"], new["model"])  # then another revision of it: not known to agree
    if not is_same_model and families.any_to_any(old["model"], new["model"]):
        return SpaceRelation.FAMILY
    known = [families.find(name) for name in (old["model"], new["model"])]
    if not is_same_model and None not in known:
        return SpaceRelation.OTHER  # two models that are known, and not known to agree
    return SpaceRelation.UNPROVEN


def decide(
    channel: str,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    *,
    families: Families,
    relation: SpaceRelation,
    native: int | None,
) -> list[Decision]:
    """Return all that a change of a channel means; `native` is the dimension of cached vectors."""
    if new is None:
        return [Decision(channel, ChangeImpact.CHANNEL, "drop", "the channel is gone")] if old is not None else []
    if old is None:
        return [Decision(channel, ChangeImpact.CHANNEL, "embed", "the channel is new")]
    found = [*_model(channel, old, new, relation), *_queries(channel, old, new, families)]
    if relation.shares_space:
        found += _shape(channel, old, new, families, native)
    if old["metric"] != new["metric"]:
        found.append(Decision(channel, ChangeImpact.LAYOUT, "arrange", f"the metric is {new['metric']}"))
    return found


def _model(channel: str, old: Mapping[str, Any], new: Mapping[str, Any], relation: SpaceRelation) -> list[Decision]:
    change = f"{_named(old)} → {_named(new)}: {relation.value}"
    if relation is SpaceRelation.ALIAS:
        return [Decision(channel, ChangeImpact.EQUIVALENT, "relabel", change)]
    if relation is SpaceRelation.FAMILY:
        return [Decision(channel, ChangeImpact.COMPATIBLE, "keep", change)]
    if relation is SpaceRelation.UNPROVEN:
        return [Decision(channel, ChangeImpact.UNPROVEN, "probe", change)]
    if relation is SpaceRelation.OTHER:
        return [Decision(channel, ChangeImpact.REEMBED, "embed", change)]
    if _named(old) != _named(new):  # a probe proved it
        return [Decision(channel, ChangeImpact.EQUIVALENT, "relabel", change)]
    return []


def _queries(channel: str, old: Mapping[str, Any], new: Mapping[str, Any], families: Families) -> list[Decision]:
    queries, before = new["query_model"] or new["model"], old["query_model"] or old["model"]
    if new["query_model"] and queries != before:
        edge = families.edge(new["model"], queries)
        if edge is not None:
            return [Decision(channel, ChangeImpact.COMPATIBLE, "keep", f"queries by {queries}: {edge.evidence}")]
        reason = f"queries of {queries} are not known to fit documents of {new['model']}"
        return [Decision(channel, ChangeImpact.UNPROVEN, "keep", reason, is_lossy=True)]
    if new["query_prompt"] != old["query_prompt"]:
        return [Decision(channel, ChangeImpact.COMPATIBLE, "keep", "another prompt for queries")]
    return []


def _shape(
    channel: str, old: Mapping[str, Any], new: Mapping[str, Any], families: Families, native: int | None
) -> list[Decision]:
    found = []
    before, after = old["dimension"] or native, new["dimension"] or native
    if before != after:
        is_cut = native is None or (after is not None and after < native)
        is_lossy = is_cut and not _is_meant(new["model"], after, families)
        action = "truncate" if is_cut else "derive"
        reason = f"{before} → {after} dimensions, from cached vectors"
        found.append(Decision(channel, ChangeImpact.TRANSFORMABLE, action, reason, is_lossy))
    if not vectors.same_datatype(old["datatype"], new["datatype"]):
        is_down = vectors.can_convert(new["datatype"], old["datatype"])
        impact = ChangeImpact.QUANTIZABLE if is_down else ChangeImpact.TRANSFORMABLE
        reason = f"{old['datatype']} → {new['datatype']}, from cached vectors"
        found.append(Decision(channel, impact, "quantise" if is_down else "derive", reason))
    return found


def _is_meant(model: str, dimension: int | None, families: Families) -> bool:
    """Whether a model is trained to be truncated to a dimension."""
    known = families.find(model)
    return known is not None and known[0].matryoshka and dimension in known[0].dimensions


def _named(described: Mapping[str, Any]) -> str:
    return f"{described['model']}@{described['revision']}" if described["revision"] else str(described["model"])
