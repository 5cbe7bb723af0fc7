"""Retention policies per type of checkpoint, stored in the store itself, so that every prune respects them.

One small file, `kinds.json`, written by the surface that gives checkpoints their types. A policy with its own rule for
a type overrides it; one without does not delete what this file keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import Damaged, HoldfastError
from holdfast.model import Checkpoint
from holdfast.model.checkpoint import TYPE
from holdfast.retention import Policy

Kinds = Mapping[str, Policy | None]
NAME = "kinds.json"
_KEPT_FOR = "keep_for"


WATCH = "watch"
"""In the metadata of a checkpoint that `holdfast watch` saved."""
BEFORE = "before"
"""In the metadata of a checkpoint saved before a tool ran: the tool."""
PROTECTION = "protection"
"""In the metadata of a checkpoint that was saved before a tool ran, without being asked for."""


def kind_of(checkpoint: Checkpoint) -> str:
    """Return the type by which a checkpoint is kept; empty if only the policy of the workspace applies.

    That is so for what hooks of agents and `watch` save: undoing a turn needs all of its checkpoints.
    """
    named = checkpoint.metadata.get(TYPE)
    return named if isinstance(named, str) and not _is_of_hook_or_watch(checkpoint) else ""


def is_automatic(checkpoint: Checkpoint) -> bool:
    """Whether nobody asked for a checkpoint: a hook, `watch`, a protected tool or a restore saved it.

    Those of a project are not: it keeps each type by its own rules.
    """
    metadata = checkpoint.metadata
    if checkpoint.operation is not None:
        return True
    if "project" in metadata or metadata.get(TYPE) in ("manual", "feature"):
        return False
    return _is_of_hook_or_watch(checkpoint) or metadata.get(TYPE) == "automatic" or metadata.get(PROTECTION) is True


def _is_of_hook_or_watch(checkpoint: Checkpoint) -> bool:
    """Hooks note their agent and its event. `--meta` of a person gives texts, so it cannot look like `watch`."""
    metadata = checkpoint.metadata
    is_hooks = "agent" in metadata and "event" in metadata and TYPE in metadata
    return (metadata.get(WATCH) is True or is_hooks) and "project" not in metadata


def read_kinds(own: Path) -> dict[str, Policy | None]:
    """Read the policies of a store, by type; empty without a file. Damaged if unreadable: then nothing is pruned."""
    path = own / NAME
    try:
        return {str(kind): _policy(rule) for kind, rule in durable.parse_json(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError, OverflowError, HoldfastError):
        raise Damaged(
            f"{path}, the list of checkpoints to keep for ever, cannot be read",
            hint="Open the project again, which rewrites it, or remove it.",
        ) from None


def write_kinds(own: Path, kinds: Kinds) -> None:
    """Write the policies. Needs the store's lock."""
    path = own / NAME
    data = json.dumps({kind: _rule(policy) for kind, policy in kinds.items()}, indent=1, sort_keys=True).encode()
    if not path.exists() or path.read_bytes() != data:
        durable.write_atomically(path, data)


def with_kinds(policy: Policy, kinds: Kinds) -> Policy:
    """Return a policy with the rules of a store for types that it has no rule for."""
    return replace(policy, by_kind={**kinds, **policy.by_kind})


def _rule(policy: Policy | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    values = {field.name: getattr(policy, field.name) for field in fields(policy) if field.name != "by_kind"}
    said = {name: value for name, value in values.items() if value is not None}
    if policy.keep_for is not None:
        said[_KEPT_FOR] = policy.keep_for.total_seconds()
    return said


def _policy(rule: Mapping[str, Any] | None) -> Policy | None:
    if rule is None:
        return None
    said = dict(rule)
    if _KEPT_FOR in said:
        said[_KEPT_FOR] = timedelta(seconds=said[_KEPT_FOR])
    return Policy(**said)
