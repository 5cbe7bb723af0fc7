"""The names that `holdfast.serde` has for everybody, in one place to be loaded from."""

from holdfast.serde.classes import Registry, Unknown, default_registry, register
from holdfast.serde.envelope import Envelope
from holdfast.serde.jsonform import from_json, from_tagged, to_json, to_tagged
from holdfast.serde.keys import Keys
from holdfast.serde.serde import Serde

__all__ = [
    "Envelope",
    "Keys",
    "Registry",
    "Serde",
    "Unknown",
    "default_registry",
    "from_json",
    "from_tagged",
    "register",
    "to_json",
    "to_tagged",
]
