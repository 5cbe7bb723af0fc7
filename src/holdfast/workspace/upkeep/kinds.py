"""What a store itself says of kinds of checkpoints: how long each is kept, whoever prunes, by whatever policy.

One small file, `kinds.json`, written by whoever gives checkpoints their types. A policy with a rule of its own for a
kind goes before it; one that has none does not reach what this file keeps.
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
from holdfast.retention import Policy

Kinds = Mapping[str, Policy | None]
NAME = "kinds.json"
_KEPT_FOR = "keep_for"


def read_kinds(own: Path) -> dict[str, Policy | None]:
    """The rules of a store, by kind; none where it has no file. Damaged if that cannot be read: then nothing may go."""
    path = own / NAME
    try:
        return {str(kind): _policy(rule) for kind, rule in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError, OverflowError, HoldfastError):
        raise Damaged(
            f"{path} cannot be read, and says which checkpoints are kept for ever",
            hint="Open the project again, which writes it anew, or remove it.",
        ) from None


def write_kinds(own: Path, kinds: Kinds) -> None:
    """Say how long each kind is kept. Needs the store's lock."""
    path = own / NAME
    data = json.dumps({kind: _rule(policy) for kind, policy in kinds.items()}, indent=1, sort_keys=True).encode()
    if not path.exists() or path.read_bytes() != data:
        durable.write_atomically(path, data)


def with_kinds(policy: Policy, kinds: Kinds) -> Policy:
    """A policy with the rules of a store for the kinds of which it says nothing."""
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
