"""The serializer that every surface shares: a closed table of types, exact or refused, and no code from data (P7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.serde.classes import Registry, Unknown, default_registry, register
    from holdfast.serde.envelope import Envelope
    from holdfast.serde.jsonform import from_json, from_tagged, to_json, to_tagged
    from holdfast.serde.keyfile import read_keys
    from holdfast.serde.keys import Keys, NoKey, NotSealed
    from holdfast.serde.serde import Serde

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

if not TYPE_CHECKING:  # a checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load the names when one is first asked for: who only asks whether a value is plain does not pay for them."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.serde' has no attribute {name!r}")
        from holdfast.serde import classes, envelope, jsonform, keyfile, keys, serde

        rooms = (classes, envelope, jsonform, keyfile, keys, serde)
        return next(vars(room)[name] for room in rooms if name in vars(room))
