"""The serializer that every surface shares: a closed table of types, exact or refused, and no code from data (P7).

`take_…` functions turn a value into simpler data, `make_…` functions turn that data into the value again.

    codec            `Serde`, which the surfaces call: values to MessagePack and back
    types            the types, each with its number; values that need none, because MessagePack has them
    registry         the user's classes by their ids, and how dataclasses, enums, structs and models become data
    subclasses       subclasses of plain types, which are stored as those where they carry nothing else
    list_prefix      does a list still begin with what it held? Then that need not be encoded again
    jsonform         encoded bytes as JSON with tags, and back
    envelope         what is put around encoded bytes: compression (zstandard), `encryption` (cryptography)
    arrays, pydantic_models, msgpack    the only files that import NumPy, pydantic, msgspec
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.serde.codec import Serde
    from holdfast.serde.encryption import Keys, NoKey, NotEncrypted, read_keys
    from holdfast.serde.envelope import Envelope
    from holdfast.serde.jsonform import from_json, from_tagged, to_json, to_tagged
    from holdfast.serde.registry import Registry, Unknown, default_registry, register

__all__ = [
    "Envelope",
    "Keys",
    "NoKey",
    "NotEncrypted",
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

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        """Load the modules when a name is first used: callers of `types.is_plain` alone do not pay for them."""
        if name not in __all__:
            raise AttributeError(f"module 'holdfast.serde' has no attribute {name!r}")
        from holdfast.serde import codec, encryption, envelope, jsonform, registry

        modules = (codec, encryption, envelope, jsonform, registry)
        return next(vars(module)[name] for module in modules if name in vars(module))
