"""The serializer that every surface shares: a closed table of types, exact or refused, and no code from data (P7).

`take_…` functions turn a value into simpler data, `make_…` functions turn that data into the value again.

    serde       `Serde`, which the surfaces call
    plain       is a value JSON-like already? Then it needs nothing else of this
    encoding    values to MessagePack
    decoding    MessagePack to values
    table       the types, each with its number
    registry    the user's classes, by their ids
    kinds       how dataclasses, enums, named tuples, structs and models are taken apart
    arrays, models, msgpack, zones    the same for NumPy, pydantic, msgspec, dates and times
    subclasses  subclasses of plain types, which are stored as those where they carry nothing else
    cannot      what is raised inside for a value that cannot be stored
    unchanged   does a list still begin with what it held? Then that need not be encoded again
    jsonform    encoded bytes as JSON with tags, and back
    envelope    what is put around encoded bytes: compression, encryption
    keys, keyfile, zstd    encryption, the file of its keys, compression
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.serde.envelope import Envelope
    from holdfast.serde.jsonform import from_json, from_tagged, to_json, to_tagged
    from holdfast.serde.keyfile import read_keys
    from holdfast.serde.keys import Keys, NoKey, NotSealed
    from holdfast.serde.registry import Registry, Unknown, default_registry, register
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
        from holdfast.serde import envelope, jsonform, keyfile, keys, registry, serde

        rooms = (envelope, jsonform, keyfile, keys, registry, serde)
        return next(vars(room)[name] for room in rooms if name in vars(room))
