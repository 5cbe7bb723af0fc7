"""The serializer that every surface shares: a closed table of types, exact or refused, and no code from data (P7)."""

from holdfast.serde.classes import Registry, Unknown, default_registry, register
from holdfast.serde.envelope import Envelope
from holdfast.serde.jsonform import from_json, to_json
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
    "read_keys",
    "register",
    "to_json",
]
