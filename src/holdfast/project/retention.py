"""How long each type of checkpoint is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.errors import Refused
from holdfast.project.types import CheckpointType, type_of
from holdfast.retention import Policy
from holdfast.workspace.upkeep.prune import SAFETY

_SAFETY_KEPT = 20
Retention = Policy | Mapping[CheckpointType | str, Policy | int | None]

DEFAULT: dict[str, Policy | None] = {
    CheckpointType.AUTOMATIC.value: Policy(keep_last=5),
    CheckpointType.SESSION.value: Policy(keep_last=3),
    CheckpointType.MANUAL.value: None,
    CheckpointType.FEATURE.value: None,
}
"""Automatic: the last five; session: the last three; manual and feature: until deleted."""


def as_policy(given: Retention | None, configured: Policy | None) -> Policy:
    """Combine the caller's policy, the configuration, and the defaults for types that neither mentions.

    By type: a policy, a number of checkpoints, or None to keep all.
    """
    if given is None or isinstance(given, Policy):
        policy = given or configured or Policy()
        return replace(policy, by_kind={**DEFAULT, **policy.by_kind})
    if not isinstance(given, Mapping):
        raise Refused(f"retention is {given!r}", hint="Pass a Policy, or a mapping of types to numbers.")
    rules = {type_of(kind).value: _rule(rule) for kind, rule in given.items()}
    base = configured or Policy()
    return replace(base, by_kind={**DEFAULT, **base.by_kind, **rules})


def with_safety(policy: Policy) -> Policy:
    """The same policy with a limit on safety checkpoints, which would otherwise accumulate."""
    if SAFETY in policy.by_kind or not policy.keeps_all:
        return policy
    return replace(policy, by_kind={**policy.by_kind, SAFETY: Policy(keep_last=_SAFETY_KEPT)})


def _rule(given: Policy | int | None) -> Policy | None:
    return given if given is None or isinstance(given, Policy) else Policy(keep_last=given)


def is_limited(policy: Policy, kind: CheckpointType) -> bool:
    """Whether a new checkpoint of a type can make others expire."""
    rule = policy.by_kind.get(kind.value)
    return policy.max_bytes is not None or (rule is not None and not rule.keeps_all)
