"""What a change of one channel means, and the cheapest safe thing to do about it. Pure.

A channel is described by plain values, as `Channel.described` gives them and a ledger keeps them. The old one is
always what was stored.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.indexing import precision
from holdfast.indexing.families import Families
from holdfast.indexing.impact import ChangeImpact

SAME_MODEL = 0.995
"""Canary texts that are at least this much alike were embedded by one model."""


class Standing(enum.Enum):
    """How the vectors of a model stand to those that are there."""

    FIRST = "there are none"
    SAME = "the same model, asked the same way"
    ALIAS = "another name of the same weights"
    FAMILY = "a model whose vectors may lie beside the others"
    UNPROVEN = "not known to be the same model: a probe decides"
    OTHER = "another space"

    @property
    def shares_space(self) -> bool:
        """Whether vectors that are there can stay."""
        return self in (Standing.SAME, Standing.ALIAS, Standing.FAMILY)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one difference of a channel means."""

    channel: str
    impact: ChangeImpact
    action: str
    reason: str
    is_lossy: bool = False
    """Whether answers get worse by an amount that only a measurement tells."""


def standing(old: Mapping[str, Any] | None, new: Mapping[str, Any], families: Families) -> Standing:
    """How a model stands to the one that made the vectors that are there."""
    if old is None:
        return Standing.FIRST
    if old["doc_prompt"] != new["doc_prompt"]:
        return Standing.OTHER
    is_named_alike = old["model"] == new["model"]
    if is_named_alike and old["revision"] == new["revision"]:
        return Standing.SAME
    if old["revision"] == new["revision"] and families.same_weights(old["model"], new["model"]):
        return Standing.ALIAS
    is_same_model = families.same_weights(old["model"], new["model"])  # so another revision of it: not known to agree
    if not is_same_model and families.any_to_any(old["model"], new["model"]):
        return Standing.FAMILY
    known = [families.find(name) for name in (old["model"], new["model"])]
    if not is_same_model and None not in known:
        return Standing.OTHER  # two models that are known, and not known to agree
    return Standing.UNPROVEN


def decide(
    channel: str,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
    *,
    families: Families,
    standing: Standing,
    native: int | None,
) -> list[Decision]:
    """All that a change of a channel means; nothing if nothing changed. `native` is how many numbers are cached."""
    if new is None:
        return [Decision(channel, ChangeImpact.CHANNEL, "drop", "the channel is gone")] if old is not None else []
    if old is None:
        return [Decision(channel, ChangeImpact.CHANNEL, "embed", "the channel is new")]
    found = [*_model(channel, old, new, standing), *_queries(channel, old, new, families)]
    if standing.shares_space:
        found += _shape(channel, old, new, families, native)
    if old["metric"] != new["metric"]:
        found.append(Decision(channel, ChangeImpact.LAYOUT, "arrange", f"the metric is {new['metric']}"))
    return found


def _model(channel: str, old: Mapping[str, Any], new: Mapping[str, Any], standing: Standing) -> list[Decision]:
    change = f"{_named(old)} → {_named(new)}: {standing.value}"
    if standing is Standing.ALIAS:
        return [Decision(channel, ChangeImpact.EQUIVALENT, "relabel", change)]
    if standing is Standing.FAMILY:
        return [Decision(channel, ChangeImpact.COMPATIBLE, "keep", change)]
    if standing is Standing.UNPROVEN:
        return [Decision(channel, ChangeImpact.UNPROVEN, "probe", change)]
    if standing is Standing.OTHER:
        return [Decision(channel, ChangeImpact.REEMBED, "embed", change)]
    if _named(old) != _named(new):  # a probe proved it
        return [Decision(channel, ChangeImpact.EQUIVALENT, "relabel", change)]
    return []


def _queries(channel: str, old: Mapping[str, Any], new: Mapping[str, Any], families: Families) -> list[Decision]:
    asked, was = new["query_model"] or new["model"], old["query_model"] or old["model"]
    if new["query_model"] and asked != was:
        edge = families.edge(new["model"], asked)
        if edge is not None:
            return [Decision(channel, ChangeImpact.COMPATIBLE, "keep", f"queries by {asked}: {edge.evidence}")]
        reason = f"nothing says that {asked} may be asked of documents of {new['model']}"
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
        reason = f"{before} → {after} numbers, of cached vectors"
        found.append(Decision(channel, ChangeImpact.TRANSFORMABLE, action, reason, is_lossy))
    if not precision.same(old["datatype"], new["datatype"]):
        is_down = precision.can_be_made(new["datatype"], old["datatype"])
        impact = ChangeImpact.QUANTIZABLE if is_down else ChangeImpact.TRANSFORMABLE
        reason = f"{old['datatype']} → {new['datatype']}, of cached vectors"
        found.append(Decision(channel, impact, "quantise" if is_down else "derive", reason))
    return found


def _is_meant(model: str, dimension: int | None, families: Families) -> bool:
    """Whether a model is made to be cut to a dimension."""
    known = families.find(model)
    return known is not None and known[0].matryoshka and dimension in known[0].dimensions


def _named(described: Mapping[str, Any]) -> str:
    return f"{described['model']}@{described['revision']}" if described["revision"] else str(described["model"])
