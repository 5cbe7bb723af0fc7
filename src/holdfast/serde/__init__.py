"""The serializer that every surface shares: a closed table of types, exact or refused, and no code from data (P7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.serde.public import (
        Envelope,
        Keys,
        NoKey,
        NotSealed,
        Registry,
        Serde,
        Unknown,
        default_registry,
        from_json,
        from_tagged,
        read_keys,
        register,
        to_json,
        to_tagged,
    )

__all__ = [
    "Envelope",
    "Keys",
    "NoKey",
    "NotSealed",
    "Registry",
    "Serde",
    "Unknown",
    "default_registry",
    "from_json",
    "from_tagged",
    "read_keys",
    "register",
    "to_json",
    "to_tagged",
]


def __getattr__(name: str) -> object:
    """Load the names when one is first asked for: who only asks whether a value is plain does not pay for them."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.serde' has no attribute {name!r}")
    from holdfast.serde import public

    return getattr(public, name)
